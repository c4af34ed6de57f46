"""What a calibration head costs where the forecast is right, and gains where it is too narrow.

    python experiments/no_harm.py --out no_harm.csv [--rows 100 300] [--device cuda]

The truth is a mixture of three Gaussians that differs between rows. The forecast is the truth
(ratio 1) or has standard deviations of .8 times the true ones. A head is fitted to m rows and
judged on 20,000 others, for 50 data sets, which form a stack. One line for each data set: nats by
which the calibrated forecast is better than the forecast, those of the truth, and the mean excess
over pre-ranks. Settings that the file has already are not computed again. The end prints means over
data sets beside their limits, as Markdown.
"""

import argparse
import copy
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from prerank import CalibrationHead, GaussianMixture, nll, pce, pce_floor
from prerank.pits import project_pits
from prerank.preranks import applicable
from prerank.recalibration import Change

DATA_SETS, TEST_ROWS, COMPONENTS = 50, 20_000, 3
JUDGED = "marginal+location+scale+pca+hdr"


def truth(sets: int, rows: int, targets: int, seed: int, device: str) -> GaussianMixture:
    """Mixtures of `batch_shape (sets, rows)`."""
    draw = torch.Generator().manual_seed(seed)
    shape = (sets, rows, COMPONENTS)
    lower = torch.tril(0.4 * torch.randn(*shape, targets, targets, generator=draw), -1)
    parts = (
        torch.randn(shape, generator=draw),
        2 * torch.randn(*shape, targets, generator=draw),
        lower + torch.eye(targets),
    )
    return GaussianMixture(*(part.to(device) for part in parts), validate_args=False)


def narrowed(dist: GaussianMixture, ratio: float) -> GaussianMixture:
    """The mixture about its mean with `ratio` times the standard deviations."""
    mean = dist.mean.unsqueeze(-2)
    return GaussianMixture(
        dist.logits, mean + ratio * (dist.loc - mean), ratio * dist.scale_tril, validate_args=False
    )


def excess(dist: GaussianMixture, y: Tensor, seed: int) -> float:
    """Mean over pre-ranks of the signed excess."""
    results = project_pits(dist, y, applicable(JUDGED, dist)[0], generator=seed)
    errors = [float(pce(result.z).mean()) for result in results]
    return sum(errors) / len(errors) - pce_floor(len(y))


def records(rows: int, targets: int, ratio: float, device: str) -> Iterator[dict[str, Any]]:
    """One line for each data set."""
    true = truth(DATA_SETS, rows, targets, seed=rows + targets, device=device)
    y = true.sample(generator=1)
    started = time.perf_counter()
    head = CalibrationHead().fit(narrowed(true, ratio), y)
    seconds = (time.perf_counter() - started) / DATA_SETS
    for member in range(DATA_SETS):
        fitted = copy.copy(head)
        fitted.change_ = Change(*(part[member] for part in head.change_))
        test = truth(1, TEST_ROWS, targets, seed=10_000 + member, device=device)
        test = GaussianMixture(test.logits[0], test.loc[0], test.scale_tril[0])
        new, base = test.sample(generator=member), narrowed(test, ratio)
        after = fitted(base)
        before = nll(base, new).mean()
        yield {
            "targets": targets,
            "rows": rows,
            "ratio": ratio,
            "data_set": member,
            "gain": float(before - nll(after, new).mean()),
            "oracle_gain": float(before - nll(test, new).mean()),
            "excess": excess(after, new, member),
            "levels": "+".join(sorted(fitted.change_.active)) or "none",
            "seconds": seconds,
        }


def markdown(table: pd.DataFrame) -> str:
    """Means over data sets beside their limits: 1/m nats, .1/sqrt(m), 2/3 of the gain."""
    lines = [
        "| targets | rows | changed | loss | limit | excess | limit | gain | limit |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for (targets, m), some in table.groupby(["targets", "rows"]):
        means = some.groupby("ratio")[["gain", "oracle_gain", "excess"]].mean()
        true, narrow = means.loc[1.0], means.loc[0.8]
        changed = (some[some.ratio == 1].levels != "none").sum()
        lines.append(
            f"| {targets} | {m:,} | {changed} | {-true.gain:z.4f} | {1 / m:.4f} "
            f"| {true.excess:z.4f} | {0.1 / m**0.5:.4f} "
            f"| {100 * narrow.gain / narrow.oracle_gain:.0f} % | 67 % |"
        )
    return "\n".join(lines)


def main() -> None:
    """Compute every setting that the file does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", nargs="+", type=int, default=[100, 300, 1000, 10_000])
    parser.add_argument("--targets", nargs="+", type=int, default=[2, 6, 16])
    parser.add_argument("--ratios", nargs="+", type=float, default=[1.0, 0.8])
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    table = pd.read_csv(options.out) if options.out.exists() else pd.DataFrame()
    for targets in options.targets:
        for rows in options.rows:
            for ratio in options.ratios:
                setting = {"targets": targets, "rows": rows, "ratio": ratio}
                if len(table) and bool(
                    (table[list(setting)] == pd.Series(setting)).all(axis=1).any()
                ):
                    continue
                lines = pd.DataFrame(records(rows, targets, ratio, options.device))
                table = pd.concat([table, lines], ignore_index=True)
                table.to_csv(options.out, index=False, float_format="%.6g")
                mean = lines[["gain", "oracle_gain", "excess", "seconds"]].mean()
                print(setting, mean.round(5).to_dict(), flush=True)
    print(markdown(table))


if __name__ == "__main__":
    main()
