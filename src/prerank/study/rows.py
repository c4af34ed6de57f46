"""The rows of a unit's result: which columns there are, and what they may hold."""

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prerank.datasets.reading import read_parquet
from prerank.errors import InputError
from prerank.study.plans import Plan

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["read_result", "settings"]

_TEXTS = ("dataset", "variant", "part", "prerank")
_NUMBERS = ("strength", "seed", "epochs", "best_epoch", "pce", "floor", "n", "energy", "nll")
_PUBLISHED = ("published_pce", "published_energy", "published_nll")
_LISTS = ("curve", "null")
_KEYS = ["part", "prerank", "strength", "seed"]
_MOST_ROWS = 2**31  # that a model was judged on


def read_result(path: Path, dataset: str, variant: str, plan: Plan) -> "pd.DataFrame":
    """Read the rows of a unit, with the seconds that it took and the hash of what it learnt from.

    Args:
        path: of the file.
        dataset: of the unit, which every row has to name: files are named after it.
        variant: of the unit.
        plan: of the study, by which the unit has to have been done.

    Raises:
        OSError: when the file cannot be opened.
        InputError: when it is damaged, or holds anything but these rows.
    """
    table = read_parquet(path)
    numbers = _NUMBERS + (_PUBLISHED if plan.protocol == "published" else ())
    _check_types(table, numbers)
    about = table.schema.metadata or {}
    try:
        seconds = float(about[b"seconds"])
        made_by = settings(about[b"plan"].decode())
    except (KeyError, ValueError, RecursionError):
        raise InputError("it does not tell its plan, or the seconds that it took") from None
    if made_by != settings(plan.to_toml()):
        raise InputError("it was made by another plan")
    wanted = {*_TEXTS, *numbers, "selected", *_LISTS}
    names = [name for name in table.column_names if name in wanted]
    frame: pd.DataFrame = table.select(names).to_pandas()
    _check_values(frame, dataset, variant)
    content = about.get(b"content", b"").decode(errors="replace")
    return frame.assign(seconds=seconds, content=content)


def settings(text: str) -> dict[str, Any]:
    """What decides the numbers of a unit: a plan without its name, datasets and variants."""
    listed = ("name", "datasets", "variants")
    return {key: value for key, value in tomllib.loads(text).items() if key not in listed}


def _check_types(table: "pa.Table", numbers: tuple[str, ...]) -> None:
    import pyarrow as pa

    types = pa.types
    tests = {
        "text": (_TEXTS, lambda t: types.is_string(t) or types.is_large_string(t)),
        "numbers": (numbers, lambda t: types.is_integer(t) or types.is_floating(t)),
        "truth values": (("selected",), types.is_boolean),
        "lists of numbers": (_LISTS, lambda t: types.is_null(t) or _is_list(t)),
    }
    for what, (names, test) in tests.items():
        for name in names:
            if name not in table.column_names or not test(table.schema.field(name).type):
                raise InputError(f"it has no column {name!r} of {what}")
    for name in (*_TEXTS, "strength", "seed", "selected"):
        if table[name].null_count:
            raise InputError(f"column {name!r} has missing values")


def _is_list(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    return pa.types.is_list(kind) and pa.types.is_floating(kind.value_type)


def _check_values(frame: "pd.DataFrame", dataset: str, variant: str) -> None:
    judged = frame[frame.pce.notna()]
    expected = {
        "dataset of a row": len(frame) > 0,
        "dataset": (frame.dataset == dataset).all(),
        "variant": (frame.variant == variant).all(),
        "part": frame.part.isin(["validation", "test"]).all(),
        "prerank": all(re.fullmatch(r"[\w.()+-]+", text) for text in frame.prerank.unique()),
        "n": judged.n.between(1, _MOST_ROWS).all(),
        "strength, seed": not frame.duplicated(_KEYS).any(),
        **{name: frame[name].dropna().map(len).nunique() <= 1 for name in _LISTS},
    }
    wrong = [name for name, right in expected.items() if not right]
    if wrong:
        raise InputError(f"column {wrong[0]} has values that no result of this unit has")
