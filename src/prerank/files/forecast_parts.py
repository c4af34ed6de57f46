"""What was asked for, what is found in a file, and what comes of it."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prerank.errors import ShapeError
from prerank.files.frames import Frame

__all__ = ["Choices", "Forecasts", "Matched"]


@dataclass(frozen=True, eq=False)
class Forecasts:
    """Samples of N forecasts beside what was observed, row by row.

    Attributes:
        samples: `(S, N, D)`.
        observations: `(N, D)`.
        targets: names of the targets, D of them.
        groups: the group of each row, N of them; None where none were asked for.
        remarks: sentences on how the files were read, and on what was left out.

    Example:
        >>> forecasts = Forecasts(np.zeros((20, 5, 2)), np.ones((5, 2)), ("wind", "rain"))
        >>> forecasts.samples.shape, forecasts.targets
        ((20, 5, 2), ('wind', 'rain'))
    """

    samples: npt.NDArray[np.float64]
    observations: npt.NDArray[np.float64]
    targets: tuple[str, ...]
    groups: tuple[str, ...] | None = None
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that the parts fit together."""
        shape = self.observations.shape
        if self.samples.ndim != 3 or self.samples.shape[1:] != shape:
            raise ShapeError(
                f"samples have shape {self.samples.shape} and observations {shape}: they must be "
                "(S, N, D) and (N, D)"
            )
        rows = shape[0] if self.groups is None else len(self.groups)
        if (rows, len(self.targets)) != shape:
            raise ShapeError(
                f"observations have shape {shape}, but there are {rows} groups and "
                f"{len(self.targets)} names of targets"
            )


@dataclass(frozen=True)
class Choices:
    """What the caller said about the files; None where it is to be found out.

    Attributes:
        targets: names, in the order they shall have.
        key: names of the columns that identify a forecast.
        sample: name of the column, or the dimension, that numbers the samples.
        sample_axis: axis of the samples in an array.
        by: name of the column with the groups.
    """

    targets: tuple[str, ...] | None = None
    key: tuple[str, ...] | None = None
    sample: str | None = None
    sample_axis: int | None = None
    by: str | None = None


@dataclass(frozen=True, eq=False)
class Matched:
    """Samples that have found their observations.

    Attributes:
        values: `(S, N, D)`, not yet checked for missing values.
        targets: names of the targets, D of them.
        rows: `(N,)`, the row of the observations that belongs to each forecast, increasing.
        place: says in words where in the file the value of sample s, forecast n, target d stands.
        source: the columns of the file of samples.
        origins: `(N,)` or `(N, S)`, the row of `source` that each forecast comes from.
        sampled: names of all targets that the file has samples of.
        remarks: sentences on how they were matched.
    """

    values: npt.NDArray[np.float64]
    targets: tuple[str, ...]
    rows: npt.NDArray[np.int64]
    place: Callable[[int, int, int], str]
    source: Frame
    origins: npt.NDArray[np.int64]
    sampled: tuple[str, ...]
    remarks: tuple[str, ...] = ()
