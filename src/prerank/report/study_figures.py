"""Figures of a study, from its tables."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from prerank.preranks.parsing import bare_labels

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = [
    "bars_figure",
    "boxes_figure",
    "datasets_figure",
    "nulls_figure",
    "reliability_figure",
]

# Distinct for colour-blind readers, and in print by lightness.
_BEFORE, _AFTER, _REFERENCE = "#b35900", "#1f4e8c", "#666666"
_PAIR = (("before", -0.2, _BEFORE), ("after", 0.2, _AFTER))  # with its place beside a name
_NONE, _HEAD = "none", "head"  # the variants without a penalty
_BOXES: Any = {"medianprops": {"color": "black"}, "flierprops": {"markersize": 4}}


def bars_figure(
    before: "pd.DataFrame", after: "pd.DataFrame", floors: dict[str, float]
) -> "Figure":
    """PCE before and after, one panel for each dataset, with the floor of a calibrated forecast.

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
        for (name, offset, color), table in zip(_PAIR, (before, after), strict=True):
            own = table[table.dataset == dataset].set_index("prerank").reindex(labels)
            error = own.se.fillna(0)
            axis.bar(place + offset, own["mean"], 0.4, yerr=error, color=color, label=name)
        axis.axhline(floors[dataset], color=_REFERENCE, linestyle="--", label="calibrated forecast")
        axis.set_xticks(place, labels, rotation=60, ha="right", fontsize="small")
        axis.set(title=dataset, ylabel="PCE")
    if axes:
        # The line comes last: before and after stand beside each other.
        handles, names = axes[0].get_legend_handles_labels()
        _key(figure, [*handles[1:], handles[0]], [*names[1:], names[0]])
    return figure


def boxes_figure(results: "pd.DataFrame", dataset: str) -> "Figure":
    """Spread over the runs of the PCE that is penalised, and of NLL and energy score.

    For each penalty a box of the PCE of its own pre-ranks (their mean, where it has two) before,
    beside one after; a head has all of them. NLL and energy score by variant.
    """
    rows = results[(results.dataset == dataset) & (results.part == "test") & results.selected]
    variants = list(dict.fromkeys(rows.variant))
    penalties = [variant for variant in variants if variant != _NONE]
    by_run = rows.groupby(["variant", "seed"], sort=False)[["nll", "energy"]].mean()
    own = [
        rows if variant == _HEAD else rows[rows.prerank.isin(bare_labels(variant))]
        for variant in penalties
    ]
    before = [_by_run(cell[cell.variant == _NONE]) for cell in own]
    after = [_by_run(cell[cell.variant == v]) for cell, v in zip(own, penalties, strict=True)]
    pairs = dict(zip(penalties, zip(before, after, strict=True), strict=True))
    scores = {variant: by_run.loc[variant] for variant in variants}
    return _summary(pairs, scores, f"{dataset}: ")[0]


def datasets_figure(
    before: "pd.DataFrame", after: "pd.DataFrame", scores: "pd.DataFrame"
) -> "Figure":
    """Spread over the datasets, one point each: PCE before and after, and what that costs.

    Args:
        before: columns `dataset`, `prerank`, `mean`.
        after: likewise, of runs that were penalised by the pre-rank.
        scores: columns `dataset`, `variant`, `nll` and `energy`, relative to the unpenalised runs.
    """
    cells = after.merge(before, on=["dataset", "prerank"], suffixes=("", "_before"))
    labels = list(dict.fromkeys(cells.prerank))
    own = {label: cells[cells.prerank == label] for label in labels}
    pairs = {v: (cell.mean_before.dropna(), cell["mean"].dropna()) for v, cell in own.items()}
    costs = {v: scores[scores.variant == v] for v in (_NONE, *labels)}
    figure, axes = _summary(pairs, costs)
    relations = ("difference to none", "ratio to none, minus 1")
    for axis, relation in zip(axes[1:], relations, strict=True):
        axis.axhline(0, color=_REFERENCE, linestyle="--", linewidth=0.8)
        axis.set_ylabel(relation)
    return figure


def reliability_figure(results: "pd.DataFrame", dataset: str, company: str = "") -> "Figure":
    """Curves before and after each penalty: of its own pre-rank above, of the margins below.

    Args:
        results: of a study.
        dataset: which one to show.
        company: what stands before the pre-rank in the name of the penalty: nothing for one
            pre-rank alone, `"marginal+"` for pairs with the margins.
    """
    rows = results[(results.dataset == dataset) & (results.part == "test") & results.selected]
    rows = rows[rows.curve.notna()]
    trained = set(rows.variant)
    labels = [label for label in dict.fromkeys(rows.prerank) if company + label in trained]
    figure, axes = _panels(2 * len(labels), columns=max(1, len(labels)), width=2.2)
    lines: dict[str, Any] = {}
    for column, label in enumerate(labels):
        variant = company + label
        for row, shown in enumerate((label, "marginal")):
            axis = axes[row * len(labels) + column]
            axis.plot([0, 1], [0, 1], color=_REFERENCE, linewidth=0.8)
            for (name, _, color), trained_by in zip(_PAIR, (_NONE, variant), strict=True):
                style = "--" if name == "before" else "-"
                own = rows[(rows.variant == trained_by) & (rows.prerank == shown)]
                for curve in own.curve:
                    levels = np.linspace(0, 1, len(curve))
                    (line,) = axis.plot(levels, curve, style, color=color, alpha=0.6, linewidth=1)
                    lines.setdefault(name, line)
            axis.set(title=f"{shown}", xlim=(0, 1), ylim=(0, 1), aspect="equal")
            axis.set_xlabel(f"penalty: {variant}", fontsize="small")
    _key(figure, list(lines.values()), list(lines))
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
        for name, _, color in _PAIR:
            if name in observed[label]:
                axis.axvline(observed[label][name], color=color, label=name)
        axis.set(title=label, xlabel="PCE", yticks=[])
    if axes:
        _key(figure, *axes[0].get_legend_handles_labels())
    figure.suptitle(title)
    return figure


def _by_run(rows: "pd.DataFrame") -> "pd.Series[float]":
    return rows.groupby("seed").pce.mean().dropna()


def _summary(
    pairs: dict[str, tuple[Any, Any]], scores: "dict[str, pd.DataFrame]", start: str = ""
) -> "tuple[Figure, list[Any]]":
    """Boxes of the PCE before beside after by penalty, and of NLL and energy score by variant."""
    figure, axes = _panels(3, width=1.2 + 0.36 * len(scores), height=3.8)
    sides = zip(*pairs.values(), strict=True)  # none, if there is no penalty
    for (label, offset, color), values in zip(_PAIR, sides, strict=False):
        boxes = {"boxprops": {"facecolor": color, "alpha": 0.7}, "patch_artist": True, **_BOXES}
        places = np.arange(1, len(pairs) + 1) + offset
        axes[0].boxplot(values, positions=places, widths=0.3, label=label, **boxes)
        _name(axes[0], list(pairs))
    _key(figure, *axes[0].get_legend_handles_labels())
    for axis, column in zip(axes[1:], ("nll", "energy"), strict=True):
        axis.boxplot([own[column].dropna() for own in scores.values()], **_BOXES)
        _name(axis, list(scores))
    for axis, name in zip(axes, ("PCE", "NLL", "energy score"), strict=True):
        axis.set_title(start + name)
    return figure, axes


def _name(axis: Any, names: list[str]) -> None:
    axis.set_xticks(range(1, len(names) + 1), names, rotation=90, fontsize="small")


def _key(figure: "Figure", handles: list[Any], labels: list[str]) -> None:
    """A legend below the panels, where it hides nothing; none where it would be empty."""
    if handles:
        figure.legend(
            handles, labels, loc="outside lower center", ncols=len(labels), fontsize="small"
        )


def _panels(
    count: int, *, columns: int = 4, width: float = 3.4, height: float = 2.8
) -> "tuple[Figure, list[Any]]":
    from matplotlib.figure import Figure

    columns = max(1, min(count, columns))
    rows = max(1, -(-count // columns))
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    for axis in axes[count:]:
        axis.remove()
    return figure, axes[:count]
