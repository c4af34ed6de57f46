"""Forecasts and observations, read as the options of a command say."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prerank.cli.messages import named_by

if TYPE_CHECKING:
    from prerank.files import Forecasts

__all__ = ["read_as_asked"]


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

    names, keys = named_by(targets, "--targets"), named_by(key, "--key")
    dims = named_by(target, "--target")
    return read_forecasts(samples, observations, targets=names, key=keys, target=dims, **columns)
