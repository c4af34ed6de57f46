"""Two forecasts compared: coverage of the intervals, and how often a difference is found.

PITs of two forecasts of one target are made directly: Z = Phi(shift + spread x), with x from two
correlated series, so the true PCE of each is known.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from evidence_parts.dependent import autoregression
from prerank.calibration.dependent_rows import DependentRows, row_units
from prerank.calibration.paired_errors import PairedDifference, pce_difference, score_difference

ROWS = 500
Change = tuple[float, float]
PAIRS: dict[str, tuple[Change, Change]] = {
    "both calibrated": ((0, 1), (0, 1)),
    "a biased by .1": ((0.1, 1), (0, 1)),
    "a biased by .3": ((0.3, 1), (0, 1)),
    "opposite biases of .1": ((0.1, 1), (-0.1, 1)),
    "both biased by .3": ((0.3, 1), (0.3, 1)),
    "a too narrow by 1.1": ((0, 1.1), (0, 1)),
    "a too narrow by 1.4, b biased by .2": ((0, 1.4), (0.2, 1)),
}
DEPENDENCE = {"time order, series .6": 0.6, "clusters of 10": 0.5, "independent rows": 0.0}
SHARED = (0.0, 0.8)  # correlation of the two series


CELLS = [
    ({"pair": pair, "rows": ROWS, "dependence": dependence, "shared": shared}, 400)
    for dependence in DEPENDENCE
    for shared in SHARED
    for pair in PAIRS
]


def outcomes(
    seeds: range, *, pair: str, rows: int, dependence: str, shared: float
) -> Iterator[dict[str, bool]]:
    """Whether the 95 % intervals cover, and whether no difference is rejected."""
    changes = PAIRS[pair]
    errors = [_true_error(change) for change in changes]
    # Of a score, the square of the error of a forecast of 0 will do: its mean is known.
    squares = [shift**2 + spread**2 for shift, spread in changes]
    for seed in seeds:
        dependent, x = _series(dependence, DEPENDENCE[dependence], seed)
        second = shared * x[:, 0] + np.sqrt(1 - shared**2) * x[:, 1]
        moved = [
            shift + spread * one
            for (shift, spread), one in zip(changes, (x[:, 0], second), strict=True)
        ]
        a, b = (torch.special.ndtr(one).unsqueeze(-1) for one in moved)
        scores = (one.square() for one in moved)
        found = {
            "excess": _event(pce_difference([a], [b], dependent), errors[0] - errors[1]),
            "score": _event(score_difference(*scores, dependent), squares[0] - squares[1]),
        }
        yield {
            f"{measure}: {event}": holds
            for measure, both in found.items()
            for event, holds in zip(("covered", "difference found"), both, strict=True)
        }


def _event(found: PairedDifference, truth: float) -> tuple[bool, bool]:
    return found.lower <= truth <= found.upper, found.p_value < 0.05


def _series(dependence: str, strength: float, seed: int) -> tuple[DependentRows, Tensor]:
    """Two independent series of variance 1, `(N, 2)`, and which rows depend on each other."""
    source = torch.Generator().manual_seed(10_000 + seed)
    if dependence.startswith("time"):
        correlated = autoregression(strength, (1, ROWS, 2), seed)[0]
        x = correlated @ torch.linalg.inv(torch.linalg.cholesky(_HALF)).mT
        rows = row_units(range(ROWS), None, ROWS)
    else:
        x = torch.randn(ROWS, 2, generator=source, dtype=torch.float64)
        rows = DependentRows("row", np.arange(ROWS))
        if strength:
            group = torch.arange(ROWS) // 10
            level = torch.randn(ROWS // 10, 2, generator=source, dtype=torch.float64)
            x = strength**0.5 * level[group] + (1 - strength) ** 0.5 * x
            rows = row_units(None, group.numpy(), ROWS)
    assert rows is not None
    return rows, x


_HALF = torch.tensor([[1.0, 0.5], [0.5, 1.0]], dtype=torch.float64)


def _true_error(change: Change) -> float:
    levels = torch.linspace(0, 1, 100, dtype=torch.float64)
    shift, spread = change
    observed = torch.special.ndtr((torch.special.ndtri(levels) - shift) / spread)
    return float((observed - levels).abs().mean())
