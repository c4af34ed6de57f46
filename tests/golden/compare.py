"""Golden files: reading, writing and comparing them."""

import json
import math
import os
from pathlib import Path

import numpy as np
import pandas as pd
import torch

FOLDER = Path(__file__).resolve().parent
EXACT = os.environ.get("PRERANK_GOLDEN_EXACT") == "1"
MASK = "<masked>"

# Relative and absolute tolerance for results that were computed in float64, for those that went
# through training in float32, and for those that then count rows: there, rounding can move a row
# from one side of a level to the other.
DOUBLE, SINGLE, COUNTED = (1e-9, 1e-12), (1e-4, 1e-5), (1e-4, 5e-3)
_COUNTED_KEYS = {"pce", "excess", "p_value", "p_holm", "curve", "null", "published_pce"}
_VOLATILE = {"seconds", "version", "versions", "date", "written", "machine"}


def plain(value):
    """Return a value that JSON can hold: arrays become lists, and NaN becomes None."""
    if isinstance(value, pd.DataFrame):
        return {str(name): plain(value[name].tolist()) for name in value.columns}
    if isinstance(value, torch.Tensor):
        return plain(value.detach().cpu().numpy())
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def masked(value, folder):
    """Replace entries that differ from run to run: durations, versions, dates, absolute paths."""
    if isinstance(value, dict):
        return {
            key: MASK if key in _VOLATILE else masked(entry, folder) for key, entry in value.items()
        }
    if isinstance(value, list):
        return [masked(entry, folder) for entry in value]
    return value.replace(str(folder), MASK) if isinstance(value, str) else value


def read(*parts):
    """Read a golden JSON file."""
    return json.loads(FOLDER.joinpath(*parts).read_text(encoding="utf-8"))


def write(value, *parts):
    """Write a golden JSON file."""
    path = FOLDER.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def check_same(found, expected, *, trained=False, where="", key=""):
    """Compare two JSON values: floats within tolerance, everything else exactly.

    Args:
        found: the value of today's code.
        expected: the value of the golden file.
        trained: whether the numbers went through training in float32.
        where: the place inside the value, for the message.
        key: the last key of that place, which decides the tolerance.
    """
    assert type(found) is type(expected), f"{where}: {found!r} instead of {expected!r}"
    if isinstance(expected, dict):
        assert list(found) == list(expected), f"{where}: the keys differ"
        for name in expected:
            check_same(
                found[name], expected[name], trained=trained, where=f"{where}/{name}", key=name
            )
    elif isinstance(expected, list):
        assert len(found) == len(expected), f"{where}: the lengths differ"
        for index, (one, two) in enumerate(zip(found, expected, strict=True)):
            check_same(one, two, trained=trained, where=f"{where}/{index}", key=key)
    elif isinstance(expected, float) and not EXACT:
        relative, absolute = (COUNTED if key in _COUNTED_KEYS else SINGLE) if trained else DOUBLE
        assert math.isclose(found, expected, rel_tol=relative, abs_tol=absolute), (
            f"{where}: {found!r} instead of {expected!r}"
        )
    else:
        assert found == expected, f"{where}: {found!r} instead of {expected!r}"
