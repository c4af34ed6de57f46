r"""Which pre-rank sees which fault: rejections over the size of the fault and the rows.

Every row has the same forecast, a Gaussian with unit variances and the correlations
:math:`.5^{|i - j|}`. The truth differs from it in one way:

- `mean`: every target is larger by so many standard deviations.
- `variance`: every standard deviation is larger by such a share.
- `correlation`: the correlations are :math:`(.5 - s)^{|i - j|}`.
- `tails`: the margins are Student distributions of unit variance with 1 / s degrees of freedom,
  with the dependence (the copula) of the forecast.
- `copula`: the margins are those of the forecast, with the copula of a Student distribution with
  1 / s degrees of freedom and the same matrix.
- `order`: a share s of the targets has changed places with a neighbour. No margin changes, and
  nothing that treats all targets alike; two targets have no such fault.

Pre-ranks of one component have the p-value of a diagnosis. Those of several have its two
statistics, whose null is simulated once, since all rows have the same forecast: a diagnosis
estimates the same null from the rows that it has.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pandas as pd
import torch
from scipy.special import ndtri, stdtr, stdtrit
from torch import Tensor

from prerank import GaussianMixture, pce, pce_floor
from prerank.calibration.nulls import key_counts
from prerank.calibration.uniformity import (
    cell_statistics,
    component_p_values,
    tail_cells,
    tail_levels,
)
from prerank.pits import project_pits
from prerank.preranks import PreRank, parse

LEVEL, ROWS, MIDDLE = 0.05, 300, 0.1
SIZES = (0.05, MIDDLE, 0.2)
FAULTS = {
    **dict.fromkeys(("mean", "variance", "correlation", "tails", "copula"), SIZES),
    "order": (0.25, 0.5, 1.0),
}
PRERANKS = "marginal+location+scale+dependency+pca+hdr+copula+average_rank+band_depth"
_NULL, _CHUNK = 20_000, 500


def _cells() -> Iterator[tuple[dict[str, Any], int]]:
    for targets in (2, 8):
        for n in (75, 150, ROWS):
            yield {"fault": "none", "size": 0.0, "D": targets, "n": n}, 2000
            for fault, sizes in FAULTS.items():
                if fault == "order" and targets == 2:
                    continue
                for size in sizes if n == ROWS else sizes[1:2]:
                    yield {"fault": fault, "size": size, "D": targets, "n": n}, 1000


CELLS = list(_cells())


def outcomes(seeds: range, *, fault: str, size: float, D: int, n: int) -> Iterator[dict[str, Any]]:
    """Excess of every pre-rank, and whether it rejects, for data sets that share nothing."""
    source = torch.Generator().manual_seed(seeds[0])
    y = observations(fault, size, D, (len(seeds), n), source).flatten(0, 1)
    results = project_pits(forecast(D, len(y)), y, preranks(D), generator=source)
    found: list[dict[str, Any]] = [{} for _ in seeds]
    for result in results:
        z = result.z.unflatten(0, (len(seeds), n))
        label = result.prerank.label
        excess = pce(z).mean(-1) - pce_floor(n)
        for one, error, p in zip(found, excess, p_values(z, label), strict=True):
            one[f"{label} excess"], one[label] = float(error), bool(p <= LEVEL)
    yield from found


def lines(cell: dict[str, Any], table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """One line for each pre-rank."""
    for prerank in preranks(cell["D"]):
        label = prerank.label
        excess = table[f"{label} excess"]
        yield {
            **cell,
            "prerank": label,
            "rate": table[label].mean(),
            "excess": excess.mean(),
            "excess_se": excess.sem(),
            "data_sets": len(table),
        }


def preranks(targets: int) -> tuple[PreRank, ...]:
    """Those that apply: two targets have no dependency of neighbours that could vary."""
    return tuple(one for one in parse(PRERANKS) if targets > 2 or one.name != "dependency")


def factor(targets: int, correlation: float = 0.5) -> Tensor:
    """Cholesky factor of the matrix of powers of a correlation."""
    places = torch.arange(targets)
    return torch.linalg.cholesky(correlation ** (places - places[:, None]).abs().double())


def forecast(targets: int, rows: int) -> GaussianMixture:
    """The same Gaussian for every row."""
    return GaussianMixture(
        torch.zeros(rows, 1),
        torch.zeros(rows, 1, targets),
        factor(targets).float().expand(rows, 1, -1, -1),
        validate_args=False,
    )


def observations(
    fault: str, size: float, targets: int, shape: tuple[int, int], source: torch.Generator
) -> Tensor:
    """Draws `(*shape, D)` from the truth of a fault, made in float64, which tails need."""
    return _drawn(fault, size, targets, shape, source).float()


def _drawn(
    fault: str, size: float, targets: int, shape: tuple[int, int], source: torch.Generator
) -> Tensor:
    noise = torch.randn(*shape, targets, generator=source, dtype=torch.float64)
    y = noise @ factor(targets, 0.5 - size if fault == "correlation" else 0.5).mT
    if fault == "mean":
        return y + size
    if fault == "variance":
        return y * (1 + size)
    if fault == "tails":
        df = round(1 / size)
        lower = stdtrit(df, torch.special.ndtr(-y.abs()).numpy())
        return -y.sign() * torch.from_numpy(lower) * ((df - 2) / df) ** 0.5
    if fault == "copula":
        df = round(1 / size)
        squares = torch.randn(*shape, df, generator=source, dtype=torch.float64).square()
        student = y.abs() / squares.mean(-1, keepdim=True).sqrt()
        return -y.sign() * torch.from_numpy(ndtri(stdtr(df, -student.numpy())))
    if fault == "order":
        order = torch.arange(targets)
        moved = round(size * targets)
        order[:moved] = order[:moved].view(-1, 2).flip(-1).flatten()
        return y[..., order]
    return y


def p_values(z: Tensor, label: str) -> Tensor:
    """P-value of each data set from its PITs `(M, N, J)`."""
    if z.shape[-1] == 1:
        return component_p_values(z.squeeze(-1).mT)
    known = null(label, *z.shape[1:])
    least = _least(_statistics(z), known)
    ordered = _least(known, known).sort().values
    return (1 + torch.searchsorted(ordered, least, right=True)) / (len(ordered) + 1)


@cache
def null(label: str, n: int, targets: int) -> Tensor:
    """Both statistics, small where extreme, of calibrated data sets, `(2, B)`."""
    source, parts = torch.Generator().manual_seed(0), []
    for _ in range(_NULL // _CHUNK):
        y = observations("none", 0.0, targets, (_CHUNK, n), source)
        (result,) = project_pits(forecast(targets, _CHUNK * n), y.flatten(0, 1), parse(label))
        parts.append(_statistics(result.z.unflatten(0, (_CHUNK, n))))
    return torch.cat(parts, -1)


def _statistics(z: Tensor) -> Tensor:
    """Minus the mean area over the components, and their smallest p-value, `(2, M)`."""
    n_cells = len(tail_levels(z.shape[1])) + 1
    keys = tail_cells(z) + torch.arange(z.shape[-1]) * n_cells
    area, smallest = cell_statistics(key_counts(keys, n_cells), z.shape[1])
    return torch.stack([-area, smallest])


def _least(values: Tensor, known: Tensor) -> Tensor:
    """The smaller of the shares of the known statistics that are as extreme, `(M,)`."""
    ordered = known.sort(-1).values
    return torch.searchsorted(ordered, values, right=True).amin(0) / known.shape[-1]
