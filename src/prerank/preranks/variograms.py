"""Pre-ranks of fields on a grid: variograms at given lags, and their isotropy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.errors import InputError, InputTypeError, NotApplicableError, ShapeError
from prerank.inputs import as_tensor, check_finite
from prerank.preranks.base import PreRank, require_dim

__all__ = ["Isotropy", "Variogram"]

_CHUNK_VALUES = 2**22  # points times pairs at a time


@dataclass(frozen=True, eq=False)
class Variogram(PreRank):
    r"""Minus a weighted variogram of the targets, over their variance.

    .. math:: \rho(y) = -\frac{1}{2 s_y^2} \sum_{i < j} w_{ij} |y_i - y_j|^p.

    A large T means that targets with a large weight are alike. Where all targets are equal
    (:math:`s_y^2 = 0`) T = 0, its largest value. `Variogram.at_lags` has the weights of targets
    that lie on a grid.

    Sensitive to: wrong dependence between the targets that have weights. Depends on units.

    Args:
        weights: symmetric, `(D, D)`, none negative; the diagonal is ignored.
        power: p > 0.
        standardised: False leaves the variance out; T is then sensitive to the spread too.

    Example:
        >>> grid = Variogram.at_lags([(0, 1)], shape=(2, 3))  # neighbours in a row
        >>> grid.weights[0, 1], grid.weights[0, 3]  # 1 of 4 pairs; not a pair
        (tensor(0.2500, dtype=torch.float64), tensor(0., dtype=torch.float64))
    """

    weights: Tensor
    power: float = 2.0
    standardised: bool = True
    name: ClassVar[str] = "variogram"
    homogeneous: ClassVar[bool] = True
    differentiable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Convert and check the weights."""
        weights = as_tensor(self.weights, "weights")
        check_finite(weights, "weights")
        square = weights.dim() == 2 and weights.shape[0] == weights.shape[1]
        if not square or not torch.equal(weights, weights.mT):
            raise ShapeError(
                f"variogram weights must be a symmetric matrix (D, D), got {tuple(weights.shape)}"
            )
        off_diagonal = weights.triu(1)
        if bool((off_diagonal < 0).any()) or not bool((off_diagonal > 0).any()):
            raise InputError("variogram weights must not be negative, and one must be positive")
        _check_power(self.power, self.name)
        object.__setattr__(self, "weights", weights)

    @classmethod
    def at_lags(
        cls,
        lags: Sequence[int | tuple[int, ...]],
        *,
        shape: int | tuple[int, ...],
        power: float = 2.0,
        standardised: bool = True,
    ) -> "Variogram":
        r"""Variogram at given distances, :math:`\sum_h \gamma_y(h)`.

        .. math:: \gamma_y(h) = \frac{1}{2 |G(h)|} \sum_{i \in G(h)} |y_i - y_{i+h}|^p,

        over the points G(h) of the grid from which i + h is on the grid too.

        Args:
            lags: one step or several, each an int for a line of targets and a tuple, such as
                (0, 1), for a grid.
            shape: number of targets in a line, or of rows and columns of the grid; the targets
                are in the order of `reshape(shape)`.
            power: p > 0.
            standardised: whether to divide by the variance.
        """
        sides = (shape,) if isinstance(shape, int) else tuple(shape)
        places = _places(sides)
        weights = torch.zeros(len(places), len(places), dtype=torch.float64)
        for lag in lags:
            first, second = _pairs(places, sides, (lag,) if isinstance(lag, int) else tuple(lag))
            weights.index_put_((first, second), weights.new_tensor(1 / len(first)), accumulate=True)
        # Steps h and -h have the same pairs, the other way round.
        return cls(weights + weights.mT, power, standardised)

    def check(self, dist: Distribution) -> None:
        """Raise where the weights do not fit the targets."""
        if self.standardised:
            require_dim(dist, 3, self.name, "use 'scale', 'pca' or 'copula' instead")
        dim = dist.event_shape[0]
        if len(self.weights) != dim:
            raise NotApplicableError(
                f"variogram has weights for {len(self.weights)} targets, but D = {dim}"
            )

    def project(self, pool: Tensor, dist: Distribution, weights: Tensor | None = None) -> Tensor:
        """Sum the weighted differences of every member of the pool."""
        first, second = self.weights.triu(1).nonzero(as_tuple=True)
        shares = self.weights[first, second].to(pool)
        first, second = first.to(pool.device), second.to(pool.device)

        def sums(points: Tensor) -> Tensor:
            return 0.5 * (_differences(points, first, second, self.power) * shares).sum(-1)

        total = _in_chunks(sums, pool, len(shares))
        if self.standardised:
            variance = pool.var(-1, correction=0)
            # Where all targets are equal, so is each pair: 0 over a tiny number is 0.
            total = total / variance.clamp_min(torch.finfo(pool.dtype).tiny)
        return -total.unsqueeze(-1)

    def __eq__(self, other: object) -> bool:
        """Compare the weights by identity, as they may be large."""
        return (
            isinstance(other, Variogram)
            and other.weights is self.weights
            and (other.power, other.standardised) == (self.power, self.standardised)
        )

    def __hash__(self) -> int:
        """Hash by identity of the weights."""
        return hash((id(self.weights), self.power, self.standardised))

    @property
    def label(self) -> str:
        """The name alone: weights have no short text."""
        return self.name


@dataclass(frozen=True)
class Isotropy(PreRank):
    r"""How alike the variograms along the rows and the columns of a grid are.

    .. math:: \rho(y) = -\frac{(\gamma_y(0, h) - \gamma_y(h, 0))^2}
              {2 \gamma_y(0, h)^2 / |G(0, h)| + 2 \gamma_y(h, 0)^2 / |G(h, 0)|}

    with the variogram of `Variogram.at_lags` (Allen, Ziegel and Ginsbourger, 2024). Where all
    targets are equal T = 0, its largest value.

    Sensitive to: dependence that is wrong in one direction only. Free of units.

    Args:
        shape: rows and columns of the grid; targets are in the order of `reshape(shape)`.
        lag: h >= 1, in steps of the grid.
        power: p > 0, of the variogram.

    Example:
        >>> from prerank import Ensemble
        >>> stripes = torch.tensor([[[0.0, 1.0, 0.0, 1.0, 0.0, 1.0]]])  # 3 equal rows of 2
        >>> Isotropy((3, 2)).project(stripes, Ensemble(stripes.expand(2, 1, 6)))
        tensor([[[-1.5000]]])
    """

    shape: tuple[int, int]
    lag: int = 1
    power: float = 2.0
    name: ClassVar[str] = "isotropy"
    homogeneous: ClassVar[bool] = True
    differentiable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the grid and the lag."""
        object.__setattr__(self, "shape", tuple(self.shape))
        _check_power(self.power, self.name)
        places = _places(self.shape)
        if len(self.shape) != 2:
            raise InputError(f"isotropy needs a grid of two dimensions, got shape {self.shape}")
        for step in self._steps:
            _pairs(places, self.shape, step)

    @property
    def _steps(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return (0, self.lag), (self.lag, 0)

    def check(self, dist: Distribution) -> None:
        """Raise where the grid has another number of targets."""
        if math.prod(self.shape) != dist.event_shape[0]:
            raise NotApplicableError(
                f"isotropy has a grid of shape {self.shape}, but D = {dist.event_shape[0]}"
            )

    def project(self, pool: Tensor, dist: Distribution, weights: Tensor | None = None) -> Tensor:
        """Compare the two variograms of every member of the pool."""
        places = _places(self.shape).to(pool.device)
        gammas, variances = [], []
        for step in self._steps:
            first, second = _pairs(places, self.shape, step)

            def means(points: Tensor, first: Tensor = first, second: Tensor = second) -> Tensor:
                return 0.5 * _differences(points, first, second, self.power).mean(-1)

            gammas.append(_in_chunks(means, pool, len(first)))
            variances.append(2 * gammas[-1].square() / len(first))
        tiny = torch.finfo(pool.dtype).tiny
        contrast = (gammas[0] - gammas[1]).square()
        return -(contrast / (variances[0] + variances[1]).clamp_min(tiny)).unsqueeze(-1)

    @property
    def label(self) -> str:
        """The name, with the lag where it is not 1."""
        return self.name if self.lag == 1 else f"{self.name}({self.lag})"


def _places(shape: Sequence[Any]) -> Tensor:
    """Coordinates of the points of a grid, `(D, dimensions)`."""
    if not shape or not all(isinstance(n, int) and n >= 1 for n in shape):
        raise InputTypeError(f"shape must hold positive ints, got {shape!r}")
    return torch.cartesian_prod(*(torch.arange(n) for n in shape)).reshape(-1, len(shape))


def _pairs(places: Tensor, shape: Sequence[int], step: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Numbers of the points from which a step stays on the grid, and of those it leads to."""
    if len(step) != len(shape) or not all(isinstance(h, int) for h in step):
        raise InputError(f"a lag needs an int for each of {len(shape)} dimensions, got {step!r}")
    ends = places + places.new_tensor(step)
    inside = ((ends >= 0) & (ends < places.new_tensor(shape))).all(-1)
    if not any(step) or not bool(inside.any()):
        raise InputError(f"lag {tuple(step)} connects no points of a grid of shape {tuple(shape)}")
    strides = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
    numbers = (ends * places.new_tensor(strides)).sum(-1)
    return inside.nonzero().squeeze(-1), numbers[inside]


def _differences(points: Tensor, first: Tensor, second: Tensor, power: float) -> Tensor:
    gaps = points[..., first] - points[..., second]
    return gaps.square() if power == 2 else gaps.abs() ** power


def _in_chunks(function: Any, pool: Tensor, pairs: int) -> Tensor:
    """Apply a function from `(points, D)` to `(points,)`, some points at a time."""
    points = pool.reshape(-1, pool.shape[-1])
    parts = points.split(max(1, _CHUNK_VALUES // pairs))
    return torch.cat([function(part) for part in parts]).reshape(pool.shape[:-1])


def _check_power(power: object, name: str) -> None:
    number = isinstance(power, int | float) and not isinstance(power, bool)
    if not number or not 0 < float(power) < math.inf:  # type: ignore[arg-type]
        raise InputError(f"{name} power must be a positive number, got {power!r}")
