"""Is the default beaten? Paired comparisons of the forms, and the targets that were set.

    python experiments/frontier/comparison.py results

For equal energy score, the strength of every form is selected on validation rows under the same
budget; what counts is the excess on test rows, paired by seed. With five seeds and hundreds of
comparisons some are beyond two standard errors by chance: 5.8 % of them on one side, were all
forms alike and the seeds normal.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from prerank.calibration import holm
from summary import Curve, curves

TUNING = ("households", "air", "births2", "scm20d", "scpf", "house", "wq")
BUDGETS = (0.01, 0.02, 0.05, 0.10)
DEFAULT = "default"
TARGETS = {
    ("births2", "marginal"): 0.008,
    ("births2", "hdr"): 0.012,
    ("air", "hdr"): 0.012,
    ("households", "hdr"): 0.010,
    ("scm20d", "scale"): 0.012,
    ("births2", "copula"): 0.015,
}
"""Most that may be left, with the strength selected under 10 %."""

Curves = dict[tuple[str, str, str], Curve]


@dataclass(frozen=True)
class Difference:
    """Excess of the default above that of another form, paired by seed, `(seeds,)`."""

    values: np.ndarray

    @property
    def mean(self) -> float:
        """Positive where the default is worse."""
        return float(self.values.mean())

    @property
    def error(self) -> float:
        """Standard error."""
        return float(self.values.std(ddof=1) / len(self.values) ** 0.5)

    @property
    def p_value(self) -> float:
        """One-sided, of a default that is no worse."""
        if self.error == 0:
            return 1.0
        return float(stats.t.sf(self.mean / self.error, len(self.values) - 1))


def selected(curve: Curve, budget: float) -> np.ndarray:
    """Excess on test rows at the strength that the validation rows select, `(seeds,)`."""
    _, place = curve.selected(budget)
    excess: np.ndarray = curve.excess["test"][place]
    return excess


def reached(found: Curves) -> Iterator[str]:
    """The targets, and whether copula training does harm anywhere."""
    yield "| dataset | pre-rank | before | after | energy | target | |"
    yield "|---|---|---:|---:|---:|---:|---|"
    for (dataset, label), most in TARGETS.items():
        if (dataset, label, DEFAULT) in found:
            yield _reached(found[dataset, label, DEFAULT], dataset, label, most)
    for (dataset, label, form), curve in found.items():
        if form == DEFAULT and label == "copula":
            _, place = curve.selected(0.10)
            change = Difference(curve.excess["test"][place] - curve.excess["test"][0])
            limit = curve.excess["test"][0].mean() + 2 * change.error
            yield _reached(curve, dataset, "copula, no harm", limit)


def _reached(curve: Curve, dataset: str, label: str, most: float) -> str:
    _, place = curve.selected(0.10)
    before, after = (curve.excess["test"][i].mean() for i in (0, place))
    return (
        f"| {dataset} | {label} | {before:.4f} | {after:.4f} | {curve.cost[place]:+.1%} "
        f"| {most:.4f} | {'reached' if after <= most else 'missed'} |"
    )


def rivals(found: Curves) -> Iterator[str]:
    """Every other form against the default: by dataset, over its pre-ranks and the budgets."""
    yield "| dataset | form | cells | default worse by | se | p | p (Holm) |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    for dataset in TUNING:
        forms = sorted({f for d, _, f in found if d == dataset and f != DEFAULT})
        rows = [(form, list(_differences(found, dataset, form))) for form in forms]
        rows = [(form, cells) for form, cells in rows if cells]
        pooled = [Difference(np.mean([c.values for c in cells], axis=0)) for _, cells in rows]
        corrected = holm([difference.p_value for difference in pooled])
        order = np.argsort([difference.p_value for difference in pooled])
        for k in order:
            (form, cells), difference = rows[k], pooled[k]
            yield (
                f"| {dataset} | {form} | {len(cells)} | {1e4 * difference.mean:.0f} "
                f"| {1e4 * difference.error:.0f} | {difference.p_value:.3f} | {corrected[k]:.2f} |"
            )


def _differences(found: Curves, dataset: str, form: str) -> Iterator[Difference]:
    for label in sorted({key[1] for key in found if key[0] == dataset}):
        pair = [found.get((dataset, label, name)) for name in (DEFAULT, form)]
        for budget in BUDGETS if None not in pair else ():
            ours, theirs = (selected(curve, budget) for curve in pair if curve is not None)
            yield Difference(ours - theirs)


def main() -> None:
    """Compare from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    found = curves(parser.parse_args().folder)
    for part in (reached, rivals):
        print("\n".join(part(found)), end="\n\n")


if __name__ == "__main__":
    main()
