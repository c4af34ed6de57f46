"""Forecasts of several networks as one: a mixture with equal weights."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from prerank.distributions import GaussianMixture, affine
from prerank.distributions.joint import JointDistribution
from prerank.distributions.noise import standard_uniform
from prerank.errors import InputError
from prerank.inputs import Shape, as_generator
from prerank.models.flow_distribution import FlowDistribution, point_quantiles
from prerank.models.flow_network import FlowNetwork
from prerank.models.mixture_network import MixtureNetwork

T = TypeVar("T", bound=Distribution)

__all__ = ["FlowMixture", "forecast_each", "pooled"]


def forecast_each(
    network: MixtureNetwork | FlowNetwork, theta: Tensor, x: Tensor, loc: Tensor, scale: Tensor
) -> list[GaussianMixture] | list[FlowDistribution]:
    """Forecasts of M networks in common units, in float64 and without gradients.

    Args:
        network: the form of all networks.
        theta: their parameters, `(M, P)`.
        x: inputs, `(M, N, L)`.
        loc: where 0 of each network's targets lies in the common units, `(M, 1, D)`.
        scale: its unit in the common ones, `(M, 1, D)`.

    Example:
        >>> network = MixtureNetwork(n_inputs=3, n_targets=2)
        >>> theta = torch.stack([network.initial(seed) for seed in range(4)])
        >>> units = torch.zeros(4, 1, 2), torch.ones(4, 1, 2)
        >>> each = forecast_each(network, theta, torch.zeros(4, 10, 3), *units)
        >>> len(each), pooled(each).logits.shape
        (4, torch.Size([10, 20]))
    """
    loc, scale = loc.to(theta.device).double(), scale.to(theta.device).double()
    if isinstance(network, FlowNetwork):
        flows = [
            network.distribution(one.double(), rows.double())
            for one, rows in zip(theta, x, strict=True)
        ]
        return [
            _moved(flow, *unit) for flow, *unit in zip(flows, loc[:, 0], scale[:, 0], strict=True)
        ]
    with torch.no_grad():
        stack = network(theta, x.to(theta.dtype))
        logits, first, tril = (p.double() for p in (stack.logits, stack.loc, stack.scale_tril))
        moved = _moved(GaussianMixture(logits, first, tril, validate_args=False), loc, scale)
    parts = zip(moved.logits, moved.loc, moved.scale_tril, strict=True)
    return [GaussianMixture(*part, validate_args=False) for part in parts]


def pooled(
    forecasts: Sequence[GaussianMixture] | Sequence[FlowDistribution],
    rows: Sequence[Tensor] | None = None,
) -> Distribution:
    """The mixture of M forecasts, row by row, with equal weights.

    Args:
        forecasts: each with `batch_shape (N_m,)`.
        rows: row numbers of each, `(N_m,)` and ascending; every number occurs equally often, and
            the answer has them in ascending order. All forecasts have the same rows by default.

    Returns:
        A `GaussianMixture` with the components of all, or a `FlowMixture`.
    """
    if len(forecasts) == 1:
        return forecasts[0]
    same = rows is None or all(torch.equal(rows[0], other) for other in rows[1:])
    flows = [one for one in forecasts if isinstance(one, FlowDistribution)]
    if flows:
        if not same:
            raise InputError("flows can only be mixed where all of them forecast the same rows")
        return FlowMixture(flows)
    each = rows or [torch.arange(one.batch_shape[0]) for one in forecasts]
    numbers = torch.cat(list(each))
    order, n = numbers.argsort(stable=True), len(numbers.unique())
    parts = [
        torch.cat([getattr(one, name) for one in forecasts])[order].unflatten(0, (n, -1))
        for name in ("logits", "loc", "scale_tril")
    ]
    return GaussianMixture(*(part.flatten(1, 2) for part in parts), validate_args=False)


def _moved(dist: T, loc: Tensor, scale: Tensor) -> T:
    """In other units, where the type stays the same."""
    moved = affine(dist, loc, scale)
    assert isinstance(moved, type(dist))
    return moved


class FlowMixture(JointDistribution):
    r"""Mixture of M flows with equal weights, :math:`f(y) = \frac1M \sum_m f_m(y)`.

    Quantiles and moments are those of the members' Sobol points (see `FlowDistribution`), so each
    row's are a function of its inputs alone. The moments say where a forecast lies and how wide it
    is; where tails are heavy, they are not the exact ones.

    Args:
        members: flows of the same rows.

    Example:
        >>> from torch.distributions import AffineTransform, IndependentTransform
        >>> half = IndependentTransform(AffineTransform(0.0, 0.5), 1)
        >>> flows = [
        ...     FlowDistribution(half, 4, torch.tensor([c]), torch.ones(1)) for c in (-6.0, 6.0)
        ... ]
        >>> dist = FlowMixture(flows)
        >>> dist.quantiles([0.25])[0, 0].round(decimals=1), dist.sample((9,), generator=0).shape
        (tensor([-6.]), torch.Size([9, 4, 1]))
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    support = constraints.real_vector

    def __init__(self, members: Sequence[FlowDistribution]) -> None:
        self.members = tuple(members)
        first = self.members[0]
        super().__init__(first.batch_shape, first.event_shape, validate_args=False)

    def expand(self, batch_shape: Shape, _instance: Any = None) -> "FlowMixture":
        """Return the same mixture for `batch_shape (..., N)`."""
        return FlowMixture([member.expand(batch_shape) for member in self.members])

    @property
    def mean(self) -> Tensor:
        """Mean of the points, `(N, D)`."""
        return self.points().mean(0)

    @property
    def covariance_matrix(self) -> Tensor:
        """Covariance of the points, `(N, D, D)`."""
        points = self.points()
        centred = (points - points.mean(0)).movedim(0, -1)
        return centred @ centred.mT / len(points)

    def points(self) -> Tensor:
        """Points with equal shares of the probability, `(S, N, D)`."""
        return torch.cat([member.points() for member in self.members])

    def quantiles(self, levels: Sequence[float]) -> Tensor:
        """Quantiles of each target at levels in (0, 1): `(Q, N, D)`."""
        return point_quantiles(self.points(), levels)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-density at `(*sample_shape, *batch_shape, D)`."""
        densities = torch.stack([member.log_prob(value) for member in self.members])
        return densities.logsumexp(0) - math.log(len(self.members))

    def sample(
        self, sample_shape: Shape = (), *, generator: torch.Generator | int | None = None
    ) -> Tensor:
        """Draw `(*sample_shape, *batch_shape, D)`, without gradients."""
        source = as_generator(generator, f"sample {tuple(sample_shape)}")
        points = torch.stack([m.sample(sample_shape, generator=source) for m in self.members])
        uniform = standard_uniform(points.shape[1:-1], like=points, generator=source)
        chosen = (uniform * len(points)).long().clamp_max(len(points) - 1)
        return points.gather(0, chosen[None, ..., None].expand(1, *points.shape[1:]))[0]


@affine.register
def _(dist: FlowMixture, loc: Tensor, scale: Tensor) -> FlowMixture:
    return FlowMixture([_moved(member, loc, scale) for member in dist.members])
