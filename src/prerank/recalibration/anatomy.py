"""Gaussian mixtures taken apart for a change of their widths, correlations and weights."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from prerank.distributions import GaussianMixture
from prerank.numerics.matrices import row_norms, symmetric_eigen
from prerank.numerics.polynomials import legendre
from prerank.recalibration.change import Change

__all__ = ["Anatomy"]


_LEAST = -1e4  # log-weight of a component without weight: infinity times 0 has no gradient


class Anatomy(NamedTuple):
    """Parts of a mixture that a change needs, computed once: constants of the rows.

    Attributes:
        logits: log-weights `(..., K)`.
        mean: predicted mean `(..., D)`.
        offsets: locations less the mean, `(..., K, D)`.
        widths: standard deviations of the components, `(..., K, D)`.
        sd: predicted standard deviations, `(..., D)`.
        ratios: widths over these, `(..., K, D)`.
        unit: factors of the components' correlations, `(..., K, D, D)`.
        values: eigenvalues of the components' correlations, `(..., K, D)`.
        vectors: their eigenvectors `(..., K, D, D)`, in rows.
        axes: principal axes of the predicted correlations, `(..., D, D)`, in rows.
    """

    logits: Tensor
    mean: Tensor
    offsets: Tensor
    widths: Tensor
    sd: Tensor
    ratios: Tensor
    unit: Tensor
    values: Tensor
    vectors: Tensor
    axes: Tensor

    @classmethod
    def of(cls, dist: GaussianMixture) -> "Anatomy":
        """Take a mixture apart."""
        mean, sd, widths = dist.mean, dist.variance.sqrt(), row_norms(dist.scale_tril)
        unit = dist.scale_tril / widths.unsqueeze(-1)
        exact = unit.double()  # a product of nearly singular factors loses half of the digits
        values, vectors = symmetric_eigen(exact @ exact.mT)
        correlations = dist.covariance_matrix / (sd.unsqueeze(-1) * sd.unsqueeze(-2))
        return cls(
            dist.logits.clamp_min(_LEAST),
            mean,
            dist.loc - mean.unsqueeze(-2),
            widths,
            sd,
            widths / sd.unsqueeze(-2),
            unit,
            values.clamp_min(torch.finfo(values.dtype).eps).to(unit),
            vectors.to(unit),
            symmetric_eigen(correlations)[1],
        )

    def rows(self, index: Tensor) -> "Anatomy":
        """Parts of the rows of an index `(b,)`, or `(F, b)` for F sets: `(F, *stack, b, ...)`."""
        axis = self.mean.dim() - 2

        def picked(part: Tensor) -> Tensor:
            return part.movedim(axis, 0)[index].movedim(index.dim() - 1, axis + index.dim() - 1)

        return Anatomy(*map(picked, self))

    def changed(self, change: Change, levels: frozenset[str]) -> GaussianMixture:
        """Put the mixture together again, with a change of the stack or of each row.

        Args:
            change: see `Change`; its parameters have the shape `batch_shape[:-1]`, or
                `batch_shape`.
            levels: those that are not the identity; the others are not computed.
        """
        rowwise = change.rowwise(self.mean.shape[:-1])
        logits, loc, widths = self._copies(rowwise, levels)
        unit = self.unit
        if levels & {"dependence", "mixing"}:
            unit = self._factor(rowwise, levels)
        tril = (widths.unsqueeze(-1) * unit.unsqueeze(-4)).flatten(-4, -3)
        moved, kept = (share.unsqueeze(-1) for share in rowwise.shares)
        weights = torch.log_softmax(logits.flatten(-2), -1) + moved
        before = torch.log_softmax(self.logits, -1) + kept
        own = self.mean.unsqueeze(-2) + self.offsets, self.widths.unsqueeze(-1) * self.unit
        return GaussianMixture(
            torch.cat([weights, before.expand(*weights.shape[:-1], -1)], -1),
            torch.cat([loc.flatten(-3, -2), own[0]], -2),
            torch.cat([tril, own[1]], -3),
            validate_args=False,
        )

    def log_prob(self, change: Change, levels: frozenset[str], y: Tensor, before: Tensor) -> Tensor:
        """Log-density of the changed mixture at `(..., D)`.

        The inverse of each factor is known in closed form, and the copies of a component share it,
        so this is many times as fast as `changed(...).log_prob(y)`.

        Args:
            change: see `Change`.
            levels: those that are not the identity.
            y: `(..., D)`.
            before: log-density of the mixture as it is, `(...)`.
        """
        rowwise = change.rowwise(self.mean.shape[:-1])
        logits, loc, widths = self._copies(rowwise, levels)
        whitening, volume = self._whitening(rowwise, levels)
        standard = ((y[..., None, None, :] - loc) / widths).movedim(-3, -1)  # (..., K, D, C)
        distance = (whitening @ standard).square().sum(-2).mT
        volume = widths.log().sum(-1) + volume.unsqueeze(-2)
        exponent = -0.5 * (distance + y.shape[-1] * math.log(2 * math.pi)) - volume  # (..., C, K)
        weights = torch.log_softmax(logits.flatten(-2), -1)
        moved, kept = rowwise.shares
        after = torch.logsumexp(weights + exponent.flatten(-2), -1)
        return torch.logaddexp(after + moved, before + kept)

    def _copies(self, rowwise: Change, levels: frozenset[str]) -> tuple[Tensor, Tensor, Tensor]:
        """Log-weights `(..., C, K)`, locations and widths `(..., C, K, D)` of the copies."""
        logits, mean, offsets = self.logits, self.mean, self.offsets
        if levels & {"common", "targets"}:
            logits = torch.log_softmax(logits * rowwise.temperature.exp().unsqueeze(-1), -1)
            away = rowwise.spread.unsqueeze(-1) + rowwise.contraction
            offsets = offsets + (away.expm1().unsqueeze(-2) * self.ratios) * offsets
        if "means" in levels:
            mean = mean + rowwise.slopes * (mean - rowwise.centre)
        widths = (rowwise.width.unsqueeze(-1) + rowwise.widths).unsqueeze(-2)
        moves, logits = rowwise.shifts.unsqueeze(-2), logits.unsqueeze(-2)
        if "copies" in levels:
            logits = logits + torch.log_softmax(rowwise.weights, -1).unsqueeze(-1)
            widths, moves = widths + rowwise.copy_widths, moves + rowwise.copy_shifts
        own, narrow = self.widths.unsqueeze(-3), self.ratios.log().unsqueeze(-3)
        moved = offsets.unsqueeze(-3) + moves.unsqueeze(-2) * own
        if "tilts" in levels:
            place = torch.erf(moved / (2**0.5 * self.sd[..., None, None, :]))
            tilts = legendre(place, rowwise.tilts.shape[-1]) * rowwise.tilts[..., None, None, :, :]
            by_width = narrow * rowwise.width_tilts[..., None, None, :]
            logits = logits + (tilts.sum(-1) + by_width).sum(-1)
        scales = widths.unsqueeze(-2)
        if "targets" in levels:
            scales = scales + rowwise.width_power[..., None, None, :] * narrow
        return logits, mean[..., None, None, :] + moved, scales.exp() * own

    def _factor(self, change: Change, levels: frozenset[str]) -> Tensor:
        """Factors of the correlations, changed, stretched and mixed, `(..., K, D, D)`."""
        root = self._root(change)
        lengths = _lengths(root)
        unit = root / lengths
        if "mixing" in levels:
            root = change.blend.unsqueeze(-3) @ unit
            unit = root / _lengths(root)
        # Rounding may leave a correlation matrix that is not positive definite.
        size, exact = unit.shape[-1], unit.double()
        spare = 8 * size * torch.finfo(exact.dtype).eps * torch.eye(size).to(exact)
        return lengths * torch.linalg.cholesky(exact @ exact.mT + spare).to(unit)

    def _root(self, change: Change) -> Tensor:
        """A square root of the stretched correlations, `(..., K, D, D)`."""
        power = 0.5 * change.coupling.exp()[..., None, None]
        root = self.vectors.mT * (power * self.values.log()).exp().unsqueeze(-2)
        stretch = self.axes.mT @ (change.directions.exp().unsqueeze(-1) * self.axes)
        return stretch.unsqueeze(-3) @ (root / _lengths(root))

    def _whitening(self, change: Change, levels: frozenset[str]) -> tuple[Tensor, Tensor]:
        """Inverse of a factor of the correlations `(..., K, D, D)`, and its log-volume."""
        power = 0.5 * change.coupling.exp()[..., None, None]
        spread = power * self.values.log()
        inverse, volume = (-spread).exp().unsqueeze(-1) * self.vectors, spread.sum(-1)
        if "dependence" in levels:
            lengths = _lengths(self.vectors.mT * spread.exp().unsqueeze(-2))
            shrink = self.axes.mT @ ((-change.directions).exp().unsqueeze(-1) * self.axes)
            inverse = (inverse * lengths.mT) @ shrink.unsqueeze(-3)
            volume = volume - lengths.log().sum((-2, -1)) + change.directions.sum(-1, keepdim=True)
        if "mixing" in levels:
            root = self._root(change)
            lengths = _lengths(root)
            mixed = _lengths(change.blend.unsqueeze(-3) @ (root / lengths))
            back = torch.linalg.inv(change.blend).unsqueeze(-3) * (mixed / lengths).mT
            inverse = inverse @ (lengths * back)
            volume = volume - mixed.log().sum((-2, -1))
        return inverse, volume


def _lengths(matrix: Tensor) -> Tensor:
    """Norms of the rows, as a column; none is 0, so the gradient needs no care for it."""
    return matrix.square().sum(-1, keepdim=True).sqrt()
