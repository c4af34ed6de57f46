"""Points that reach where a predictive density is low: for its deep tails, and to draw from."""

import math
from functools import singledispatch
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution, MultivariateNormal

from prerank.distributions import GaussianMixture, draw
from prerank.distributions.densities import whitened_columns
from prerank.distributions.noise import standard_normal, standard_uniform
from prerank.numerics.matrices import row_norms
from prerank.preranks import HDR
from prerank.recalibration.marginal import MarginalRecalibrated

__all__ = ["Pool", "Proposal"]

_REACH = 14.0
_MOMENT_DRAWS = 256
_BLOCK_VALUES = 2**24  # draws times rows, components and targets at a time


class Pool(NamedTuple):
    """Points of a proposal.

    Attributes:
        points: `(S, N, D)`.
        log_components: log-density of f and of the other distributions at the points,
            `(J, S, N)`, in float64.
        log_q: log-density of the proposal there, `(S, N)`.
    """

    points: Tensor
    log_components: Tensor
    log_q: Tensor

    @property
    def log_density(self) -> Tensor:
        """Log f, `(S, N)`."""
        return self.log_components[0]

    def coefficients(self, log_h: Tensor) -> Tensor:
        r"""Write h as a sum of the distributions; the sum of the coefficients is its integral.

        .. math:: \int h = \sum_j \beta_j, \qquad
                  \beta = \arg\min \sum_s \Big(\frac{h}{q} - \sum_j \beta_j \frac{f_j}{q}\Big)^2.

        Every distribution integrates to one, and the residuals to 0, since q is itself a sum of the
        distributions: the closer h is to such a sum, the smaller the error of its integral (control
        variates; Owen and Zhou, 2000).

        Args:
            log_h: `(S, N)`, of a size that its exponential does not overflow.

        Returns:
            `(N, J)`.
        """
        columns = (self.log_components - self.log_q).exp()  # at most 1 / share
        ratio = (log_h - self.log_q).exp()
        gram = torch.einsum("jsn,ksn->njk", columns, columns)
        moments = torch.einsum("jsn,sn->nj", columns, ratio)
        # Laws that hardly differ on the points would make the system singular.
        ridge = 1e-9 * gram.diagonal(dim1=-2, dim2=-1).mean(-1)
        eye = torch.eye(len(columns), dtype=gram.dtype, device=gram.device)
        return torch.linalg.solve(gram + ridge[:, None, None] * eye, moments)


class Proposal:
    r"""A distribution f, and wider and narrower Gaussian ones with about the same level sets.

    .. math:: q = \tfrac12 f + \sum_j p_j f_j, \qquad f_j \approx c_j f^{1 / s_j^2}, \qquad
              s_j = \big(1 + \sqrt{2 / D}\big)^j, \quad j = -2, -1, 1, 2, \dots

    Where the components of a Gaussian mixture lie apart, a power of it is a mixture again, with
    factors :math:`s L_k` and weights in proportion to
    :math:`\pi_k^{1 / s^2} |L_k|^{1 - 1 / s^2}`: the wide components have the low densities to
    themselves. That is :math:`f_j`. For a distribution that is not a mixture, a Gaussian one near
    it stands in: moved with the margins where these were recalibrated, else a normal with its
    moments, as found from draws. Neighbours overlap: the distance of a normal draw from its centre
    varies by :math:`1 / \sqrt{2 D}` of itself.

    Args:
        base: f, `batch_shape (N,)`, with `log_prob`.
        reach: how far out the widest distribution has to go, as the normal score of what f has
            beyond.
        generator: source of the draws for the moments.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> base = MultivariateNormal(torch.zeros(3, 2), torch.eye(2))
        >>> pool = Proposal(base, generator=None).draw(400, generator=None)
        >>> pool.points.shape, bool(pool.points.norm(dim=-1).amax() > 5)
        (torch.Size([400, 3, 2]), True)
    """

    def __init__(
        self, base: Distribution, *, reach: float = _REACH, generator: torch.Generator | None
    ) -> None:
        self.gaussian = _gaussian(base, generator)
        self.base = self.gaussian if isinstance(base, MultivariateNormal) else base  # faster so
        dim = base.event_shape[0]
        step = 1 + (2 / dim) ** 0.5
        # A standard normal has a radius of about sqrt(D) + w at the score w.
        wide = math.ceil(math.log(1 + reach / dim**0.5) / math.log(step))
        factors = [1.0, step**-2, step**-1, *(step**j for j in range(1, wide + 1))]
        shares = [0.5, 0.08, 0.12, *[0.3 / wide] * wide]
        gaussian = self.gaussian
        self.factors = torch.tensor(factors).to(gaussian.loc)  # (J,)
        self._log_det = gaussian.scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)  # (N, K)
        power = self.factors.square().reciprocal().reshape(-1, 1, 1)
        powers = power * gaussian.logits + (1 - power) * self._log_det
        self._log_weights = powers.log_softmax(-1)  # (J, N, K)
        self.shares = torch.tensor(shares).to(gaussian.loc).double().expand(len(gaussian.loc), -1)
        self._inside = draw(base, 2, generator=generator).points[:1]  # the support

    def draw(
        self, n: int, *, shares: Tensor | None = None, generator: torch.Generator | None
    ) -> Pool:
        """Draw n points for each row.

        Args:
            n: S, at least 2.
            shares: of the distributions, `(N, J)`; those of q by default.
            generator: source of the draws.
        """
        weights = self.shares if shares is None else shares
        gaussian, loc, batch = self.gaussian, self.gaussian.loc, self.gaussian.batch_shape
        label, uniform = standard_uniform((2, n, *batch), like=loc, generator=generator)
        normal = standard_normal((n, *loc[:, 0].shape), like=loc, generator=generator)
        edges = weights.cumsum(-1)[:, :-1].to(label).contiguous()
        which = torch.searchsorted(edges, label.mT.contiguous(), right=True).mT  # (S, N)
        rows = torch.arange(*batch, device=which.device)
        component = gaussian.locate(uniform, self._log_weights.exp()[which, rows])
        points = gaussian.place(component, self.factors[which].unsqueeze(-1) * normal)
        if self.base is not gaussian:
            own = draw(self.base, n, generator=generator).points
            points = torch.where((which == 0).unsqueeze(-1), own, points)
        blocks = points.split(max(1, _BLOCK_VALUES // loc.numel()))
        log_components = torch.cat([self._gaussian_components(block) for block in blocks], 1)
        if self.base is not gaussian:
            log_components[0] = self.log_density(points)
        log_q = (log_components + weights.log().mT.unsqueeze(1)).logsumexp(0)
        return Pool(points, log_components, log_q)

    def log_density(self, points: Tensor) -> Tensor:
        """Log f in float64, minus infinity outside the support: `(..., N)`."""
        flat = points.reshape(-1, *points.shape[-2:])
        values = HDR().project(torch.cat([flat, self._inside.to(flat)]), self.base)
        return values[:-1, ..., 0].reshape(points.shape[:-1]).double()

    def _gaussian_components(self, points: Tensor) -> Tensor:
        """Log-densities of the mixture with each factor, `(J, S, N)`, in float64."""
        gaussian, dim = self.gaussian, points.shape[-1]
        columns = points.movedim(0, -1)
        z = whitened_columns(gaussian.loc, gaussian.scale_tril, columns)  # (N, K, D, S)
        distance = z.double().square().sum(-2)
        constant = self._log_weights - self._log_det - 0.5 * dim * math.log(2 * math.pi)
        components = [
            torch.logsumexp(c.unsqueeze(-1) - distance / (2 * s * s), -2) - dim * math.log(s)
            for c, s in zip(constant.double(), self.factors.tolist(), strict=True)
        ]
        return torch.stack(components).mT


@singledispatch
def _gaussian(base: Distribution, generator: torch.Generator | None) -> GaussianMixture:
    """A mixture that is near a distribution: here a normal with the moments of draws."""
    points = draw(base, _MOMENT_DRAWS, generator=generator).points
    centred = points - points.mean(0)
    covariance = torch.einsum("snd,sne->nde", centred, centred) / len(points)
    variance = covariance.diagonal(dim1=-2, dim2=-1)
    factor = torch.linalg.cholesky(covariance + 1e-6 * torch.diag_embed(variance))
    return _mixture_of_one(points.mean(0), factor)


@_gaussian.register
def _(base: GaussianMixture, generator: torch.Generator | None) -> GaussianMixture:
    return base


@_gaussian.register
def _(base: MultivariateNormal, generator: torch.Generator | None) -> GaussianMixture:
    return _mixture_of_one(base.loc, base.scale_tril)


@_gaussian.register
def _(base: MarginalRecalibrated, generator: torch.Generator | None) -> GaussianMixture:
    """The mixture before, its components moved and stretched as the margins were."""
    before, (change,) = _gaussian(base.base_dist, generator), base.transforms
    loc = before.loc.movedim(-2, 0)  # (K, N, D)
    spread = row_norms(before.scale_tril).movedim(-2, 0)
    stretch = (change(loc + spread) - change(loc - spread)) / (2 * spread)
    factor = stretch.movedim(0, -2).unsqueeze(-1) * before.scale_tril
    loc = change(loc).movedim(0, -2)
    return GaussianMixture(before.logits, loc, factor, validate_args=False)


def _mixture_of_one(loc: Tensor, factor: Tensor) -> GaussianMixture:
    logits = torch.zeros_like(loc[..., :1])
    return GaussianMixture(logits, loc.unsqueeze(-2), factor.unsqueeze(-3), validate_args=False)
