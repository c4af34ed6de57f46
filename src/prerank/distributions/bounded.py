"""Distributions within bounds: increasing maps take the real line to the range of a target."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite, log
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, MixtureSameFamily, Normal, constraints

from prerank.distributions.affine import affine, of_targets
from prerank.distributions.cells import Cells
from prerank.distributions.draws import draw_points, forked_state
from prerank.distributions.ensemble import Ensemble
from prerank.distributions.joint import JointDistribution
from prerank.distributions.noise import Noise
from prerank.distributions.single_margins import margin
from prerank.errors import InputError, InputTypeError, ShapeError
from prerank.inputs import Shape, as_generator, check_distribution

__all__ = ["Bounded", "Link", "LinkedMargin", "bounded", "link_columns"]

_CUTS = (-16.0, -8.0, -4.0, 0.0, 4.0, 8.0, 16.0)  # between which the maps are smooth
_NODES = 32  # of the quadrature between two cuts
_REACH = 9.0  # standard deviations, beyond which a normal has no mass in float64
_BLOCK_VALUES = 2**20


@dataclass(frozen=True)
class Link:
    r"""Increasing map h from the real line to the values between bounds a and b, and its inverse g.

    .. math:: h(z) = a + \frac{b - a}{1 + e^{-z}}, \qquad
              h(z) = a + s \log(1 + e^z), \qquad h(z) = b - s \log(1 + e^{-z})

    for two bounds, a lower one and an upper one. Far from a single bound the map is a straight
    line, so that tails stay as they are.

    Args:
        lower: a; minus infinity for none.
        upper: b; infinity for none.
        scale: s, the distance from a single bound within which it is felt.

    Example:
        >>> share = Link(0.0, 100.0)
        >>> share.values(torch.tensor([-999.0, 0.0, 999.0])), share.points(torch.tensor([50.0]))
        (tensor([  0.,  50., 100.]), tensor([0.]))
    """

    lower: float = -inf
    upper: float = inf
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not self.lower < self.upper or not (isfinite(self.lower) or isfinite(self.upper)):
            raise InputError(f"bounds must be two increasing numbers, or one, got {self}")
        if isfinite(self.lower) and isfinite(self.upper) and not isfinite(self.upper - self.lower):
            raise InputError(f"bounds are too far apart: leave one out, got {self}")
        if not (self.scale > 0 and isfinite(self.scale)):
            raise InputError(f"scale must be positive, got {self.scale}")

    def values(self, z: Tensor) -> Tensor:
        """Targets h(z), of any shape."""
        zero = torch.zeros_like(z)
        if self.upper == inf:
            y = self.lower + self.scale * torch.logaddexp(z, zero)
        elif self.lower == -inf:
            y = self.upper - self.scale * torch.logaddexp(-z, zero)
        else:
            y = self.lower + (self.upper - self.lower) * torch.sigmoid(z)
        return y.clamp(self.lower, self.upper)  # rounding may go beyond them

    def points(self, y: Tensor) -> Tensor:
        """Points g(y) of the line; those of the nearest numbers inside for a bound and beyond."""
        y = self._inside(y)
        if self.upper == inf:
            return _softplus_inverse(self._distance(y))
        if self.lower == -inf:
            return -_softplus_inverse(self._distance(y))
        return (y - self.lower).log() - (self.upper - y).log()

    def log_slope(self, y: Tensor) -> Tensor:
        r"""Logarithm of :math:`g'(y)`, by which densities of y and of z differ."""
        y = self._inside(y)
        if isfinite(self.lower) and isfinite(self.upper):
            width = log(self.upper - self.lower)
            return width - (y - self.lower).log() - (self.upper - y).log()
        return -(-torch.expm1(-self._distance(y))).log() - log(self.scale)

    def moved(self, loc: float, scale: float) -> "Link":
        """The map of z to `loc + scale * h(z)`."""
        lower, upper = (loc + scale * end for end in (self.lower, self.upper))
        return Link(lower, upper, scale * self.scale)

    def as_json(self) -> dict[str, float | None]:
        """What `from_json` takes: None for a bound that there is not."""
        ends = {"lower": self.lower, "upper": self.upper}
        known = {name: end if isfinite(end) else None for name, end in ends.items()}
        return {**known, "scale": self.scale}

    @classmethod
    def from_json(cls, stored: object) -> "Link":
        """Read what `as_json` gave."""
        keys = {"lower", "upper", "scale"}
        if not isinstance(stored, dict) or set(stored) != keys:
            raise InputError(f"cannot read the bounds of a target: got {stored!r}")
        if any(type(value) not in (int, float, type(None)) for value in stored.values()):
            raise InputError(f"cannot read the bounds of a target: got {stored!r}")
        low, high, scale = (stored[key] for key in ("lower", "upper", "scale"))
        return cls(-inf if low is None else low, inf if high is None else high, scale or 0.0)

    def _distance(self, y: Tensor) -> Tensor:
        """From the single bound, in scales; never 0, which has no point on the line."""
        distance = y - self.lower if self.upper == inf else self.upper - y
        return (distance / self.scale).clamp_min(torch.finfo(y.dtype).tiny)

    def _inside(self, y: Tensor) -> Tensor:
        ends = y.new_tensor([self.lower, self.upper])
        least, most = torch.nextafter(ends, ends.flip(0)).tolist()
        return y.clamp(least, most)


class Bounded(JointDistribution):
    r"""Distribution of :math:`(h_1(z_1), \dots, h_D(z_D))` for z from a distribution on the line.

    .. math:: \log f(y) = \log f_z(g(y)) + \sum_d \log g_d'(y_d), \qquad
              F_d(y_d) = F_{z, d}(g_d(y_d)).

    No draw, quantile or mean lies beyond a bound. Densities are exact for every base; marginal PITs
    and quantiles are where the base has them. Means and variances are integrals over one
    target, by Gauss-Legendre quadrature. All others come from draws.

    Args:
        base: distribution of z, `batch_shape (..., N)`, `event_shape (D,)`.
        links: for each target its `Link`, or None where it has no bounds.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> base = MultivariateNormal(torch.zeros(1, 2), torch.eye(2))
        >>> dist = Bounded(base, [Link(0.0, 100.0), None])
        >>> dist.sample((100,), generator=0)[..., 0].aminmax()
        torch.return_types.aminmax(
        min=tensor(5...),
        max=tensor(9...))
        >>> dist.mean
        tensor([[50.,  0.]])
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}

    def __init__(self, base: Distribution, links: Sequence[Link | None]) -> None:
        if isinstance(base, Ensemble):
            raise InputTypeError("base is an Ensemble: use Rounding for its members")
        if len(links) != check_distribution(base).event_shape[0]:
            raise ShapeError(
                f"links has {len(links)} entries, but base has {base.event_shape[0]} targets"
            )
        if not any(links):
            raise InputTypeError("links has no Link: the base itself is the distribution")
        self.base, self.links = base, tuple(links)
        self.has_rsample = base.has_rsample
        super().__init__(base.batch_shape, base.event_shape, validate_args=False)

    @property
    def support(self) -> constraints.Constraint:
        """All points between the bounds."""
        ends = [(-inf, inf) if link is None else (link.lower, link.upper) for link in self.links]
        return constraints.independent(_Between(*zip(*ends, strict=True)), 1)

    def expand(self, batch_shape: Shape, _instance: Any = None) -> "Bounded":
        """Return the same distribution with batch axes broadcast to `batch_shape`."""
        return Bounded(self.base.expand(torch.Size(batch_shape)), self.links)

    def values(self, z: Tensor) -> Tensor:
        """Targets of points of the base, `(..., D)`; quantiles of each target move likewise."""
        return link_columns(z, self.links)

    def points(self, y: Tensor) -> Tensor:
        """Points of the base for targets `(..., D)`."""
        return torch.stack(
            [y if link is None else link.points(y) for link, y in self._columns(y)], -1
        )

    def rsample(
        self, sample_shape: Shape = (), *, generator: torch.Generator | int | None = None
    ) -> Tensor:
        """Draw `(*sample_shape, *batch_shape, D)` with gradients, if the base does."""
        with forked_state(as_generator(generator, f"sample {tuple(sample_shape)}")):
            return self.values(self.base.rsample(torch.Size(sample_shape)))

    def sample(
        self, sample_shape: Shape = (), *, generator: torch.Generator | int | None = None
    ) -> Tensor:
        """Draw `(*sample_shape, *batch_shape, D)`."""
        source = as_generator(generator, f"sample {tuple(sample_shape)}")
        with torch.no_grad(), forked_state(source):
            return self.values(self.base.sample(torch.Size(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-density at `(*sample_shape, *batch_shape, D)`; minus infinity beyond a bound."""
        slopes = [link.log_slope(y) for link, y in self._columns(value) if link is not None]
        density = self.base.log_prob(self.points(value)) + torch.stack(slopes).sum(0)
        return torch.where(self.support.check(value), density, -torch.inf)

    @property
    def mean(self) -> Tensor:
        """Mean of each target, `(*batch_shape, D)`, where the margins of the base are known."""
        return torch.stack([own.mean for own in self._margins()], -1)

    @property
    def variance(self) -> Tensor:
        """Variance of each target, `(*batch_shape, D)`, likewise."""
        return torch.stack([own.variance for own in self._margins()], -1)

    def _margins(self) -> Iterator[Distribution]:
        return (margin(self, d) for d in range(len(self.links)))

    def _columns(self, y: Tensor) -> Iterator[tuple[Link | None, Tensor]]:
        return zip(self.links, y.unbind(-1), strict=True)


class LinkedMargin(Distribution):
    """Distribution of one target h(z), from the mixture of normals of z.

    Args:
        base: of z, a normal or a mixture of normals.
        link: h.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}

    def __init__(self, base: Distribution, link: Link) -> None:
        self.base, self.link = base, link
        super().__init__(base.batch_shape, validate_args=False)

    def cdf(self, value: Tensor) -> Tensor:
        """P(Y <= y)."""
        cdf = self.base.cdf(self.link.points(value))
        return torch.where(
            value < self.link.lower, 0, torch.where(value >= self.link.upper, 1, cdf)
        )

    @property
    def mean(self) -> Tensor:
        """Mean, `batch_shape`."""
        return self.moments(None)[0]

    @property
    def variance(self) -> Tensor:
        """Variance, `batch_shape`."""
        return self.moments(None)[1]

    def moments(self, cells: Cells | None) -> tuple[Tensor, Tensor]:
        """Mean and variance of T(h(z)) for the map T of some cells, or of h(z)."""
        kinks: list[float] = []
        if cells is not None:
            edges = torch.cat([cells.lower, cells.upper])
            kinks = self.link.points(edges[edges.isfinite()]).tolist()

        def value(z: Tensor) -> Tensor:
            y = self.link.values(z)
            return y if cells is None else cells.snap(y)

        if isinstance(self.base, MixtureSameFamily):
            normal: Any = self.base.component_distribution
            loc, scale, probs = normal.loc, normal.scale, self.base.mixture_distribution.probs
        else:
            assert isinstance(self.base, Normal)  # what margin gives
            loc, scale = self.base.loc.unsqueeze(-1), self.base.scale.unsqueeze(-1)
            probs = torch.ones_like(loc)
        parts = torch.broadcast_tensors(loc, scale, probs)
        flat = torch.stack([part.reshape(-1, part.shape[-1]) for part in parts])
        blocks = flat.split(max(1, _BLOCK_VALUES // (_NODES * flat.shape[-1])), 1)
        cuts = sorted({*_CUTS, *kinks})
        found = [torch.stack(_moments(*block.unbind(), value=value, cuts=cuts)) for block in blocks]
        mean, variance = torch.cat(found, -1).reshape(2, *loc.shape[:-1])
        return mean, variance


def link_columns(z: Tensor, links: Sequence[Link | None]) -> Tensor:
    """Points of the line `(..., D)` as targets, target by target."""
    columns = zip(links, z.unbind(-1), strict=True)
    return torch.stack([part if link is None else link.values(part) for link, part in columns], -1)


def bounded(dist: Distribution, links: Sequence[Link | None]) -> Distribution:
    """`Bounded`, or an ensemble of members within bounds."""
    if not isinstance(dist, Ensemble):
        return Bounded(dist, links)
    return Ensemble(link_columns(dist.samples, links), dist.weights)


class _Between(constraints.Constraint):
    """Numbers between bounds, which may be infinite; both belong to it."""

    def __init__(self, lower: Sequence[float], upper: Sequence[float]) -> None:
        self.lower, self.upper = lower, upper

    def check(self, value: Tensor) -> Tensor:
        """Whether each target lies there."""
        low, high = value.new_tensor(self.lower), value.new_tensor(self.upper)
        return (low <= value) & (value <= high)


@draw_points.register
def _(dist: Bounded, n: int, noise: Noise) -> Tensor:
    return dist.values(draw_points(dist.base, n, noise))


@affine.register
def _(dist: Bounded, loc: Tensor, scale: Tensor) -> Bounded:
    loc, scale = (of_targets(dist, part) for part in (loc, scale))
    free = torch.tensor([link is None for link in dist.links], device=loc.device)
    units = zip(loc.tolist(), scale.tolist(), strict=True)
    links = [link and link.moved(*unit) for link, unit in zip(dist.links, units, strict=True)]
    return Bounded(affine(dist.base, torch.where(free, loc, 0), torch.where(free, scale, 1)), links)


@margin.register
def _(dist: Bounded, target: int) -> Distribution:
    own, link = margin(dist.base, target), dist.links[target]
    return own if link is None else LinkedMargin(own, link)


def _softplus_inverse(u: Tensor) -> Tensor:
    return u + (-torch.expm1(-u)).log()


def _moments(
    loc: Tensor,
    scale: Tensor,
    probs: Tensor,
    *,
    value: Callable[[Tensor], Tensor],
    cuts: Sequence[float],
) -> tuple[Tensor, Tensor]:
    """Mean and variance of a function, smooth between cuts, of mixtures of normals `(R, K)`."""
    x, weights = (
        torch.from_numpy(part).to(loc) for part in np.polynomial.legendre.leggauss(_NODES)
    )
    x, weights = x[:, None, None], weights[:, None, None]
    edges = [((cut - loc) / scale).clamp(-_REACH, _REACH) for cut in (-inf, *cuts, inf)]
    parts = []
    for low, high in pairwise(edges):
        half = (high - low) / 2
        t = low + half * (1 + x)
        mass = probs * half * weights * torch.exp(-t.square() / 2) / (2 * torch.pi) ** 0.5
        parts.append((mass, value(loc + scale * t)))
    mean = sum((mass * y).sum((0, 2)) for mass, y in parts)
    centred = [(mass, (y - torch.as_tensor(mean)[:, None]).square()) for mass, y in parts]
    variance = sum((mass * square).sum((0, 2)) for mass, square in centred)
    return torch.as_tensor(mean), torch.as_tensor(variance)
