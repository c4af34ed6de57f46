r"""Confidence limits of the true PCE of rows that depend on each other.

Let :math:`D = \hat F - F` be the deviation of the empirical distribution of the PITs from the true
one and :math:`\Lambda_1, \dots, \Lambda_B` its cosine projections, which are independent copies of
one Gaussian process (see `prerank.calibration.dependent_rows`), :math:`\|\cdot\|` the mean of the
absolute values over the levels (and components), and e the PCE.

*Above.* With :math:`s_j` the sign of :math:`F(\alpha_j) - \alpha_j`, e is convex:

.. math:: e(F) - e(\hat F) \le -\langle s, D \rangle, \qquad
          \frac{\langle s, D \rangle}{\sqrt{\sum_b \langle s, \Lambda_b \rangle^2 / B}} \sim t_B,
          \qquad |\langle s, \Lambda_b \rangle| \le \|\Lambda_b\|.

s is not known but fixed, so :math:`e(\hat F) + t_B \sqrt{\sum_b \|\Lambda_b\|^2 / B}` is an upper
limit.

*Below.* :math:`e(\hat F) - e(F) \le \|D\|`, and the p-value of D among rotations,
:math:`P(\|u_0 D + \sum_b u_b \Lambda_b\| \ge \|D\|)`, is uniform. By the triangle inequality it is
at most the probability that :math:`\|\sum_b u_b \Lambda_b\| / (1 - |u_0|) \ge \|D\|`: the quantile
of this ratio over rotations is an upper limit of :math:`\|D\|`.

Projections of clusters of unequal size are around a value that the large ones decide, and vary too
little: there both distances are larger, by the factor and the quantiles of t of
`DependentRows.width`.
"""

import math

import torch
from torch import Tensor

from prerank.calibration.dependent_rows import CountedUnits, DependentRows, columns_of
from prerank.calibration.intervals import ErrorLimits, limited
from prerank.calibration.rotations import rotations
from prerank.defaults import BAND_LEVEL, LEVELS

__all__ = ["dependent_limits"]

_ROTATIONS = 2000


def dependent_limits(
    z: Tensor | CountedUnits,
    rows: DependentRows,
    *,
    levels: int = LEVELS,
    level: float = BAND_LEVEL,
) -> tuple[ErrorLimits, ErrorLimits]:
    """Confidence limits of the true PCE of each component, and of their mean.

    Args:
        z: PITs `(N, J)`, or their counts.
        rows: which of them depend on each other.
        levels: as in `pce`.
        level: probability with which each limit holds.

    Returns:
        Limits `(J,)` each, and two scalars, in float64.

    Example:
        >>> from prerank.calibration.dependent_rows import row_units
        >>> z = torch.rand(1000, 2, generator=torch.Generator().manual_seed(0))
        >>> own, mean = dependent_limits(z, row_units(range(1000), None, 1000))
        >>> own.lower.tolist(), bool(mean.upper < own.upper.max())
        ([0.0, 0.0], True)
    """
    from scipy.special import stdtrit

    turns = rotations(rows.degrees, _ROTATIONS, 0)[1:]
    drawn, sizes, errors = [], [], []
    for column in columns_of(z):
        deviation, *others = rows.curves(column, levels=levels, centred=True)
        curves = torch.stack(others)
        own = turns.to(curves)
        drawn.append((own[:, 1:] @ curves).abs().mean(-1) / (1 - own[:, 0].abs()))
        sizes.append(curves.abs().mean(-1))
        errors.append(deviation.abs().mean())
    norms, lengths = torch.stack(drawn, -1), torch.stack(sizes, -1)
    degrees, factor = rows.width
    quantile = float(stdtrit(degrees, level))
    wider = factor * quantile / float(stdtrit(rows.degrees, level))
    error = torch.stack(errors)

    def limits(error: Tensor, norms: Tensor, lengths: Tensor) -> ErrorLimits:
        above = factor * quantile * lengths.square().mean(0).sqrt()
        below = norms.sort(0).values[min(_ROTATIONS - 1, math.ceil(level * _ROTATIONS))]
        return limited(error, wider * below, above)

    return limits(error, norms, lengths), limits(error.mean(), norms.mean(-1), lengths.mean(-1))
