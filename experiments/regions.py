"""Prediction regions: coverage on the paper's datasets, volume beside boxes and ellipsoids.

    PRERANK_DATA=FOLDER python experiments/regions.py [--seeds 0] [--datasets air wq ...]

For each dataset, at most 3,000 rows are drawn and split as in the published runs. A
`MixtureRegressor` with its default head is fitted to training and validation rows; the calibration
rows fit nothing but the regions, and the test rows are what coverage and volume are measured on.
All regions rest on the same forecasts and are conformalised by the same calibration rows:

- `density`: `predict_region(X, level, calibration=...)`; `own` is the same without calibration.
- `box`: `shape="box"`, intervals that hold together.
- `bonferroni`: intervals of each target at 1 - (1 - level) / D.
- `ellipsoid`: squared Mahalanobis distance from the predicted mean, in the predicted covariance, up
  to its conformal quantile; not where targets are discrete.

`docs/results/tables/regions.csv` gets one line for each dataset, seed and level; lines that stand
are replaced. Coverage is a share of the test rows, `p_value` that of the count of `density` in its
beta-binomial distribution (two-sided). Ratios of volumes are medians over test rows, of the other
region over the density region.
"""

import argparse
import math
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import betabinom
from torch import Tensor

from marked_pages import filled, markdown, number, percent
from prerank import MixtureRegressor
from prerank.calibration.nulls import holm
from prerank.datasets import load_table, published_split
from prerank.recalibration import predictive_interval

PAGE = Path(__file__).parents[1] / "docs" / "results" / "regions.md"
TABLE = PAGE.parent / "tables" / "regions.csv"
DATASETS = "air ansur2 bio births1 births2 blog_data calcofi house households scm20d scpf taxi"
NAMES = (*DATASETS.split(), "wage", "wq")
LEVELS = (0.5, 0.8, 0.9, 0.95)
MOST_ROWS = 3_000
OTHERS = ("box", "bonferroni", "ellipsoid")


def rank_of(rows: int, level: float) -> int:
    """Rank of the conformal quantile among the calibration rows."""
    return math.ceil((rows + 1) * level - 1e-9)


def count_distribution(cal: int, test: int, level: float) -> Any:
    """Beta-binomial distribution of the number of test rows in exchangeable regions."""
    rank = rank_of(cal, level)
    return betabinom(test, rank, cal + 1 - rank)


def two_sided(inside: int, distribution: Any) -> float:
    """P-value of a count."""
    tails = distribution.cdf(inside), distribution.sf(inside - 1)
    return float(min(1.0, 2 * min(tails)))


def ellipsoids(dist: Any, cal: Any, y: Tensor, y_cal: Tensor, level: float) -> tuple[Any, Tensor]:
    """Which observations lie in conformal ellipsoids, and the log-volumes of these."""

    def squared(forecast: Any, observed: Tensor) -> Tensor:
        factor = torch.linalg.cholesky(forecast.covariance_matrix)
        centred = (observed - forecast.mean).unsqueeze(-1)
        return torch.linalg.solve_triangular(factor, centred, upper=False).square().sum((-2, -1))

    radius = squared(cal, y_cal).sort().values[rank_of(len(y_cal), level) - 1]
    half = y.shape[1] / 2
    unit = half * math.log(math.pi) - math.lgamma(half + 1)
    log_det = torch.linalg.slogdet(dist.covariance_matrix).logabsdet
    return squared(dist, y) <= radius, unit + half * radius.log() + log_det / 2


def within(limits: Tensor, y: Tensor) -> Tensor:
    """Rows with all targets between their limits."""
    return ((limits[..., 0] <= y) & (y <= limits[..., 1])).all(-1)


def lines(name: str, seed: int) -> list[dict[str, Any]]:
    """What is measured for one dataset."""
    started = time.perf_counter()
    table = load_table(name)
    order = torch.randperm(len(table.x), generator=torch.Generator().manual_seed(seed))
    x, y = (part[order[:MOST_ROWS].numpy()].astype(np.float64) for part in (table.x, table.y))
    split = published_split(len(x), seed)
    fitted = torch.cat([split.train, split.validation]).numpy()
    cal, test = split.calibration.numpy(), split.test.numpy()
    model = MixtureRegressor(max_epochs=50, folds=0, device="cpu", random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x[fitted], y[fitted])
    dist, dist_cal = model.predict_dist(x[test]), model.predict_dist(x[cal])
    observed, known = torch.as_tensor(y[test]), torch.as_tensor(y[cal])
    discrete = sum(cells is not None for cells in model.rounding_.cells)
    region = model.predict_region(x[test], calibration=(x[cal], y[cal]), random_state=seed)
    box = model.predict_region(
        x[test], calibration=(x[cal], y[cal]), shape="box", random_state=seed
    )
    own = model.predict_region(x[test], random_state=seed)
    found = []
    for level in LEVELS:
        here, joint = region.at(level), box.at(level)
        log_volume = here.volume(n_samples=500, generator=seed).log()
        inside = here.contains(observed)
        per_target = 1 - (1 - level) / y.shape[1]
        limits = predictive_interval(
            dist, per_target, calibration=(dist_cal, known), generator=seed
        )
        covered = {"box": joint.contains(observed), "bonferroni": within(limits, observed)}
        volumes = {"box": joint.volume().log()}
        if not discrete:
            volumes["bonferroni"] = (limits[..., 1] - limits[..., 0]).log().sum(-1)
            covered["ellipsoid"], volumes["ellipsoid"] = ellipsoids(
                dist, dist_cal, observed, known, level
            )
        null = count_distribution(len(cal), len(test), level)
        found.append(
            {
                "dataset": name,
                "seed": seed,
                "level": level,
                "targets": y.shape[1],
                "discrete": discrete,
                "calibration_rows": len(cal),
                "test_rows": len(test),
                "inside": int(inside.sum()),
                "lower": int(null.ppf(0.025)),
                "upper": int(null.ppf(0.975)),
                "p_value": two_sided(int(inside.sum()), null),
                "own": float(own.at(level).contains(observed).double().mean()),
                **{o: float(c.double().mean()) for o, c in covered.items()},
                **{
                    f"{o}_volume": float((v - log_volume)[log_volume.isfinite()].median().exp())
                    for o, v in volumes.items()
                },
                "seconds": round(time.perf_counter() - started, 1),
            }
        )
    return found


def adjusted(table: pd.DataFrame) -> pd.Series:
    """P-values of all cells after Holm's correction."""
    return pd.Series(holm(table.p_value.to_numpy()), table.index)


def coverage_table(table: pd.DataFrame) -> str:
    """Coverage of density regions, and of the forecast's own at 0.9."""
    header = ["dataset", "targets", "discrete", "calibration", "test"]
    header += [f"{level:g}" for level in LEVELS] + ["own, 0.9", "box, 0.9"]
    body = []
    for (name, _), part in table.groupby(["dataset", "seed"], sort=False):
        first, at = part.iloc[0], part.set_index("level")
        counts = ["targets", "discrete", "calibration_rows", "test_rows"]
        cells = []
        for level in LEVELS:
            line = at.loc[level]
            out = "" if line.lower <= line.inside <= line.upper else " *"
            cells.append(number(line.inside / line.test_rows, 3) + out)
        others = [number(at.loc[0.9, kind], 3) for kind in ("own", "box")]
        body.append([str(name), *(str(first[c]) for c in counts), *cells, *others])
    return markdown(header, body)


def volume_table(table: pd.DataFrame) -> str:
    """Volumes over those of density regions."""
    header = ["dataset", "targets", *(f"{o}, {v:g}" for v in (0.5, 0.9) for o in OTHERS)]
    body = []
    for (name, _), part in table.groupby(["dataset", "seed"], sort=False):
        at = part.set_index("level")
        ratios = [at.loc[v, f"{o}_volume"] for v in (0.5, 0.9) for o in OTHERS]
        body.append(
            [str(name), str(part.iloc[0].targets)]
            + ["" if math.isnan(r) else f"{r:.2f}" if r < 1000 else f"{r:.0e}" for r in ratios]
        )
    return markdown(header, body)


def summary(table: pd.DataFrame) -> str:
    """How many cells are where they should be, and which regions are smallest."""
    outside = int(((table.inside < table.lower) | (table.inside > table.upper)).sum())
    least = adjusted(table)
    text = (
        f"{outside} of {len(table)} cells lie outside of their own 95 % interval (starred; "
        f"{number(0.05 * len(table), 1)} are expected), {int((least < 0.05).sum())} after Holm's "
        f"correction; the smallest corrected p-value is {number(least.min(), 2)}."
    )
    for other in OTHERS:
        ratio = table[f"{other}_volume"].dropna()
        text += (
            f"\n- {other}: larger than the density region in {int((ratio > 1).sum())} of "
            f"{len(ratio)} cells, by a factor of {number(ratio.median(), 2)} in the median cell; "
            f"covers {percent(table[table.level == 0.9][other].mean(), 1)} at the level 0.9 on "
            "average."
        )
    return text


def page_tables(table: pd.DataFrame) -> dict[str, Any]:
    """Tables of the page by their markers."""
    makers = {"summary": summary, "coverage": coverage_table, "volume": volume_table}
    return {name: lambda make=make: make(table) for name, make in makers.items()}


def main() -> None:
    """Measure, write the table and fill the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--datasets", nargs="+", choices=NAMES, default=list(NAMES))
    options = parser.parse_args()
    torch.set_num_threads(1)
    for seed in options.seeds:
        for name in options.datasets:
            found = pd.DataFrame(lines(name, seed))
            print(found.to_string(index=False), flush=True)
            if TABLE.exists():
                old = pd.read_csv(TABLE)
                found = pd.concat([old[(old.dataset != name) | (old.seed != seed)], found])
            found.sort_values(["seed", "dataset", "level"]).to_csv(
                TABLE, index=False, float_format="%.5g"
            )
    PAGE.write_text(filled(PAGE.read_text(), page_tables(pd.read_csv(TABLE))))


if __name__ == "__main__":
    main()
