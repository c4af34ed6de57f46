"""Writing samples such that `read_forecasts` reads them back."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from prerank.errors import InputError, ShapeError
from prerank.files.alignment import ROW
from prerank.files.atomic import write_atomically
from prerank.files.columns import as_arrow
from prerank.files.comparison import factorise
from prerank.files.sample_arrays import KEY_PREFIX

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["write_samples"]

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_PARQUET, _ARRAYS = (".parquet", ".pq"), (".npz",)
_SAMPLE = "sample"


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
            a key: text that looks like a number is read as one.
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
    known = (*_DELIMITERS, *_PARQUET, *_ARRAYS)
    if suffix not in known:
        raise InputError(
            f"{goal}: a file that ends in {suffix!r} cannot be written: known are "
            f"{', '.join(known)}"
        )
    names = tuple(targets)
    values = _check_values(goal, samples, names)
    keys = None if key is None else _check_keys(goal, key, values.shape[1])
    _check_names(goal, [*(keys if keys is not None else (ROW,)), _SAMPLE, *names])
    try:
        if suffix in _ARRAYS:
            return write_atomically(goal, lambda file: _write_arrays(file, values, names, keys))
        table = _long_table(values, names, keys)
        if suffix in _PARQUET:
            return write_atomically(goal, lambda file: _write_parquet(file, table))
        return write_atomically(goal, lambda file: _write_csv(file, table, _DELIMITERS[suffix]))
    except OSError as error:
        raise InputError(f"{goal}: cannot be written: {error.strerror or error}") from error


def _check_values(
    path: Path, samples: npt.ArrayLike, targets: tuple[str, ...]
) -> npt.NDArray[np.float64]:
    values = np.asarray(samples)
    if values.dtype.kind not in "fiub":
        raise InputError(f"{path}: samples are of type {values.dtype}: only numbers can be written")
    values = values.astype(np.float64)
    if values.ndim == 2 and len(targets) == 1:
        values = values[..., None]
    if values.ndim != 3 or values.shape[2] != len(targets) or 0 in values.shape:
        raise ShapeError(
            f"{path}: samples have shape {values.shape}: for {len(targets)} targets they must be "
            f"(S, N, {len(targets)}), and not empty"
        )
    if len(values) < 2:
        raise InputError(f"{path}: 1 sample for each forecast, where 2 are needed")
    bad = int((~np.isfinite(values)).sum())
    if bad:
        raise InputError(f"{path}: {bad} of {values.size} samples are NaN or infinite")
    return values


def _check_keys(
    path: Path, key: Mapping[str, npt.ArrayLike], size: int
) -> dict[str, npt.NDArray[Any]]:
    """Keys as arrays of numbers, dates or text that tell the forecasts apart."""
    keys = {name: _check_key(path, name, np.asarray(values), size) for name, values in key.items()}
    if not keys:
        raise InputError(f"{path}: a key needs at least one column; None counts the forecasts")
    codes = factorise([as_arrow(values) for values in keys.values()])
    _, first = np.unique(codes, return_index=True)
    if len(first) < size:
        second = int(np.setdiff1d(np.arange(size), first)[0])
        raise InputError(
            f"{path}: forecasts {int((codes == codes[second]).argmax())} and {second} (from 0 on) "
            "have the same key"
        )
    return keys


def _check_key(path: Path, name: str, values: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    if values.dtype.kind in "OT":
        if not all(isinstance(value, str) for value in values.ravel()):
            raise InputError(f"{path}: key {name!r} must hold numbers, dates or text alone")
        values = values.astype(np.str_)
    if values.shape != (size,):
        raise ShapeError(
            f"{path}: key {name!r} has shape {values.shape}, where there are {size} forecasts"
        )
    missing = np.isnat(values) if values.dtype.kind in "mM" else values != values  # noqa: PLR0124
    if missing.any():
        raise InputError(
            f"{path}: key {name!r} has no value for forecast {int(missing.argmax())} (from 0 on)"
        )
    return values


def _check_names(path: Path, names: Sequence[str]) -> None:
    for name in names:
        if not name or name != name.strip() or names.count(name) > 1:
            raise InputError(
                f"{path}: {name!r} cannot name a column: names must differ from each other and "
                f"from {_SAMPLE!r}, and have no spaces around them"
            )


def _long_table(
    values: npt.NDArray[np.float64],
    targets: tuple[str, ...],
    keys: Mapping[str, npt.NDArray[Any]] | None,
) -> "pa.Table":
    import pyarrow as pa

    n_samples, n_rows, _ = values.shape
    keys = {ROW: np.arange(n_rows)} if keys is None else keys
    places = pa.array(np.repeat(np.arange(n_rows), n_samples))
    columns = {name: as_arrow(key).take(places) for name, key in keys.items()}
    columns[_SAMPLE] = as_arrow(np.tile(np.arange(n_samples), n_rows))
    for d, name in enumerate(targets):
        columns[name] = as_arrow(values[..., d].T.ravel())
    return pa.table(columns)


def _write_parquet(file: Path, table: "pa.Table") -> None:
    from pyarrow import parquet

    parquet.write_table(table, file, compression="zstd")


def _write_csv(file: Path, table: "pa.Table", delimiter: str) -> None:
    from pyarrow import csv

    csv.write_csv(table, file, csv.WriteOptions(delimiter=delimiter))


def _write_arrays(
    file: Path,
    values: npt.NDArray[np.float64],
    targets: tuple[str, ...],
    keys: Mapping[str, npt.NDArray[Any]] | None,
) -> None:
    stored: dict[str, Any] = {f"{KEY_PREFIX}{name}": key for name, key in (keys or {}).items()}
    with file.open("wb") as opened:  # given a name, numpy would add a suffix to it
        np.savez(opened, samples=values, sample_axis=0, targets=np.array(targets), **stored)
