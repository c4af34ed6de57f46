"""Reading forecasts made elsewhere, and what was observed, from files of several formats."""

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from prerank.errors import InputError
from prerank.files.column_files import ROW_NUMBERS, read_columns
from prerank.files.comparison import factorise
from prerank.files.forecast_parts import Choices, Forecasts, Matched
from prerank.files.frames import Frame, is_numeric, listed, option
from prerank.files.netcdf import (
    dataset_observations,
    dataset_targets,
    match_dataset,
    read_dataset,
)
from prerank.files.sample_arrays import (
    KEY_PREFIX,
    array_names,
    array_observations,
    match_array,
    read_arrays,
)
from prerank.files.sample_tables import match_table, numbered_columns, offered_targets
from prerank.files.user_tables import Names, pick_names
from prerank.inputs import repeated

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["read_forecasts"]

_TABLES = (".csv", ".tsv", ".txt", ".data", ".arff", ".parquet", ".pq")
_ARRAYS, _NETCDF = (".npy", ".npz"), (".nc", ".nc4", ".netcdf")

Content: TypeAlias = "Frame | dict[str, npt.NDArray[Any]] | xr.Dataset"


def read_forecasts(
    samples: str | os.PathLike[str],
    observations: str | os.PathLike[str] | None,
    *,
    targets: str | Names | None = None,
    key: str | Names | None = None,
    sample: str | None = None,
    sample_axis: int | None = None,
    by: str | None = None,
) -> Forecasts:
    r"""Read samples of forecasts and what was observed, and put them side by side.

    Samples and observations may be of different formats; suffixes tell:

    - Tables (CSV, ARFF, Parquet). *Long* ones have a row for each forecast and sample, with a
      column `sample`, `member`, `realization`, `number`, `draw` or `ensemble` and one for each
      target. *Wide* ones have a row for each forecast, with columns `rain_0`, `rain_1`, ... (or
      `rain.0`, `rain-0`, `rain 0`, `rain[0]`) for a target `rain`.
    - Arrays (`.npy`, `.npz`): `(S, N, D)`, or `(S, N)` for a single target. An .npz file names
      them `samples` and `observations`; it may name the targets in an array `targets`, the axis
      of the samples in `sample_axis`, and hold a key such as `day` in an array `key_day`.
    - netCDF (`.nc`): variables are targets, one dimension has one of the names above, and the
      others span the rows. Needs the libraries of the extra `netcdf`.

    Forecasts find their observations by the columns or coordinates that both files have; else by a
    column `row` of the samples, which counts the rows of the observations from 0; else by their
    order, unless the table is long. What has no counterpart is left out, with a remark.

    Args:
        samples: path of the samples.
        observations: path of the observations; None where they are in the file of the samples.
        targets: names of the targets, or a function that gives them once all names in the files
            are known; by default all numeric columns of the observations for which there are
            samples.
        key: names of the columns that identify a forecast; by default those that both files have
            and that are nothing else.
        sample: the column or dimension that numbers the samples, if it has another name.
        sample_axis: the axis of the samples in an array; by default the first that fits.
        by: a column whose values, as text, are the groups of the rows.

    Raises:
        InputError: when a file cannot be read or used; the message begins with its path.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file, truth = Path(folder, "samples.csv"), Path(folder, "observations.csv")
        ...     _ = file.write_text("day,rain_0,rain_1\n2,0.5,0.7\n1,0.1,0.2\n")
        ...     _ = truth.write_text("day,rain\n1,0.3\n2,0.6\n3,0.4\n")
        ...     forecasts = read_forecasts(file, truth)
        >>> forecasts.samples[..., 0]
        array([[0.1, 0.5],
               [0.2, 0.7]])
        >>> forecasts.remarks[1]
        '1 of 3 rows of the observations have no forecast and were left out'
    """
    source = Path(samples)
    truth = source if observations is None else Path(observations)
    predicted = _read(source)
    alone = truth == source or (truth.exists() and truth.samefile(source))
    observed = predicted if alone else _read(truth)
    known = {*_names_in(source, predicted), *_names_in(truth, observed)}
    choices = Choices(
        _names(targets, "targets", known), _names(key, "key", known), sample, sample_axis, by
    )
    _check_choices(source, predicted, choices)
    if alone:
        frame = _own_observations(source, predicted, choices)
    else:
        frame = _observations(truth, observed, _offered(predicted, choices), choices)
    if isinstance(predicted, Frame):
        matched = match_table(predicted, frame, choices)
    elif isinstance(predicted, dict):
        matched = match_array(source, predicted, frame, choices)
    else:
        matched = match_dataset(source, predicted, frame, choices)
    _check_samples(source, matched)
    values = _observed_values(frame, matched)
    groups = None if by is None else _groups(frame, matched, by)
    remarks = matched.remarks
    if choices.targets is None and not alone:
        ours = _names_in(source, predicted) | {*(choices.key or ()), by}
        theirs = [name for name in _numeric_names(observed, frame) if name not in ours]
        remarks = (*remarks, *_unjudged(matched, theirs, truth))
    return Forecasts(matched.values, values, matched.targets, groups, remarks)


def _read(path: Path) -> Content:
    """What a file holds: columns, arrays or a dataset, as its suffix says."""
    suffix = path.suffix.lower()
    if suffix not in _TABLES + _ARRAYS + _NETCDF:
        raise InputError(
            f"{path}: a file that ends in {suffix!r} cannot be read: known are "
            f"{', '.join(_TABLES + _ARRAYS + _NETCDF)}"
        )
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except (OSError, ValueError) as error:  # the latter where the path is no text for the system
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be read: {reason}") from error
    if empty:
        raise InputError(f"{path}: the file is empty")
    if suffix in _ARRAYS:
        return read_arrays(path)
    if suffix in _NETCDF:
        return read_dataset(path)
    table = read_columns(path)
    if table.num_rows == 0:
        raise InputError(f"{path}: the table has no rows")
    names = [name for name in table.column_names if not ROW_NUMBERS.fullmatch(name)]
    return Frame(path, table.num_rows, {name: table[name] for name in names})


def _own_observations(path: Path, content: Content, choices: Choices) -> Frame:
    """Observations that stand in the file of the samples."""
    if isinstance(content, Frame):
        return content
    if isinstance(content, dict) and "observations" in content:
        return array_observations(path, content, choices.targets)
    raise InputError(
        f"{path}: there are no observations beside the samples: an .npz file can hold them in an "
        "array 'observations', a wide table in columns of their own; or name another file"
    )


def _observations(
    path: Path, content: Content, offered: Collection[str], choices: Choices
) -> Frame:
    """Observations as columns; those without names take the ones that the samples offer."""
    if isinstance(content, Frame):
        return content
    if isinstance(content, dict):
        return array_observations(path, content, choices.targets or tuple(offered) or None)
    known = dataset_targets(content)
    names = choices.targets or tuple(name for name in known if name in offered) or known
    if not names:
        raise InputError(f"{path}: there is no variable with numbers for a target")
    return dataset_observations(path, content, names)


def _offered(content: Content, choices: Choices) -> tuple[str, ...]:
    """Names that the file of samples has for its targets; none where it has no names."""
    if isinstance(content, Frame):
        return offered_targets(content, choices)
    if isinstance(content, dict):
        return array_names(content) or ()
    return dataset_targets(content)


def _numeric_names(content: Content, frame: Frame) -> tuple[str, ...]:
    """Names of the observations that could be targets."""
    if isinstance(content, Frame | dict):
        return tuple(name for name, column in frame.columns.items() if is_numeric(column))
    return dataset_targets(content)


def _unjudged(matched: Matched, theirs: Sequence[str], truth: Path) -> Iterator[str]:
    """What only one of the files has: a name that is spelt differently, for instance."""
    ours = [name for name in matched.sampled if name not in matched.targets]
    theirs = [name for name in theirs if name not in matched.targets]
    if ours:
        yield f"samples without a column in {truth.name} were not judged: {listed(ours)}"
    if theirs:
        yield f"columns of {truth.name} without samples were not judged: {listed(theirs)}"


def _check_choices(path: Path, content: Content, choices: Choices) -> None:
    """Refuse what says nothing about a file of this format."""
    if choices.sample_axis is not None and not isinstance(content, dict):
        raise InputError(
            f"{path}: {option('sample_axis')} is for arrays: use {option('sample')} for tables and "
            "netCDF"
        )
    if choices.sample is not None and isinstance(content, dict):
        raise InputError(
            f"{path}: {option('sample')} is for tables and netCDF: use {option('sample_axis')} for "
            "arrays"
        )


def _check_samples(path: Path, matched: Matched) -> None:
    values = matched.values
    if len(values) < 2:
        raise InputError(f"{path}: {len(values)} sample for each forecast, where 2 are needed")
    bad = ~np.isfinite(values)
    if bad.any():
        s, n, d = (int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape))
        raise InputError(
            f"{path}: {int(bad.sum())} of {bad.size} values are missing, NaN or infinite, the "
            f"first in {matched.place(s, n, d)}: remove those forecasts, or mend them"
        )


def _observed_values(frame: Frame, matched: Matched) -> npt.NDArray[np.float64]:
    """Observations of the forecasts, `(N, D)`."""
    columns = [frame.numbers(name, " for a target")[matched.rows] for name in matched.targets]
    values = np.stack(columns, axis=-1)
    bad = ~np.isfinite(values)
    if bad.any():
        rows = np.any(bad, axis=1)
        n = int(rows.argmax())
        where = frame.described(tuple(frame.dims), int(matched.rows[n]))
        raise InputError(
            f"{frame.path}: {int(rows.sum())} of {len(rows)} observations are missing, NaN or "
            f"infinite, the first in column {matched.targets[int(bad[n].argmax())]!r}, {where}: "
            "remove those rows first"
        )
    return values


def _groups(frame: Frame, matched: Matched, by: str) -> tuple[str, ...]:
    """The group of each row: from the observations, or else from the samples."""
    source = matched.source
    if by in frame.columns or by not in source.columns:
        return frame.text(by, matched.rows)
    origins = matched.origins.reshape(len(matched.rows), -1)  # (N, S) for a long table
    codes = factorise([source.columns[by]])[origins]
    mixed = (codes != codes[:, :1]).any(axis=1)
    if mixed.any():
        first = int(origins[int(mixed.argmax()), 0])
        raise InputError(
            f"{source.path}: column {by!r} for the groups differs among the samples of a forecast, "
            f"that of data row {first + 1}: groups are groups of forecasts"
        )
    return source.text(by, origins[:, 0])


def _names_in(path: Path, content: Content) -> set[str]:
    """All names that a file knows: of columns, targets, keys and dimensions."""
    if isinstance(content, Frame):
        return {*content.columns, *numbered_columns(content)}
    if not isinstance(content, dict):
        return {str(name) for name in (*content.variables, *content.dims)}
    targets = array_names(content) or ()
    again = repeated(targets)
    if again:
        raise InputError(
            f"{path}: the array 'targets' names {', '.join(again)} more than once: give each "
            "target a name of its own"
        )
    keys = (name.removeprefix(KEY_PREFIX) for name in content if name.startswith(KEY_PREFIX))
    return {*targets, *keys}


def _names(value: str | Names | None, what: str, known: Collection[str]) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = [value] if isinstance(value, str) else pick_names(value, known)
    again = repeated(names)
    if again:
        raise InputError(f"{option(what)} names {', '.join(again)} more than once: name each once")
    if not names:
        raise InputError(f"{option(what)} is empty: name a column at least")
    return tuple(names)
