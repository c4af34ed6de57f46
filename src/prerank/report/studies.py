"""Figures of a study, from its tables."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["bars_figure", "boxes_figure", "nulls_figure", "reliability_figure"]

# Distinct for colour-blind readers, and in print by lightness.
_BEFORE, _AFTER, _REFERENCE = "#b35900", "#1f4e8c", "#666666"


def bars_figure(
    before: "pd.DataFrame", after: "pd.DataFrame", floors: dict[str, float]
) -> "Figure":
    """PCE before and after, one panel for each dataset, with what a right predictor scores.

    Args:
        before: columns `dataset`, `prerank`, `mean`, `se`.
        after: likewise.
        floors: PCE of a perfectly calibrated predictor, by dataset.
    """
    datasets = list(dict.fromkeys(before.dataset))
    figure, axes = _panels(len(datasets))
    for axis, dataset in zip(axes, datasets, strict=True):
        labels = list(before[before.dataset == dataset].prerank)
        place = np.arange(len(labels))
        for offset, table, color, name in (
            (-0.2, before, _BEFORE, "before"),
            (0.2, after, _AFTER, "after"),
        ):
            own = table[table.dataset == dataset].set_index("prerank").reindex(labels)
            error = own.se.fillna(0)
            axis.bar(place + offset, own["mean"], 0.4, yerr=error, color=color, label=name)
        axis.axhline(floors[dataset], color=_REFERENCE, linestyle="--", label="right predictor")
        axis.set_xticks(place, labels, rotation=60, ha="right", fontsize="small")
        axis.set(title=dataset, ylabel="PCE")
    if axes:
        axes[0].legend(fontsize="small")
    return figure


def boxes_figure(results: "pd.DataFrame", dataset: str) -> "Figure":
    """Spread over the runs of PCE (mean over pre-ranks), NLL and energy score, by variant."""
    rows = results[(results.dataset == dataset) & (results.part == "test") & results.selected]
    by_run = rows.groupby(["variant", "seed"], sort=False)[["pce", "nll", "energy"]].mean()
    variants = list(dict.fromkeys(rows.variant))
    figure, axes = _panels(3, width=1.2 + 0.28 * len(variants))
    for axis, (column, name) in zip(
        axes, (("pce", "PCE"), ("nll", "NLL"), ("energy", "energy score")), strict=True
    ):
        axis.boxplot([by_run.loc[variant][column].to_numpy() for variant in variants])
        axis.set_xticks(range(1, len(variants) + 1), variants, rotation=90, fontsize="small")
        axis.set(title=f"{dataset}: {name}")
    return figure


def reliability_figure(results: "pd.DataFrame", dataset: str) -> "Figure":
    """Curves before and after each penalty: of its own pre-rank above, of the margins below."""
    rows = results[(results.dataset == dataset) & (results.part == "test") & results.selected]
    rows = rows[rows.curve.notna()]
    labels = [label for label in dict.fromkeys(rows.prerank) if label in set(rows.variant)]
    figure, axes = _panels(2 * len(labels), columns=max(1, len(labels)), width=2.2)
    for column, variant in enumerate(labels):
        for row, shown in enumerate((variant, "marginal")):
            axis = axes[row * len(labels) + column]
            axis.plot([0, 1], [0, 1], color=_REFERENCE, linewidth=0.8)
            for name, color, style in (("none", _BEFORE, "--"), (variant, _AFTER, "-")):
                own = rows[(rows.variant == name) & (rows.prerank == shown)]
                for curve in own.curve:
                    levels = np.linspace(0, 1, len(curve))
                    axis.plot(levels, curve, style, color=color, alpha=0.6, linewidth=1)
            axis.set(title=f"{shown}", xlim=(0, 1), ylim=(0, 1), aspect="equal")
            axis.set_xlabel(f"penalty: {variant}", fontsize="small")
    return figure


def nulls_figure(
    nulls: dict[str, npt.NDArray[np.float64]], observed: dict[str, dict[str, float]], title: str
) -> "Figure":
    """What the mean PCE over the runs would be if they were right, and what it is.

    Args:
        nulls: replicates by pre-rank.
        observed: by pre-rank, values by name, such as `"before"` and `"after"`.
        title: of the figure.
    """
    figure, axes = _panels(len(nulls), width=2.4)
    for axis, (label, null) in zip(axes, nulls.items(), strict=True):
        axis.hist(null, bins=40, color="#cccccc")
        for name, color in (("before", _BEFORE), ("after", _AFTER)):
            if name in observed[label]:
                axis.axvline(observed[label][name], color=color, label=name)
        axis.set(title=label, xlabel="PCE", yticks=[])
    if axes:
        axes[0].legend(fontsize="small")
    figure.suptitle(title)
    return figure


def _panels(count: int, *, columns: int = 4, width: float = 3.4) -> "tuple[Figure, list[Any]]":
    from matplotlib.figure import Figure

    columns = max(1, min(count, columns))
    rows = max(1, -(-count // columns))
    figure = Figure(figsize=(width * columns, 2.8 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    for axis in axes[count:]:
        axis.remove()
    return figure, axes[:count]
