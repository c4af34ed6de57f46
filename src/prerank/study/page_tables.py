"""Tables as the page of a study shows them, and what its bars leave out."""

import math
from typing import TYPE_CHECKING

from prerank.defaults import NULL_REPLICATES
from prerank.report.wording import AtMost, Measured, listed
from prerank.study.plans import NONE

if TYPE_CHECKING:
    import pandas as pd

    from prerank.study.store import Store

__all__ = ["missing_bars", "page_table", "resolution_words"]

_ERRORS = {name: "se" if name == "mean" else f"{name}_se" for name in ("mean", "excess", "gain")}
_ERRORS["paper"] = "paper_se"
_ROUNDING = 1e-9


def page_table(table: "pd.DataFrame", n_null: int) -> "pd.DataFrame":
    """A table with standard errors beside their means, and without columns that say nothing.

    These are empty, or count runs of which there are equally many everywhere. So all columns of
    the widest table fit on a screen; CSV files have each in a column of its own.

    Args:
        table: of the report.
        n_null: replicates of the study.

    Example:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"mean": [0.0123], "se": [0.00123], "paper": [float("nan")]})
        >>> page_table(table, 99).columns.tolist()
        ['mean']
    """
    shown = table.dropna(axis="columns", how="all") if len(table) else table.copy()
    if "runs" in shown and shown.runs.nunique() == 1 and len(shown) > 1:
        shown = shown.drop(columns="runs")
    for name, error in _ERRORS.items():
        if name in shown and error in shown:
            pairs = zip(shown[name], shown[error], strict=True)
            shown = _with(shown, name, [Measured(*pair) for pair in pairs])
        shown = shown.drop(columns=error, errors="ignore")
    if "p_value" in shown:
        least = [_is_least(float(p), n_null) for p in shown.p_value]
        for name in ("p_value", "p_holm"):
            values = zip(shown[name], least, strict=True)
            shown = _with(shown, name, [AtMost(p) if at else p for p, at in values])
    return shown


def _with(table: "pd.DataFrame", name: str, values: list[float]) -> "pd.DataFrame":
    """A column of numbers that know how they are written, which a column of floats would forget."""
    import pandas as pd

    return table.assign(**{name: pd.Series(values, table.index, dtype=object)})


def _is_least(p: float, n_null: int) -> bool:
    """Whether no replicate was as large as the observed number."""
    counts = (n_null, NULL_REPLICATES)
    return any(math.isclose(p, 1 / (count + 1), rel_tol=_ROUNDING) for count in counts)


def resolution_words(n_null: int) -> str:
    """How small p-values can be: beyond that they may not be compared."""
    several, one = (1 / (count + 1) for count in (n_null, NULL_REPLICATES))
    return (
        f"P-values are simulated: {n_null:,} replicates of several components resolve "
        f"{several:.2g}, {NULL_REPLICATES:,} of a single one {one:.0e}. ≤ marks a p-value that no "
        "replicate reached, which more replicates could make smaller."
    )


def missing_bars(before: "pd.DataFrame", after: "pd.DataFrame", store: "Store") -> tuple[str, ...]:
    """Sentences on cells of the plan that have no bar after a penalty, by their reasons."""
    plan, columns = store.plan, ["dataset", "prerank"]
    there = set(zip(*(after[name] for name in columns), strict=True))
    skipped = {(one["dataset"], one["variant"]) for one in store.skipped()}
    left = {(unit.dataset, unit.variant) for unit in store.left()}
    known = dict.fromkeys(zip(*(before[name] for name in columns), strict=True))
    single = {cell: None for cell in sorted(skipped) if "+" not in cell[1]}
    unplanned: list[str] = []
    others: dict[str, list[str]] = {}
    for dataset, label in known | single:
        cell = (dataset, label)
        if cell in there:
            continue
        if label not in plan.variants:
            unplanned.append(str(label))
            continue
        reason = "is not done yet" if cell in left else "has no result"
        reason = "does not apply" if cell in skipped else reason
        others.setdefault(reason, []).append(f"{label} of {dataset}")
    sentences = []
    if unplanned:
        names = listed(list(dict.fromkeys(unplanned)))
        sentences.append(f"No bar after a penalty: the plan has none on {names} alone.")
    sentences += [
        f"No bar after a penalty on {listed(names)}, which {reason}."
        for reason, names in others.items()
    ]
    undone = [dataset for dataset in plan.datasets if (dataset, NONE) in left]
    if undone:
        sentences.append(f"No bars of {listed(undone)}: its unpenalised runs are not done yet.")
    return tuple(sentences)
