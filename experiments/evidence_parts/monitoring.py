"""False alarms and delays of `prerank.Monitor`, in streams of 2,000 rows."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from prerank import Ensemble, Monitor
from prerank.calibration.monitoring import EProcess

ROWS, LATE, DIM, ALPHA = 2000, 1000, 3, 0.01
_BLOCK = 100  # streams at a time, so that their capital stays in the cache


def lines(data_sets: int = 2000) -> Iterator[dict[str, object]]:
    """False alarms at the level of PITs and end to end, and rows until a fault is found."""
    for lead in (1, 3):
        starts = range(0, data_sets, _BLOCK)
        peaks = torch.cat([_peaks(seed, lead) for seed in starts])[:data_sets]
        for alpha in (0.01, 0.05, 0.2):
            rate = float((peaks >= 1 / alpha).double().mean())
            yield _line("PITs, calibrated", lead, alpha, rate, data_sets)
    few = max(data_sets // 50, 20)
    for kind in ("normal", "20 members"):
        found = [_delay(seed, "none", 0, kind) for seed in range(few)]
        yield _line(f"{kind}, calibrated", 1, ALPHA, _share(found), few)
    for start in (0, LATE):
        for fault in ("bias .5", "sd ratio .7", "lost correlation"):
            found = [_delay(seed, fault, start, "normal") for seed in range(few)]
            delays = [row - start + 1 for row in found if row is not None and row >= start]
            line = _line(f"normal, {fault} from row {start}", 1, ALPHA, len(delays) / few, few)
            delays += [ROWS] * (few - len(delays))
            median, late = (
                torch.tensor(delays)
                .double()
                .quantile(torch.tensor([0.5, 0.9], dtype=torch.float64))
            )
            yield line | {"median_delay": float(median), "delay_90": float(late)}


def _line(scenario: str, lead: int, alpha: float, rate: float, n: int) -> dict[str, object]:
    common = {"scenario": scenario, "rows": ROWS, "lead": lead, "alpha": alpha}
    return common | {"event": "alarm", "rate": rate, "data_sets": n}


def _peaks(seed: int, lead: int) -> Tensor:
    """Largest evidence of calibrated streams with five components that depend on each other.

    With a lead of h rows, errors are moving averages of h shocks: dependent in between.
    """
    noise = torch.Generator().manual_seed(seed)
    shape = (ROWS + lead - 1, _BLOCK, 5)
    shocks = torch.randn(shape, generator=noise) + torch.randn((*shape[:2], 1), generator=noise)
    errors = sum(shocks[k : k + ROWS] for k in range(lead)) / math.sqrt(2 * lead)
    z = torch.special.ndtr(errors.double())
    paths = [EProcess(shape[1:]).update(z[i::lead]).mean(-1) for i in range(lead)]
    return torch.stack([path.amax(0) for path in paths]).amax(0) / lead


def _delay(seed: int, fault: str, start: int, kind: str) -> int | None:
    """Row of the alarm; the truth has a correlation of .5 and one standard deviation."""
    noise = torch.Generator().manual_seed(seed)
    cov = 0.5 * torch.eye(DIM) + 0.5
    root = torch.linalg.cholesky(cov)
    y = torch.randn(ROWS, DIM, generator=noise) @ root.T
    loc, covs = torch.zeros(ROWS, DIM), cov.expand(ROWS, DIM, DIM).clone()
    if fault == "bias .5":
        loc[start:] = 0.5
    elif fault == "sd ratio .7":
        covs[start:] *= 0.7**2
    elif fault == "lost correlation":
        covs[start:] = torch.eye(DIM)
    dist = MultivariateNormal(loc, covs)
    if kind != "normal":
        members = torch.randn(20, ROWS, DIM, generator=noise) @ root.T
        dist = Ensemble(members)
    monitor = Monitor(alpha=ALPHA, seed=seed)
    monitor.update(dist, y)
    return monitor.alarm_row


def _share(found: list[int | None]) -> float:
    return sum(row is not None for row in found) / len(found)
