"""Targets that take few values, made continuous."""

import torch
from torch import Tensor

from prerank.errors import ShapeError
from prerank.inputs import as_generator, as_points

__all__ = ["snap", "spread_ties"]


def spread_ties(
    y: object, *, reference: object = None, generator: torch.Generator | int | None = None
) -> Tensor:
    r"""Spread equal values of a target evenly over the cell around them.

    .. math:: y_i \mapsto a + U_i (b - a), \qquad
              a = \frac{v_{k-1} + v_k}{2}, \quad b = \frac{v_k + v_{k+1}}{2}
              \quad\text{for}\quad y_i = v_k,

    where :math:`v_1 < v_2 < \dots` are the values of the target; the cells of the first and the
    last are symmetric. Different values keep their order, values that occur once stay where they
    are, and so does a target with a single value. A predictor of the spread targets can have
    uniform PITs; one of the original targets cannot, see `prerank.calibration.tie_error`. That is
    for values that stand for a range, such as grades or rounded measurements: a rare event that is
    spread becomes mostly noise, and a value beside a continuous part stays a narrow peak.

    Args:
        y: targets `(N, D)`.
        reference: targets `(M, D)` that say, together with y, which values there are and how
            often: the training rows, where y are new ones. Only y by default.
        generator: a generator or seed.

    Returns:
        `(N, D)`, in the precision of y.

    Example:
        >>> grades = torch.tensor([[1.0], [2.0], [2.0], [4.0], [4.0]])
        >>> spread = spread_ties(grades, generator=0)
        >>> spread[0].item(), bool((spread[1:3] > 1.5).all()), bool((spread[1:3] < 3).all())
        (1.0, True, True)
    """
    values = as_points(y, "y")
    others = values[:0] if reference is None else as_points(reference, "reference").to(values)
    if values.dim() != 2 or others.dim() != 2 or others.shape[1] != values.shape[1]:
        raise ShapeError(
            f"y must be (N, D) and reference (M, D), got {tuple(values.shape)} and "
            f"{tuple(others.shape)}"
        )
    known = torch.cat([others, values])
    source = as_generator(generator, "ties")
    device = None if source is None else source.device
    uniform = torch.rand(values.shape, generator=source, device=device).to(values)
    columns = [
        _spread(column, around, chance)
        for column, around, chance in zip(values.mT, known.mT, uniform.mT, strict=True)
    ]
    return torch.stack(columns, dim=1)


def snap(samples: object, values: object) -> Tensor:
    """Round samples to the nearest value that a target takes.

    A predictor with a density gives each cell around a value some probability. Its samples,
    rounded, are those of a discrete predictor with these probabilities: ranked among them, with
    ties broken at random, observations have uniform PITs if the probabilities are right.

    Args:
        samples: `(..., D)`, such as `(S, N, D)`.
        values: targets `(M, D)` that say which values there are.

    Example:
        >>> grades = torch.tensor([[1.0], [2.0], [5.0]])
        >>> snap(torch.tensor([[1.4], [1.6], [9.0]]), grades).squeeze(1)
        tensor([1., 2., 5.])
    """
    points, known = as_points(samples, "samples"), as_points(values, "values")
    if known.dim() != 2 or known.shape[1] != points.shape[-1]:
        raise ShapeError(
            f"values must be (M, D) for samples (..., D), got {tuple(known.shape)} and "
            f"{tuple(points.shape)}"
        )
    columns = []
    for column, around in zip(points.unbind(-1), known.to(points).mT, strict=True):
        levels = around.unique()
        middles = (levels[1:] + levels[:-1]) / 2
        columns.append(levels[torch.bucketize(column.contiguous(), middles)])
    return torch.stack(columns, dim=-1)


def _spread(column: Tensor, known: Tensor, chance: Tensor) -> Tensor:
    levels, counts = known.unique(return_counts=True)
    if len(levels) == 1:
        return column
    middles = (levels[1:] + levels[:-1]) / 2
    lower = torch.cat([2 * levels[:1] - middles[:1], middles])
    upper = torch.cat([middles, 2 * levels[-1:] - middles[-1:]])
    place = torch.searchsorted(levels, column.contiguous())
    spread = lower[place] + chance * (upper - lower)[place]
    return torch.where(counts[place] > 1, spread, column)
