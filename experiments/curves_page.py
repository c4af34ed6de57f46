"""Tables and figures of `docs/results/curves.md`: few rows, many targets, wrong forms.

    PYTHONPATH=src python experiments/curves_page.py

draws the figures from `tables/curves/*.csv` of `learning_curves.py` and `tables/predictors.csv` of
`predictors.py`; `claims.py` puts the tables between their markers. The *error* of a forecast is the
root of the mean over seeds and pre-ranks of the paper of the unbiased squared error, in .0001. The
mean under the root is 0 on average for a calibrated forecast, whatever the number of test rows.
"""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from head_results import PAPER, UNSEEN
from inference import LEVEL, adjusted, overlap_p
from marked_pages import markdown
from predictors import FLOW_ROWS, ROWS, TEST_ROWS
from prerank.datasets import find_dataset, published_split
from prerank.report.drawing import COLOURS

TABLES = Path(__file__).parents[1] / "docs" / "results" / "tables"
ALONE = "likelihood alone"
NAMES = {
    ("base", "none"): ALONE,
    ("paper", "none"): "the paper's penalty",
    ("exact", "none"): "exact penalty",
    ("base", "head"): "calibration head",
}
METHODS = {
    "none": ALONE,
    "trained together": "trained together",
    "penalty": "exact penalty",
    "head": "calibration head",
}
COLOUR = dict(zip([*NAMES.values(), "trained together"], COLOURS, strict=False))
_LEAST = 10.0  # of the logarithmic axis; smaller errors are drawn there


@cache
def curves(tables: Path) -> pd.DataFrame:
    """A line for each part, dataset, value, name and seed: squared error and changes of scores."""
    paths = sorted((tables / "curves").glob("*.csv"))
    lines = pd.concat([pd.read_csv(path) for path in paths], ignore_index=True)
    lines["name"] = [NAMES[pair] for pair in zip(lines.forecast, lines.method, strict=True)]
    return _runs(lines, ["varied", "dataset", "value"])


@cache
def forms(tables: Path) -> pd.DataFrame:
    """The same for each dataset, predictor, name and seed."""
    lines = pd.read_csv(tables / "predictors.csv")
    lines["name"] = lines.method.map(METHODS)
    return _runs(lines, ["dataset", "forecast"])


def _runs(lines: pd.DataFrame, problem: list[str]) -> pd.DataFrame:
    """Means over pre-ranks, and scores relative to likelihood alone, for each seed."""
    keys = [*problem, "name", "seed"]
    runs = lines.groupby(keys, sort=False)[["rows", "nll_change_trimmed", "energy"]].first()
    runs["squared"] = lines[lines.prerank.isin(PAPER)].groupby(keys).squared.mean()
    runs["unseen"] = lines[lines.prerank.isin(UNSEEN)].groupby(keys).squared.mean()
    plain = runs.xs(ALONE, level="name")
    runs = runs.reset_index("name")
    runs["energy"] = runs.energy / plain.energy.reindex(runs.index) - 1
    runs["difference"] = runs.squared - plain.squared.reindex(runs.index)
    return runs.rename(columns={"nll_change_trimmed": "nll"}).reset_index()


def error(squared: pd.Series) -> float:
    """Root of a mean square, 0 where chance made it negative."""
    return float(1e4 * max(squared.mean(), 0.0) ** 0.5)


def table(tables: Path, varied: str) -> str:
    """Error of every method at every value, and what the penalty and the head cost."""
    runs, lines = curves(tables), []
    own = runs[runs.varied == varied]
    for (dataset, value), part in own.groupby(["dataset", "value"]):
        by = part.groupby("name")
        line = [str(dataset), f"{value:,}"] if varied == "rows" else [f"{value}"]
        line += [f"{error(by.get_group(name).squared):.0f}" for name in NAMES.values()]
        for score, factor, form in (("nll", 1, "+z.2f"), ("energy", 100, "+z.1f")):
            means = factor * by[score].mean()
            line += [f"{means[name]:{form}}" for name in list(NAMES.values())[1:]]
        lines.append(line)
    head = ["dataset", "rows"] if varied == "rows" else ["targets"]
    short = ["paper", "exact", "head"]
    head += ["alone", *short, *(f"NLL, {name}" for name in short)]
    head += [f"energy %, {name}" for name in short]
    return markdown(head, lines, len(head) - 10)


def forms_table(tables: Path) -> str:
    """Error, unseen error and scores of every predictor behind every method."""
    runs, lines = forms(tables), []
    certain = _certain(runs)
    for (dataset, forecast, name), part in runs.groupby(
        ["dataset", "forecast", "name"], sort=False
    ):
        plain = name == ALONE
        line = [dataset, forecast, name, f"{error(part.squared):.0f}"]
        line += ["" if plain else certain[dataset, forecast, name], f"{error(part.unseen):.0f}"]
        line += ["" if plain else f"{part.nll.mean():+z.2f}"]
        lines.append([*line, "" if plain else f"{100 * part.energy.mean():+z.1f}"])
    head = ["dataset", "predictor", "method", "error", "p", "unseen", "NLL", "energy %"]
    return markdown(head, lines, 3)


def _certain(runs: pd.DataFrame) -> dict[tuple[str, str, str], str]:
    """P-values of the change of the squared error, over overlapping splits, after BH."""
    changed = runs[runs.name != ALONE].groupby(["dataset", "forecast", "name"], sort=False)
    mean, spread = changed.difference.mean(), changed.difference.sem()
    ratios = [_ratio(*problem) for problem in mean.index]
    found = adjusted(overlap_p(mean, spread, int(changed.size().iloc[0]), ratios))
    texts = [f"{value:.3f}{'' if value >= LEVEL else ' *'}" for value in found]
    return dict(zip(mean.index, texts, strict=True))


def _ratio(dataset: str, forecast: str, name: str) -> float:
    """Judged rows over those that a method was fitted to."""
    split = published_split(min(ROWS, find_dataset(dataset).n_rows), seed=0)
    fitted, more = len(split.train) + len(split.validation), len(split.calibration)
    if forecast == "flow":  # the head sees so many of the validation and calibration rows
        more *= min(1.0, FLOW_ROWS / (len(split.validation) + more))
    fitted += more if name == METHODS["head"] else 0
    return min(len(split.test), TEST_ROWS) / fitted


def rows_figure(runs: pd.DataFrame) -> Figure:
    """Error over the number of rows, a panel for each dataset; dots are seeds."""
    own = runs[runs.varied == "rows"]
    names = sorted(own.dataset.unique())
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    axes = figure.subplots(1, len(names), sharey=True)
    for axis, name in zip(axes, names, strict=True):
        _curves(axis, own[own.dataset == name])
        axis.set(title=name, xlabel="rows", xscale="log")
    axes[0].set_ylabel("error, .0001")
    return _with_legend(figure, axes[0])


def targets_figure(runs: pd.DataFrame) -> Figure:
    """Error over the number of targets, and what the likelihood changes by."""
    own = runs[runs.varied == "targets"]
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    _curves(left, own)
    left.set_ylabel("error, .0001")
    for name, part in own[own.name != ALONE].groupby("name"):
        means = part.groupby("value").nll.mean()
        right.plot(means.index, means, color=COLOUR[str(name)], marker=".")
    right.axhline(0, color="#999999", linewidth=0.8)
    right.set_ylabel("change of NLL, nats per row")
    for axis in (left, right):
        axis.set(xlabel="targets", xscale="log")
        axis.set_xticks(sorted(own.value.unique()), [f"{n}" for n in sorted(own.value.unique())])
        axis.minorticks_off()
    return _with_legend(figure, left)


def forms_figure(runs: pd.DataFrame) -> Figure:
    """Error of every predictor behind every method, a panel for each dataset; dots are seeds."""
    names, predictors = list(runs.dataset.unique()), list(runs.forecast.unique())
    figure = Figure(figsize=(12, 3.8), layout="constrained")
    axes = figure.subplots(1, len(names), sharey=True)
    for axis, name in zip(axes, names, strict=True):
        for step, method in enumerate(METHODS.values()):
            own = runs[(runs.dataset == name) & (runs.name == method)]
            colour = COLOUR[method]
            places = own.forecast.map(predictors.index) + 0.16 * (step - 1.5)
            shown = 1e4 * own.squared.clip(lower=0) ** 0.5
            axis.plot(places, shown.clip(lower=_LEAST), ".", color=colour, alpha=0.3)
            means = own.groupby(places).squared.agg(error).clip(lower=_LEAST)
            axis.plot(means.index, means, "D", color=colour, label=method)
        axis.set(title=name, yscale="log")
        axis.set_xticks(range(len(predictors)), predictors, rotation=30, ha="right")
    axes[0].set_ylabel("error, .0001")
    return _with_legend(figure, axes[0])


def _curves(axis: Axes, runs: pd.DataFrame) -> None:
    """A line of means for each method, and a dot for each seed."""
    for name in NAMES.values():
        own, colour = runs[runs.name == name], COLOUR[name]
        shown = 1e4 * own.squared.clip(lower=0) ** 0.5
        axis.plot(own.value, shown.clip(lower=_LEAST), ".", color=colour, alpha=0.3)
        means = own.groupby("value").squared.agg(error).clip(lower=_LEAST)
        axis.plot(means.index, means, color=colour, label=name)
    axis.set_yscale("log")


def _with_legend(figure: Figure, axis: Axes) -> Figure:
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize="small")
    return figure


BLOCKS: dict[str, Callable[[Path], str]] = {
    "rows": partial(table, varied="rows"),
    "targets": partial(table, varied="targets"),
    "forms": forms_table,
}


def main() -> None:
    """Draw the figures."""
    found = curves(TABLES)
    drawn = {"rows": rows_figure(found), "targets": targets_figure(found)}
    drawn["forms"] = forms_figure(forms(TABLES))
    for name, figure in drawn.items():
        path = TABLES.parent / "figures" / f"curves-{name}.png"
        figure.savefig(path, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
