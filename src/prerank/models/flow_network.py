"""Conditional spline flows, of zuko's splines."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Independent, Normal, Transform, constraints

from prerank import defaults
from prerank.errors import InputError
from prerank.extras import library
from prerank.inputs import as_count
from prerank.models.base import ModuleNetwork
from prerank.models.flow_distribution import FlowDistribution
from prerank.moved import warn_of_end

__all__ = ["FlowNetwork"]

_SPLINE_SLOPE = 1e-2


@dataclass(eq=False)
class FlowNetwork(ModuleNetwork):
    r"""Triangular flow: a spline for each target, from a network that sees those before it.

    .. math:: z_d = s_d(a_d y_d + b_d), \qquad (a_d, b_d, s_d) = g_d(x, y_1, \dots, y_{d-1}),
              \qquad z \sim N(0, I),

    with monotone rational-quadratic splines :math:`s_d` of [-5, 5] to itself and the identity
    outside. The densities of all targets given those before them, and so of all together, can take
    any shape that such splines can. A spline alone could not move what lies outside its range, and
    standardised targets do lie there where tails are heavy: here the location and the scale come
    first, so a spline bends what has the size of a standard normal, and tails are those of a normal
    with a learned scale.

    A sample costs as much as a density: one pass through the network of each target. Runs cannot
    be stacked.

    Args:
        n_inputs: L.
        n_targets: D.
        bins: of each spline.
        hidden: widths of the hidden layers of each network.
        scale_floor: least scale 1 / a, in units of the standardised targets; in places, splines
            make a density narrower still, by a factor of about a thousand at most.

    Example:
        >>> network = FlowNetwork(n_inputs=3, n_targets=2, hidden=(8,))
        >>> dist = network(network.initial(0)[None], torch.zeros(1, 10, 3))
        >>> dist.batch_shape, dist.rsample((5,)).shape
        (torch.Size([1, 10]), torch.Size([5, 1, 10, 2]))
    """

    n_inputs: int
    n_targets: int
    bins: int = 8
    hidden: tuple[int, ...] = (64, 64)
    scale_floor: float = defaults.SCALE_FLOOR

    def __post_init__(self) -> None:
        """Check the sizes, and that there is zuko."""
        for name in ("n_inputs", "n_targets"):
            as_count(getattr(self, name), name, minimum=1)
        as_count(self.bins, "bins", minimum=2)
        for width in self.hidden:
            as_count(width, "hidden", minimum=1)
        if not 0 < self.scale_floor < 1:
            raise InputError(f"scale_floor must lie between 0 and 1, got {self.scale_floor}")
        library("zuko.transforms", "a flow")
        self._build = self._flow  # called when it is needed, and not to know how large it is

    @property
    def n_parameters(self) -> int:
        """P, by arithmetic: a file may name sizes that no memory holds."""
        widths = [*self.hidden, sum(self._outputs)]
        layers = sum((fan_in + 1) * fan_out for fan_in, fan_out in pairwise(widths))
        before = self.n_targets * (self.n_targets - 1) // 2
        first = self.n_targets * (self.n_inputs + 1) + before
        return first * widths[0] + self.n_targets * layers

    def distribution(self, theta: Tensor, x: Tensor) -> FlowDistribution:
        """Predict with parameters `(P,)` for inputs `(N, L)`, to summarise and draw from."""
        with torch.no_grad():
            flow: Any = self.module(theta.detach())(x)
        unit = x.new_zeros(self.n_targets), x.new_ones(self.n_targets)
        return FlowDistribution(flow.transform, len(x), *unit)

    def law(self, theta: Tensor, x: Tensor) -> FlowDistribution:
        """Deprecated name of `distribution`."""
        warn_of_end("FlowNetwork.law", "use distribution")
        return self.distribution(theta, x)

    @property
    def _outputs(self) -> list[int]:
        """Sizes of the parts of what is predicted for a target: the map, and its spline."""
        return [1, 1, self.bins, self.bins, self.bins - 1]

    def _flow(self) -> nn.Module:
        sizes = self.hidden, self._outputs
        return _Flow(
            [_Conditioner(self.n_inputs, d, *sizes) for d in range(self.n_targets)],
            self.scale_floor,
        )


class _Conditioner(nn.Module):
    """Network of the inputs and of the d targets before one, to the parameters of its map."""

    def __init__(
        self, n_inputs: int, n_before: int, hidden: Sequence[int], outputs: list[int]
    ) -> None:
        super().__init__()
        self.outputs = outputs
        widths = [*hidden, sum(outputs)]
        self.of_inputs = nn.Linear(n_inputs, widths[0])
        self.of_targets = nn.Linear(n_before, widths[0], bias=False) if n_before else None
        layers = [part for pair in pairwise(widths) for part in (nn.ReLU(), nn.Linear(*pair))]
        self.others = nn.Sequential(*layers)

    def forward(self, share: Tensor, before: Tensor) -> tuple[Tensor, ...]:
        """Parameters from `of_inputs` of each row, and the targets `(..., d)` before."""
        value = share if self.of_targets is None else share + self.of_targets(before)
        shift, scale, *spline = self.others(value).split(self.outputs, -1)
        return shift.squeeze(-1), scale.squeeze(-1), *spline


class _Flow(nn.Module):
    """From inputs `(N, L)` to distributions of the targets."""

    def __init__(self, conditioners: Sequence[_Conditioner], floor: float) -> None:
        super().__init__()
        self.conditioners = nn.ModuleList(conditioners)
        self.floor = floor

    def forward(self, x: Tensor) -> Distribution:
        zero = x.new_zeros(*x.shape[:-1], len(self.conditioners))
        # Without checks: NaNs of a run that diverges are the trainer's to see.
        normal = Normal(zero, torch.ones_like(zero), validate_args=False)
        base = Independent(normal, 1, validate_args=False)
        triangular = _Triangular(self.conditioners, x, self.floor)
        flow: Distribution = _zuko("distributions").NormalizingFlow(triangular, base)
        return flow


class _Triangular(Transform):
    """The map from targets to normals at given inputs."""

    domain = constraints.real_vector
    codomain = constraints.real_vector
    bijective = True

    def __init__(self, conditioners: Any, x: Tensor, floor: float) -> None:
        super().__init__()
        self.conditioners = conditioners
        self.floor = floor
        self.shares = [one.of_inputs(x) for one in conditioners]  # once, for all samples of a row

    def call_and_ladj(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Image and log-determinant, as zuko's flows ask for them."""
        mapped = [self._map(d, x[..., :d]).call_and_ladj(x[..., d]) for d in range(x.shape[-1])]
        images, jacobians = zip(*mapped, strict=True)
        return torch.stack(images, -1), torch.stack(jacobians, -1).sum(-1)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.call_and_ladj(x)[1]

    def _call(self, x: Tensor) -> Tensor:
        return self.call_and_ladj(x)[0]

    def _inverse(self, y: Tensor) -> Tensor:
        targets: list[Tensor] = []
        for d in range(y.shape[-1]):
            before = torch.stack(targets, -1) if targets else y[..., :0]
            targets.append(self._map(d, before).inv(y[..., d]))
        return torch.stack(targets, -1)

    def _map(self, d: int, before: Tensor) -> Any:
        """An affine map, then a spline, of one target."""
        shift, scale, *spline = self.conditioners[d](self.shares[d], before)
        maps = _zuko("transforms")
        return maps.ComposedTransform(
            maps.MonotonicAffineTransform(shift, scale, slope=self.floor),
            maps.MonotonicRQSTransform(*spline, slope=_SPLINE_SLOPE),
        )


@cache
def _zuko(part: str) -> Any:
    """A module of zuko; every map of every step asks for one."""
    return library(f"zuko.{part}", "a flow")
