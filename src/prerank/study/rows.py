"""The rows of a unit's result: their columns, and the values that these may hold."""

import platform
import re
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from prerank.errors import InputError
from prerank.files import versions, write_atomically
from prerank.files.column_files import read_parquet
from prerank.study.plans import Plan

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["OtherPlanError", "Unit", "read_result", "settings", "write_result"]

_TEXTS = ("dataset", "variant", "part", "prerank")
_NUMBERS = ("strength", "seed", "epochs", "best_epoch", "pce", "floor", "n", "energy", "nll")
_LATER = ("variogram",)  # that older results do not have
_PUBLISHED = ("published_pce", "published_energy", "published_nll")
_LISTS = ("curve", "null")
_KEYS = ["part", "prerank", "strength", "seed"]
_MOST_ROWS = 2**31  # that a model was judged on


class OtherPlanError(InputError):
    """A file is complete, but made with other settings than those of the study."""


@dataclass(frozen=True)
class Unit:
    """One dataset with one variant: all strengths and seeds of it."""

    dataset: str
    variant: str

    @property
    def stem(self) -> str:
        """Name of its files."""
        return f"{self.dataset}--{self.variant.replace('(', '-').replace(')', '')}"


def read_result(path: Path, unit: Unit, plan: Plan) -> "pd.DataFrame":
    """Read the rows of a unit, with the seconds that it took and the hash of its dataset's rows.

    Args:
        path: of the file.
        unit: that every row has to name.
        plan: of the study, by which the unit has to have been done.

    Raises:
        OSError: when the file cannot be opened.
        OtherPlanError: when it was made by other settings.
        InputError: when it is damaged, or holds anything but these rows.
    """
    table = read_parquet(path)
    numbers = _NUMBERS + (_PUBLISHED if plan.protocol == "published" else ())
    numbers += tuple(name for name in _LATER if name in table.column_names)
    _check_types(table, numbers)
    about = table.schema.metadata or {}
    try:
        seconds = float(about[b"seconds"])
        made_by = settings(about[b"plan"].decode())
    except (KeyError, ValueError, RecursionError):
        raise InputError("it does not hold its plan, or the seconds that it took") from None
    if made_by != settings(plan.to_toml()):
        raise OtherPlanError("it was made by another plan")
    wanted = {*_TEXTS, *numbers, "selected", *_LISTS}
    names = [name for name in table.column_names if name in wanted]
    frame: pd.DataFrame = table.select(names).to_pandas()
    _check_values(frame, unit)
    content = about.get(b"content", b"").decode(errors="replace")
    return frame.assign(seconds=seconds, content=content)


def write_result(path: Path, frame: "pd.DataFrame", about: dict[str, Any]) -> None:
    """Write the rows of a unit, with text about them, versions, machine and time."""
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.Table.from_pandas(frame, preserve_index=False)
    about = {**about, "machine": platform.platform()}
    about |= {f"version.{name}": text for name, text in versions().items()}
    if torch.cuda.is_available():
        about["gpu"] = torch.cuda.get_device_name()
    about["written"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    text = {key: str(value) for key, value in about.items()}
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), **text})
    write_atomically(path, lambda file: parquet.write_table(table, file, write_page_checksum=True))


def settings(text: str) -> dict[str, Any]:
    """Entries that decide the numbers of a unit: a plan without its name, datasets and variants."""
    listed = ("name", "datasets", "variants")
    return {key: value for key, value in tomllib.loads(text).items() if key not in listed}


def _check_types(table: "pa.Table", numbers: tuple[str, ...]) -> None:
    from pyarrow import types

    tests = {
        "text": (_TEXTS, lambda t: types.is_string(t) or types.is_large_string(t)),
        "numbers": (numbers, lambda t: types.is_integer(t) or types.is_floating(t)),
        "truth values": (("selected",), types.is_boolean),
        "lists of numbers": (
            _LISTS,
            lambda t: types.is_null(t) or (types.is_list(t) and types.is_floating(t.value_type)),
        ),
    }
    for what, (names, test) in tests.items():
        for name in names:
            if name not in table.column_names or not test(table.schema.field(name).type):
                raise InputError(f"it has no column {name!r} of {what}")
    for name in (*_TEXTS, "strength", "seed", "selected"):
        if table[name].null_count:
            raise InputError(f"column {name!r} has missing values")


def _check_values(frame: "pd.DataFrame", unit: Unit) -> None:
    judged = frame[frame.pce.notna()]
    expected = {
        "dataset of a row": len(frame) > 0,
        "dataset": (frame.dataset == unit.dataset).all(),
        "variant": (frame.variant == unit.variant).all(),
        "part": frame.part.isin(["validation", "test"]).all(),
        "prerank": all(re.fullmatch(r"[\w.()+-]+", text) for text in frame.prerank.unique()),
        "n": judged.n.between(1, _MOST_ROWS).all(),
        "strength, seed": not frame.duplicated(_KEYS).any(),
        **{name: frame[name].dropna().map(len).nunique() <= 1 for name in _LISTS},
    }
    wrong = [name for name, right in expected.items() if not right]
    if wrong:
        raise InputError(f"column {wrong[0]} has values that no result of this unit has")
