"""Writing samples such that `read_forecasts` reads them back."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prerank.errors import InputError, ShapeError
from prerank.extras import needed_by
from prerank.files.alignment import ROW
from prerank.files.columns import as_arrow
from prerank.files.disk import write_atomically
from prerank.files.frames import factorise, naming
from prerank.files.sample_arrays import KEY_PREFIX
from prerank.files.visible_text import formula_safe

__all__ = ["DELIMITERS", "PARQUET", "WRITABLE", "write_samples"]

DELIMITERS = {".csv": ",", ".tsv": "\t"}
PARQUET, _ARRAYS = (".parquet", ".pq"), (".npz",)
WRITABLE = (*DELIMITERS, *PARQUET, *_ARRAYS)
"""Suffixes of the files that `write_samples` writes."""

_SAMPLE = "sample"


@needed_by("write_samples")
def write_samples(
    path: str | os.PathLike[str],
    samples: npt.ArrayLike,
    targets: Sequence[str],
    key: Mapping[str, npt.ArrayLike] | None = None,
) -> Path:
    r"""Write samples in one step: as a long table, or as arrays.

    A table has a row for each forecast and sample, with the columns of the key, `sample` and one
    for each target. An .npz file has the arrays `samples`, `sample_axis`, `targets` and,
    for a key `day`, `key_day`.

    Args:
        path: `.parquet`, `.pq`, `.csv`, `.tsv` or `.npz`. Of these, CSV does not keep the types of
            a key: text that looks like a number is read as one. Names and texts that a spreadsheet
            would run begin with `'` there, and characters that are not shown are escapes.
        samples: `(S, N, D)`, or `(S, N)` for a single target; at least 2 samples, and finite.
        targets: names of the targets, D of them.
        key: N values for each column that identifies a forecast: numbers, dates or text. By
            default a column `row` counts the forecasts from 0.

    Returns:
        The path.

    Example:
        >>> import tempfile
        >>> from prerank.files import read_forecasts
        >>> samples = np.arange(12.0).reshape(3, 2, 2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = write_samples(Path(folder, "s.parquet"), samples, ["wind", "rain"])
        ...     truth = Path(folder, "y.csv")
        ...     _ = truth.write_text("wind,rain\n1,2\n3,4\n")
        ...     forecasts = read_forecasts(file, truth)
        >>> bool((forecasts.samples == samples).all())
        True
    """
    goal = Path(path)
    suffix = goal.suffix.lower()
    if suffix not in WRITABLE:
        raise InputError(
            f"{goal}: a file that ends in {suffix!r} cannot be written: known are "
            f"{', '.join(WRITABLE)}"
        )
    names = tuple(targets)
    with naming(goal):
        values = _check_values(samples, names)
        keys = None if key is None else _check_keys(key, values.shape[1])
        _check_names([*(keys if keys is not None else (ROW,)), _SAMPLE, *names])

    def write(file: Path) -> None:
        if suffix in _ARRAYS:
            stored: dict[str, Any] = {f"{KEY_PREFIX}{name}": k for name, k in (keys or {}).items()}
            with file.open("wb") as opened:  # given a name, numpy would add a suffix to it
                np.savez(opened, samples=values, sample_axis=0, targets=np.array(names), **stored)
            return
        import pyarrow as pa
        from pyarrow import parquet

        n_samples, n_rows, _ = values.shape
        places = pa.array(np.repeat(np.arange(n_rows), n_samples))
        rows = {ROW: np.arange(n_rows)} if keys is None else keys
        columns = {name: as_arrow(values).take(places) for name, values in rows.items()}
        columns[_SAMPLE] = as_arrow(np.tile(np.arange(n_samples), n_rows))
        for d, name in enumerate(names):
            columns[name] = as_arrow(values[..., d].T.ravel())
        if suffix in PARQUET:
            parquet.write_table(pa.table(columns), file, compression="zstd")
        else:
            table = formula_safe(pa.table(columns).to_pandas())
            table.to_csv(file, sep=DELIMITERS[suffix], index=False)

    try:
        return write_atomically(goal, write)
    except OSError as error:
        raise InputError(f"{goal}: cannot be written: {error.strerror or error}") from error


def _check_values(samples: npt.ArrayLike, targets: tuple[str, ...]) -> npt.NDArray[np.float64]:
    values = np.asarray(samples)
    if values.dtype.kind not in "fiub":
        raise InputError(f"samples are of type {values.dtype}: only numbers can be written")
    values = values.astype(np.float64)
    if values.ndim == 2 and len(targets) == 1:
        values = values[..., None]
    if values.ndim != 3 or values.shape[2] != len(targets) or 0 in values.shape:
        raise ShapeError(
            f"samples have shape {values.shape}: for {len(targets)} targets they must be (S, N, "
            f"{len(targets)}), and not empty"
        )
    if len(values) < 2:
        raise InputError("1 sample for each forecast, where 2 are needed")
    bad = int((~np.isfinite(values)).sum())
    if bad:
        raise InputError(f"{bad} of {values.size} samples are NaN or infinite")
    return values


def _check_keys(key: Mapping[str, npt.ArrayLike], size: int) -> dict[str, npt.NDArray[Any]]:
    """Keys as arrays of numbers, dates or text that identify the forecasts."""
    keys = {name: np.asarray(values) for name, values in key.items()}
    if not keys:
        raise InputError("a key needs at least one column; None counts the forecasts")
    for name, values in keys.items():
        if values.dtype.kind in "OT":
            if not all(isinstance(value, str) for value in values.ravel()):
                raise InputError(f"key {name!r} must hold numbers, dates or text alone")
            keys[name] = values.astype(np.str_)
        if values.shape != (size,):
            raise ShapeError(
                f"key {name!r} has shape {values.shape}, where there are {size} forecasts"
            )
        dated = values.dtype.kind in "mM"
        missing = np.isnat(values) if dated else values != values  # noqa: PLR0124
        if missing.any():
            first = int(missing.argmax())
            raise InputError(f"key {name!r} has no value for forecast {first} (from 0 on)")
    codes = factorise([as_arrow(values) for values in keys.values()])
    _, first_rows = np.unique(codes, return_index=True)
    if len(first_rows) < size:
        second = int(np.setdiff1d(np.arange(size), first_rows)[0])
        first = int((codes == codes[second]).argmax())
        raise InputError(f"forecasts {first} and {second} (from 0 on) have the same key")
    return keys


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if not name or name != name.strip() or names.count(name) > 1:
            raise InputError(
                f"{name!r} cannot name a column: names must differ from each other and from "
                f"{_SAMPLE!r}, and have no spaces around them"
            )
