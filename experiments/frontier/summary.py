"""What the forms reached: a table, and a figure for each dataset.

    python experiments/frontier/summary.py results --figures docs/results/figures

The table has, for each dataset, pre-rank and form, the strength that is selected on validation rows
under the 10 % budget, and the excess, the energy score and the likelihood that it has on test rows;
and how low the excess gets, on test rows, for at most 1, 2, 5 and 10 % of energy score. The figures
show the curves from which the latter are read.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prerank.files import read_json
from prerank.training import Selection, Trial, choose_strength
from run import NONE

_BUDGETS = (0.01, 0.02, 0.05, 0.10)
NAMED: dict[str, dict[str, Any]] = {
    "default": {"color": "black", "marker": "o", "markersize": 3, "zorder": 4},
    "not shifted": {"color": "#0072b2", "linestyle": "--", "zorder": 3},
    "from scratch": {"color": "#d55e00", "marker": "s", "markersize": 3, "zorder": 2},
}
"""Forms with a name in the figures; the others are thin lines."""


@dataclass(frozen=True)
class Curve:
    """One form of the penalty on one dataset and pre-rank, unpenalised runs first.

    Attributes:
        strengths: `(R,)`, ascending, the first 0.
        excess: by `"validation"` and `"test"`, `(R, seeds)`.
        energy: likewise.
        nll: likewise.
        noise: standard deviation of the excess of right runs on the validation rows, `(seeds,)`,
            as the weakest penalty shows it, which is nearly none.
    """

    strengths: list[float]
    excess: dict[str, np.ndarray]
    energy: dict[str, np.ndarray]
    nll: dict[str, np.ndarray]
    noise: np.ndarray

    @classmethod
    def of(cls, base: dict[str, Any], unit: dict[str, Any]) -> "Curve":
        """Put the unpenalised runs before those of a unit."""
        records = sorted([*base["records"], *unit["records"]], key=lambda r: r["strength"])
        strengths = sorted({r["strength"] for r in records})
        label = unit["prerank"]

        def values(where: str, read: Any) -> np.ndarray:
            rows = [[read(r[where]) for r in records if r["strength"] == s] for s in strengths]
            return np.array(rows)

        parts = ("validation", "test")
        return cls(
            strengths,
            {part: values(part, lambda r: r["excess"][label]) for part in parts},
            {part: values(part, lambda r: r["energy"]) for part in parts},
            {part: values(part, lambda r: r["nll"]) for part in parts},
            values("validation", lambda r: r["noise"])[1],
        )

    @property
    def cost(self) -> np.ndarray:
        """Energy score on test rows relative to unpenalised runs, minus 1."""
        mean = self.energy["test"].mean(1)
        return mean / mean[0] - 1

    def likelihood(self, place: int) -> float:
        """Median over the seeds of what the mean NLL of test rows has changed by."""
        return float(np.median(self.nll["test"][place] - self.nll["test"][0]))

    def lowest(self, budget: float) -> float:
        """Least mean excess on test rows among the strengths that cost at most so much."""
        return float(self.excess["test"].mean(1)[self.cost <= budget].min())

    def selected(self, budget: float = 0.10) -> tuple[Selection, int]:
        """What the validation rows select under a budget, and its place among the strengths."""
        judged = self.excess["validation"], self.energy["validation"]
        trials = [
            Trial(strength, *(values[i] for values in judged), self.noise)
            for i, strength in enumerate(self.strengths)
        ]
        selection = choose_strength(trials, budget=budget)
        return selection, self.strengths.index(selection.strength or 0.0)


def curves(folder: Path) -> dict[tuple[str, str, str], Curve]:
    """All curves of a folder by dataset, pre-rank and form."""
    units = [read_json(file) for file in sorted(folder.glob("*.json"))]
    bases = {unit["dataset"]: unit for unit in units if unit["prerank"] == NONE}
    return {
        (unit["dataset"], unit["prerank"], unit["form"]): Curve.of(bases[unit["dataset"]], unit)
        for unit in units
        if unit["prerank"] != NONE
    }


def table(found: dict[tuple[str, str, str], Curve]) -> Iterator[str]:
    """Lines of Markdown; excess in units of .0001."""
    within = " | ".join(f"≤ {budget:.0%}" for budget in _BUDGETS)
    about = "dataset | pre-rank | form | before | strength | after ± se | energy | NLL"
    yield f"| {about} | {within} |"
    yield "|---|---|---|" + "---:|" * (5 + len(_BUDGETS))
    for (dataset, label, form), curve in found.items():
        selection, place = curve.selected()
        excess = 1e4 * curve.excess["test"]
        error = excess[place].std(ddof=1) / excess.shape[1] ** 0.5
        strength = "none" if selection.strength is None else f"{selection.strength:g}"
        lowest = " | ".join(f"{1e4 * curve.lowest(budget):.0f}" for budget in _BUDGETS)
        yield (
            f"| {dataset} | {label} | {form} | {excess[0].mean():.0f} | {strength} "
            f"| {excess[place].mean():.0f} ± {error:.0f} | {curve.cost[place]:+.1%} "
            f"| {curve.likelihood(place):+.2f} | {lowest} |"
        )


def figure(dataset: str, found: dict[tuple[str, str, str], Curve], path: Path) -> None:
    """Excess against energy score, one panel for each pre-rank, one line for each form."""
    from matplotlib.figure import Figure

    mine = {key[1:]: curve for key, curve in found.items() if key[0] == dataset}
    labels = sorted({label for label, _ in mine})
    drawing = Figure(figsize=(3.2 * len(labels), 3.5), layout="constrained")
    axes = drawing.subplots(1, len(labels), squeeze=False)[0]
    for axis, label in zip(axes, labels, strict=True):
        for (own, form), curve in mine.items():
            if own == label:
                style = NAMED.get(form, {"color": "0.8", "linewidth": 0.7, "zorder": 1})
                name = form if form in NAMED else None
                axis.plot(100 * curve.cost, curve.excess["test"].mean(1), label=name, **style)
        axis.set(title=f"{dataset}: {label}", xlabel="energy score, %", xlim=(-4, 12))
        start = next(c for (own, _), c in mine.items() if own == label).excess["test"][0].mean()
        axis.set_ylim(min(-0.001, 1.5 * start), max(1.2 * start, 0.005))
        axis.axhline(0, color="black", linewidth=0.5)
    axes[0].set_ylabel("excess on test rows")
    handles, names = axes[0].get_legend_handles_labels()
    drawing.legend(handles, names, loc="outside lower center", ncols=len(names), fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, dpi=90)


def main() -> None:
    """Summarise from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--figures", type=Path)
    options = parser.parse_args()
    found = curves(options.folder)
    print("\n".join(table(found)))
    if options.figures is not None:
        for dataset in sorted({key[0] for key in found}):
            figure(dataset, found, options.figures / f"frontier-{dataset}.png")


if __name__ == "__main__":
    main()
