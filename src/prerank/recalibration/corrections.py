r"""The law of PITs, estimated from few rows and only as far as they show it.

A PIT is looked at on the normal scale, :math:`w = \Phi^{-1}(u)`: standard normal where the
predictor is calibrated, and with room for tails that are far from it. A `Correction` is an
increasing map A with A(w) standard normal, so that the PIT has

.. math:: G(u) = \Phi\big(A(\Phi^{-1}(u))\big), \qquad
          g(u) = \frac{\varphi(A(w)) \, A'(w)}{\varphi(w)}.
"""

import itertools
from dataclasses import dataclass, field

import torch
from torch import Tensor

from prerank.inputs import as_generator

__all__ = ["Correction", "extend", "fit_correction", "interpolate"]

_KNOTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48)
_FOLDS = 10
_ROWS_PER_KNOT = 10
_STEEPEST = 20.0
_LOWEST = -3.5  # score that one PIT in 4,000 is below
_MARGIN = 1.0  # standard errors by which a correction has to beat none


def _identity() -> Tensor:
    return torch.tensor([0.0, 1.0], dtype=torch.float64)


@dataclass(frozen=True)
class Correction:
    """An increasing, piecewise linear map of normal scores; by default it changes nothing.

    Args:
        nodes: ascending, `(L,)`, in float64.
        values: A at the nodes, ascending.

    Example:
        >>> g = torch.Generator().manual_seed(0)
        >>> wide = torch.randn(500, generator=g, dtype=torch.float64)
        >>> fit_correction(wide, generator=0).is_identity
        True
        >>> half = fit_correction(0.5 * wide, generator=0)
        >>> value, _ = half.forward(torch.tensor([0.5], dtype=torch.float64))
        >>> bool((value - 1).abs() < 0.1)
        True
    """

    nodes: Tensor = field(default_factory=_identity)
    values: Tensor = field(default_factory=_identity)

    @property
    def is_identity(self) -> bool:
        """Whether nothing is changed."""
        return torch.equal(self.nodes, self.values)

    @property
    def highest_knot(self) -> float:
        """Score beyond which A rests on no rows."""
        return float(self.nodes[-2])

    @property
    def reach(self) -> float:
        """How far down the scores go that nearly all PITs have, as a positive number."""
        return max(1.0, -float(self.inverse(self.nodes.new_tensor([_LOWEST]))))

    def forward(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """A(w) and log A'(w)."""
        value, slope = interpolate(w, self.nodes.to(w), self.values.to(w))
        return value, slope.log()

    def inverse(self, w: Tensor) -> Tensor:
        """The score that A maps to w."""
        return interpolate(w, self.values.to(w), self.nodes.to(w))[0]

    def log_ratio(self, w: Tensor) -> Tensor:
        """Log g, the log-density of the PIT at the normal score w."""
        value, log_slope = self.forward(w)
        return 0.5 * (w.square() - value.square()) + log_slope


def fit_correction(w: Tensor, *, generator: torch.Generator | int | None = None) -> Correction:
    r"""Estimate the correction of PITs, or none.

    A goes through k quantiles: the scores below which shares :math:`\Phi(t_j)` of the rows lie are
    sent to :math:`t_j`, evenly spaced. Beyond the outer knots A goes on as a straight line, whose
    slope may be kept at 1 or less, so that no tail gets lighter than it was. The likelihood of rows
    left out (ten folds) chooses k and whether the slope is kept, and nothing is changed unless the
    best choice gains more than one standard error over no correction.

    Args:
        w: normal scores of the PITs, `(n,)`, in float64.
        generator: source of the folds.
    """
    n = len(w)
    source = as_generator(generator, "folds")
    device = "cpu" if source is None else source.device
    fold = torch.randperm(n, generator=source, device=device).to(w.device) % _FOLDS
    counts = [k for k in _KNOTS if k * _ROWS_PER_KNOT <= n]
    gains = {}
    for choice in itertools.product(counts, (1.0, _STEEPEST)):
        gain = torch.empty_like(w)
        for held in (fold == i for i in range(_FOLDS)):
            gain[held] = _through_quantiles(w[~held], *choice).log_ratio(w[held])
        gains[choice] = gain
    best = max(gains, key=lambda choice: float(gains[choice].mean()))
    error = gains[best].std() / n**0.5
    if not bool(gains[best].mean() > _MARGIN * error):
        return Correction()
    return _through_quantiles(w, *best)


def _through_quantiles(w: Tensor, knots: int, steepest: float) -> Correction:
    end = torch.special.ndtri(w.new_tensor(1 - 1 / (4 * knots)))
    target = torch.linspace(-1, 1, knots, dtype=w.dtype, device=w.device) * end
    at = torch.quantile(w, torch.special.ndtr(target))
    # Equal scores, such as those of ties, make one knot.
    apart = torch.ones_like(at, dtype=torch.bool)
    apart[1:] = at.diff() > target.diff() / _STEEPEST
    at, target = at[apart], target[apart]
    slopes = target.diff() / at.diff() if len(at) > 1 else torch.ones_like(at)
    low, high = slopes.clamp_max(steepest)[[0, -1]]
    return Correction(*extend(at, target, low, high))


def interpolate(
    x: Tensor, nodes: Tensor, values: Tensor, *, right: bool = True
) -> tuple[Tensor, Tensor]:
    r"""Evaluate piecewise linear functions and their slopes.

    .. math:: v(x) = v_l + \frac{v_{l+1} - v_l}{x_{l+1} - x_l} (x - x_l),
              \qquad x_l \le x < x_{l+1},

    continued beyond the outer nodes with the outer slopes.

    Args:
        x: `(..., *rows)`.
        nodes: ascending, `(*rows, L)` or `(L,)`.
        values: `(*rows, L)` or `(L,)`.
        right: where several nodes coincide with x, take the last of them, else the first.

    Returns:
        Values and slopes, `(..., *rows)`.

    Example:
        >>> nodes = torch.tensor([[0.0, 1.0, 2.0]])
        >>> interpolate(torch.tensor([1.5]), nodes, nodes.square())
        (tensor([2.5000]), tensor([3.]))
    """
    size = max(nodes.dim(), values.dim()) - 1
    lead, rows = x.shape[: x.dim() - size], x.shape[x.dim() - size :]
    at = x.reshape(-1, *rows).movedim(0, -1).contiguous()  # (*rows, S)
    nodes = nodes.expand(*rows, -1).contiguous()
    values = values.expand(*rows, -1)
    index = torch.searchsorted(nodes, at, right=right).clamp(1, nodes.shape[-1] - 1)
    left, start = nodes.gather(-1, index - 1), values.gather(-1, index - 1)
    gap = (nodes.gather(-1, index) - left).clamp_min(torch.finfo(nodes.dtype).tiny)
    slope = (values.gather(-1, index) - start) / gap
    value = start + slope * (at - left)
    shape = (*lead, *rows)
    return value.movedim(-1, 0).reshape(shape), slope.movedim(-1, 0).reshape(shape)


def extend(
    nodes: Tensor, values: Tensor, low: Tensor | float, high: Tensor | float
) -> tuple[Tensor, Tensor]:
    """Add a node on either side, so that the function goes on with given slopes.

    Args:
        nodes: `(..., L)`.
        values: `(..., L)`.
        low: slope below the first node, `(..., 1)`.
        high: slope above the last, `(..., 1)`.
    """
    first, last = nodes[..., :1], nodes[..., -1:]
    below, above = values[..., :1] - low, values[..., -1:] + high
    return (torch.cat([first - 1, nodes, last + 1], -1), torch.cat([below, values, above], -1))
