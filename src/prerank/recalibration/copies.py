"""Mixtures of widened and shifted copies of one distribution."""

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from prerank.adapters.mixtures import supported_log_prob
from prerank.distributions import Draws, Ensemble, draw
from prerank.distributions.joint import JointDistribution
from prerank.distributions.noise import Noise, row_uniform
from prerank.inputs import Shape, full_precision
from prerank.numerics.matrices import symmetric_eigen
from prerank.preranks.linear import predictive_covariance
from prerank.recalibration.change import Change

__all__ = ["Copies", "Moments"]

_NOWHERE = -1e30
_DRAWS = 1000  # for moments of distributions that do not know theirs


class Moments(NamedTuple):
    """Mean `(..., D)`, standard deviations `(..., D)` and correlations `(..., D, D)`."""

    mean: Tensor
    sd: Tensor
    correlations: Tensor

    @classmethod
    def of(cls, dist: Distribution) -> "Moments":
        """Moments of a distribution: its own where it knows them, else those of draws.

        Example:
            >>> from torch.distributions import MultivariateNormal
            >>> Moments.of(MultivariateNormal(torch.zeros(2), torch.eye(2))).sd
            tensor([1., 1.])
        """
        with full_precision():
            covariance = predictive_covariance(dist)
            if covariance is None:
                known = dist if isinstance(dist, Ensemble) else None
                sample = known or Ensemble(draw(dist, _DRAWS, generator=0, gradient=True).points)
                mean, covariance = sample.mean, sample.covariance_matrix
            else:
                mean = dist.mean
            sd = covariance.diagonal(dim1=-2, dim2=-1).clamp_min(0).sqrt()
            # The mean of equal members is not exactly their value.
            sd = torch.where(sd > 8 * torch.finfo(sd.dtype).eps * mean.abs(), sd, 0)
            spread = torch.where(sd > 0, sd, 1)  # a target that does not vary has no correlation
            return cls(mean, sd, covariance / (spread.unsqueeze(-1) * spread.unsqueeze(-2)))


class Copies(JointDistribution):
    r"""Mixture of C affine copies of a distribution, about its mean m.

    .. math:: f(y) = \sum_{c=1}^C v_c\,
              \frac{f_0\big(m + M_c^{-1} (y - m' - S (b + b_c))\big)}{|M_c|},
              \qquad M_c = S W_c B T S^{-1}, \qquad m' = m + g (m - \bar m),

    with the predicted standard deviations S, and widths W, mixing B, stretch T, shifts b, slopes g
    and shares v of a `Change`, in which the whole distribution is the one component. Beside the
    copies, the base stays as it is with the share that the change keeps, unless it is an
    `Ensemble`.

    Args:
        base: `batch_shape (*stack, N)`, `event_shape (D,)`.
        change: its parameters have the shape of the stack before their own, or that of the rows.
        moments: of the base, if they are known.
        levels: of the change that are not the identity, if they are known.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> base = MultivariateNormal(torch.zeros(5, 2), torch.eye(2))
        >>> change = Change.identity(2, 3, stack=(), like=torch.zeros(()))
        >>> wide = Copies(base, change._replace(width=torch.tensor(2.0).log()))
        >>> wide.log_prob(torch.zeros(5, 2))[0] - base.log_prob(torch.zeros(5, 2))[0]
        tensor(-1.3570)
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}

    def __init__(
        self,
        base: Distribution,
        change: Change,
        moments: Moments | None = None,
        levels: frozenset[str] | None = None,
    ) -> None:
        self.base, self.change = base, change
        self.moments = Moments.of(base) if moments is None else moments
        super().__init__(base.batch_shape, base.event_shape, validate_args=False)
        like = self.moments.mean
        rows = Change(*(part.to(like) for part in change)).rowwise(base.batch_shape)
        self._shares = torch.log_softmax(rows.weights, -1)  # (..., 1 or N, C + 1)
        if not isinstance(base, Ensemble):
            moved, kept = (share.unsqueeze(-1) for share in rows.shares)
            self._shares = torch.cat([self._shares + moved, kept], -1)
        self._widths = rows.width[..., None, None] + rows.widths.unsqueeze(-2) + rows.copy_widths
        self._shifts = rows.shifts.unsqueeze(-2) + rows.copy_shifts
        self._mean = like + rows.slopes * (like - rows.centre)
        active = change.active if levels is None else levels
        self._map = self._dependence(rows) if active & {"dependence", "mixing"} else None

    @property
    def shares(self) -> Tensor:
        """Shares of the copies and, last, of the base as it is, `(..., 1, C + 1)`."""
        return self._shares.exp()

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether draws carry gradients to the base."""
        return self.base.has_rsample

    @property
    def support(self) -> Any:
        """All points; those outside of the support of every copy have density 0."""
        return constraints.real_vector

    def expand(self, batch_shape: Shape, _instance: Any = None) -> "Copies":
        """Return the same mixture with the rows broadcast; a change of a stack keeps its stack."""
        shape, dim, change = torch.Size(batch_shape), self.event_shape[0], self.change
        if change.width.shape == self.batch_shape:  # of each row
            rank = change.width.dim()
            change = Change(*(part.expand(*shape, *part.shape[rank:]) for part in change))
        mean, sd, correlations = self.moments
        moments = Moments(
            mean.expand(*shape, dim), sd.expand(*shape, dim), correlations.expand(*shape, dim, dim)
        )
        return Copies(self.base.expand(shape), change, moments)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-density at `(*sample_shape, *batch_shape, D)`."""
        standard = self._standard(value, self._mean)
        parts = []
        for c in range(self.change.copies):
            inner = (standard - self._shifts[..., c, :]) * (-self._widths[..., c, :]).exp()
            volume = self._widths[..., c, :].sum(-1)
            if self._map is not None:
                inner = torch.linalg.solve(self._map, inner.unsqueeze(-1)).squeeze(-1)
                volume = volume + torch.linalg.slogdet(self._map).logabsdet
            points = self.moments.mean + self.moments.sd * inner
            parts.append(self._shares[..., c] - volume + supported_log_prob(self.base, points))
        if self._shares.shape[-1] > self.change.copies:
            parts.append(self._shares[..., -1] + supported_log_prob(self.base, value))
        # A value outside the support of every copy gets no gradient, rather than NaN.
        density = torch.logsumexp(torch.stack(parts).clamp_min(_NOWHERE), 0)
        return torch.where(density > 0.5 * _NOWHERE, density, -torch.inf)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        """Draw without gradients: `(*sample_shape, *batch_shape, D)`."""
        with torch.no_grad():
            return self._moved(self.base.sample(torch.Size(sample_shape)))

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        """Draw with gradients to the base, where it has them."""
        return self._moved(self.base.rsample(torch.Size(sample_shape)))

    def place(self, points: Tensor, chosen: Tensor) -> Tensor:
        """Move points of the base `(S, *batch_shape, D)` into the copies chosen for them."""
        standard = self._standard(points, self.moments.mean)
        dim = self.event_shape[0]
        index = chosen.clamp(max=self.change.copies - 1)[..., None, None]
        index = index.expand(*chosen.shape, 1, dim)

        def of_copy(part: Tensor) -> Tensor:
            wide = part.expand(*chosen.shape, *part.shape[-2:])
            return wide.gather(-2, index).squeeze(-2)

        if self._map is not None:
            standard = (self._map @ standard.unsqueeze(-1)).squeeze(-1)
        inner = of_copy(self._widths).exp() * standard
        moved = self._mean + self.moments.sd * (inner + of_copy(self._shifts))
        return torch.where((chosen == self.change.copies).unsqueeze(-1), points, moved)

    def allocate(self, n: int, noise: Noise) -> Tensor:
        """Copies of n draws, `(n, *batch_shape)`: each gets its share up to one draw."""
        shape = self.batch_shape
        keys = row_uniform(n + 1, shape, like=self.moments.mean, noise=noise).expand(n + 1, *shape)
        position = (keys[:n].argsort(0).argsort(0) + keys[n]) / n
        edges = self._shares.exp().cumsum(-1)[..., :-1].expand(*shape, -1)
        return (position.unsqueeze(-1) >= edges).sum(-1)

    def differentiable_draws(self, n: int, noise: Noise) -> Draws:
        """Weighted draws whose averages have the gradient of the change."""
        points = draw(self.base, n, generator=noise).points
        with torch.no_grad():
            chosen = self.allocate(n, noise)
        share = self._shares.exp()
        ratio = (share / (n * share.detach())).expand(*self.batch_shape, -1)
        weights = ratio.expand(n, *ratio.shape).gather(-1, chosen.unsqueeze(-1)).squeeze(-1)
        return Draws(self.place(points, chosen), weights)

    def _moved(self, points: Tensor) -> Tensor:
        flat = points.reshape(-1, *self.batch_shape, *self.event_shape)
        shares = (
            self._shares.exp().expand(*self.batch_shape, -1).reshape(-1, self._shares.shape[-1])
        )
        chosen = torch.multinomial(shares, len(flat), replacement=True).mT
        return self.place(flat, chosen.reshape(len(flat), *self.batch_shape)).reshape(points.shape)

    def _standard(self, points: Tensor, mean: Tensor) -> Tensor:
        """In standard units; a target that does not vary keeps its own."""
        sd = self.moments.sd
        return (points - mean) / torch.where(sd > 0, sd, 1)

    def _dependence(self, change: Change) -> Tensor:
        """B T in standard units, `(..., D, D)`."""
        correlations = self.moments.correlations
        axes = symmetric_eigen(correlations.detach())[1]
        stretch = axes.mT @ (change.directions.exp().unsqueeze(-1) * axes)
        widths = _widths_of(stretch, correlations)
        unit = stretch / widths
        mixed = change.blend @ unit
        return widths * mixed / _widths_of(mixed, correlations)


def _widths_of(matrix: Tensor, correlations: Tensor) -> Tensor:
    """Standard deviations of a linear map of variables with these correlations, as a column."""
    square = ((matrix @ correlations) * matrix).sum(-1, keepdim=True)
    return torch.where(square > 0, square, 1).sqrt()
