"""Forecasts and observations, read as the options of a command say."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prerank.cli.messages import named_by

if TYPE_CHECKING:
    from prerank.files import Forecasts
    from prerank.files.grid_pairs import GridPair

__all__ = ["open_as_asked", "read_as_asked"]


def read_as_asked(
    samples: Path,
    observations: Path,
    *,
    targets: Sequence[str] | None,
    key: Sequence[str] | None,
    target: Sequence[str] | None = None,
    **columns: Any,
) -> "Forecasts":
    """Read forecasts, with the names that `--targets`, `--key` and `--target` give.

    Args:
        samples: path of the samples.
        observations: path of the observations.
        targets: values of the option.
        key: likewise.
        target: likewise.
        columns: further arguments of `prerank.files.read_forecasts`.
    """
    from prerank.files import read_forecasts

    return read_forecasts(samples, observations, **_names(targets, key, target), **columns)


def open_as_asked(
    samples: Path,
    observations: Path,
    *,
    targets: Sequence[str] | None,
    key: Sequence[str] | None,
    target: Sequence[str] | None,
    **columns: Any,
) -> "AbstractContextManager[GridPair | None]":
    """Open large netCDF files and zarr stores that can be read in blocks; None where none are.

    Args:
        samples: as for `read_as_asked`.
        observations: likewise.
        targets: likewise.
        key: likewise.
        target: likewise.
        columns: further arguments of `prerank.files.grid_pairs.open_pair`.
    """
    from prerank.files.grid_pairs import open_pair

    return open_pair(samples, observations, **_names(targets, key, target), **columns)


def _names(*values: Sequence[str] | None) -> dict[str, Any]:
    """Arguments from the values of `--targets`, `--key` and `--target`."""
    options = ("targets", "key", "target")
    return {name: named_by(value, f"--{name}") for name, value in zip(options, values, strict=True)}
