"""How far PITs are from uniform: the PCE, its floor and its spread, and what ties do to it."""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.calibration.curves import check_pits, level_cdf, pce_of_curve
from prerank.defaults import LEVELS, N_SAMPLES
from prerank.distributions import draw
from prerank.errors import InputError, ShapeError
from prerank.inputs import as_count, as_generator, as_points
from prerank.pits import pit
from prerank.preranks import PreRankLike, is_all, parse

__all__ = [
    "CollectedPITs",
    "ProjectedCalibrationError",
    "mean_spread",
    "pce",
    "pce_floor",
    "pce_spread",
    "tie_error",
    "tie_remarks",
]

_DRAWS = 16  # in which a predictor that knows of the values would show one of them


def pce(z: object, *, levels: int = LEVELS) -> Tensor:
    r"""Projected calibration error (PCE) of PITs.

    .. math:: \mathrm{PCE} = \frac1M \sum_{j=1}^M |\alpha_j - \hat F_Z(\alpha_j)|,

    with :math:`\hat F_Z` the empirical CDF over all rows at once and :math:`\alpha` evenly spaced
    on [0, 1], end points included. The mean of the PCE over batches is another, larger number: its
    expectation for a perfect predictor grows as the batches shrink.

    Args:
        z: PITs `(..., N, J)` in [0, 1].
        levels: M, at least 2.

    Returns:
        `(..., J)`.

    Example:
        >>> pce(torch.full((10, 1), 0.5))
        tensor([0.2475])
    """
    values = check_pits(z)
    return pce_of_curve(level_cdf(values, levels)).to(values.dtype)


def pce_floor(n: int, *, levels: int = LEVELS) -> float:
    r"""Exact expectation of the PCE for n independent uniforms, about :math:`0.310 / \sqrt n`.

    Each level contributes the mean absolute deviation of a binomial, which de Moivre found:

    .. math:: E|X - n\alpha| = 2 \nu \binom{n}{\nu} \alpha^{\nu} (1-\alpha)^{n-\nu+1}, \qquad
              \nu = \lfloor n\alpha \rfloor + 1.

    Args:
        n: number of PITs.
        levels: as in `pce`.

    Example:
        >>> round(pce_floor(n=256), 4)
        0.0193
    """
    return _floor(as_count(n, "n", minimum=1), as_count(levels, "levels", minimum=2))


def pce_spread(n: int) -> float:
    r"""Standard deviation of the PCE of n independent uniforms, for large n.

    .. math:: \sqrt{\frac1n \Big(\frac7{60} - \frac\pi{32}\Big)} \approx \frac{0.136}{\sqrt n}:

    :math:`\sqrt n` times the PCE is distributed as the area between a Brownian bridge and 0, whose
    first two moments are known (Shepp 1982).

    Args:
        n: number of PITs.

    Example:
        >>> round(pce_spread(256), 4)
        0.0085
    """
    return math.sqrt((7 / 60 - math.pi / 32) / as_count(n, "n", minimum=1))


def mean_spread(pits: Sequence[Tensor]) -> Tensor:
    r"""Standard deviation of the mean PCE of several pre-ranks that are right.

    .. math:: \mathrm{spread}(n) \Big(\sum_{jk} w_j w_k r_{jk}^2\Big)^{1/2}

    with r the correlations of the PITs over the rows, and weights w that are equal for all
    pre-ranks and for the components of each. (The areas of two bridges are about as correlated as
    the square of what their PITs are: exact for r = 0 and 1, and up to 4 % too large between.)

    Args:
        pits: of each pre-rank, `(..., N, J)`, in [0, 1].

    Returns:
        `(...)`.

    Example:
        >>> z = torch.rand(1000, 4, generator=torch.Generator().manual_seed(0))
        >>> round(float(mean_spread([z])) / pce_spread(1000), 2)
        0.5
    """
    together = torch.cat(list(pits), -1)
    weights = torch.cat([z.new_full((z.shape[-1],), 1 / z.shape[-1] / len(pits)) for z in pits])
    centred = together - together.mean(-2, keepdim=True)
    unit = torch.nn.functional.normalize(centred, dim=-2)
    square = (unit.mT @ unit).square()
    square.diagonal(dim1=-2, dim2=-1).fill_(1)  # also where all PITs are equal
    return pce_spread(together.shape[-2]) * (weights @ square @ weights).sqrt()


class CollectedPITs:
    """PITs of one pre-rank, batch by batch.

    Example:
        >>> collected = CollectedPITs()
        >>> for _ in range(3):
        ...     collected.add(torch.rand(10, 2))
        >>> collected.together.shape
        torch.Size([30, 2])
    """

    def __init__(self) -> None:
        self._batches: list[Tensor] = []

    def check(self, z: Tensor) -> None:
        """Raise where PITs have another stack or other components than earlier ones."""
        if self._batches and z[..., 0, :].shape != self._batches[0][..., 0, :].shape:
            raise ShapeError(
                f"this batch has PITs of shape {tuple(z.shape)}, earlier ones "
                f"{tuple(self._batches[0].shape)}: stack axes and components must not change (use "
                "pca with a fixed number of components)"
            )

    def add(self, z: Tensor) -> None:
        """Add the PITs `(..., N, J)` of a batch."""
        self.check(z)
        self._batches.append(z)

    @property
    def together(self) -> Tensor:
        """All PITs so far, `(..., N, J)`."""
        if not self._batches:
            raise InputError("no batch yet: call update(dist, y) first")
        self._batches = [torch.cat(self._batches, dim=-2)]
        return self._batches[0]


class ProjectedCalibrationError:
    """Collect PITs batch by batch, compute the PCE once.

    Args:
        prerank: as in `pit`.
        n_samples: draws per row where there is no closed form.
        levels: as in `pce`.
        generator: a generator or seed; its stream runs on from batch to batch.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> metric = ProjectedCalibrationError("scale", generator=0)
        >>> for _ in range(4):
        ...     dist = MultivariateNormal(torch.zeros(250, 2), torch.eye(2))
        ...     metric.update(dist, dist.sample())
        >>> metric.pits.shape, metric.compute().shape
        (torch.Size([1000, 1]), torch.Size([1]))
    """

    def __init__(
        self,
        prerank: PreRankLike,
        *,
        n_samples: int = N_SAMPLES,
        levels: int = LEVELS,
        generator: torch.Generator | int | None = None,
    ) -> None:
        self.preranks = parse(prerank)
        self._asked: PreRankLike = "all" if is_all(prerank) else self.preranks
        self.n_samples = n_samples
        self.levels = levels
        self._generator = as_generator(generator, "draw")
        self._collected = CollectedPITs()

    def update(self, dist: Distribution, y: object) -> None:
        """Add the PITs of one batch."""
        z = pit(dist, y, self._asked, n_samples=self.n_samples, generator=self._generator)
        self._collected.add(z)

    @property
    def pits(self) -> Tensor:
        """All PITs so far, `(..., N, J)`."""
        return self._collected.together

    def compute(self) -> Tensor:
        """PCE over all rows so far, `(..., J)`."""
        return pce(self.pits, levels=self.levels)

    def reset(self) -> None:
        """Forget all PITs."""
        self._collected = CollectedPITs()


@lru_cache(maxsize=256)
def _floor(n: int, levels: int) -> float:
    from scipy import stats  # takes longer to import than most uses of it take

    alpha = np.linspace(0, 1, levels)[1:-1]
    nu = np.floor(n * alpha) + 1
    deviation = 2 * nu * stats.binom.pmf(nu, n, alpha) * (1 - alpha)
    return float(deviation.sum() / n / levels)


def tie_error(y: object) -> npt.NDArray[np.float64]:
    r"""PCE of a predictor with a density that knows how often each value occurs, and no more.

    .. math:: \frac14 \sum_k p_k^2

    for each target, where :math:`p_k` are the shares of its values. Such a predictor has a narrow
    peak at each value: its PITs are the middles of the steps of the CDF, and not uniform. One that
    is certain of the value to come has an error of 1/4.

    Args:
        y: targets `(N, D)`.

    Example:
        >>> tie_error([[0.0, 0.1], [0.0, 0.2], [1.0, 0.3], [1.0, 0.4]])
        array([0.125 , 0.0625])
    """
    columns = as_points(y, "y").double().flatten(end_dim=-2).mT
    return np.array([float(_shares(column).square().sum()) / 4 for column in columns])


def tie_remarks(dist: Distribution, y: Tensor, names: Sequence[str]) -> tuple[str, ...]:
    """What to say of targets with ties that a predictor without ties is to meet.

    Args:
        dist: `batch_shape (..., N)`, `event_shape (D,)`.
        y: observations `(..., N, D)`.
        names: of the targets.

    Returns:
        Sentences; none where the error that ties alone would make is within the floor.
    """
    errors = tie_error(y)
    floor = pce_floor(y.shape[-2])
    if not (errors > floor).any():
        return ()
    met = (draw(dist, _DRAWS, generator=0).points == y).flatten(end_dim=-2).double().mean(0)
    # A predictor that knows the values meets them as often as they meet each other; one with a
    # density does so by accident.
    hit = [d for d, error in enumerate(errors) if error > floor and float(met[d]) < error]
    if not hit:
        return ()
    ties = []
    for d in hit:
        shares = _shares(y[..., d].flatten())
        ties.append(f"{names[d]} ({len(shares)} values, one in {shares.max():.0%} of the rows)")
    return (
        f"discrete targets: {', '.join(ties)}. A predictor with a density cannot have uniform PITs "
        f"there; one that knew no more than how often each value occurs would have a PCE of up to "
        f"{max(errors[d] for d in hit):.3f}. Diagnose prerank.distributions.round_to(dist, y), the "
        f"forecast of the values: PITs of a density between the values say little there, and a "
        f"penalty on them can take probability off the values.",
    )


def _shares(column: Tensor) -> Tensor:
    return column.unique(return_counts=True)[1].double() / len(column)
