"""Dates as numbers that a network can learn from."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from prerank.errors import InputError

__all__ = ["CYCLES", "DateFeatures", "holds_dates"]

CYCLES = {"year": 365.2425, "week": 7.0, "day": 1.0}
"""Days of the cycles that dates may have."""


@dataclass(frozen=True)
class DateFeatures:
    r"""A trend and the cycles of a column of dates.

    For t in days since 1970, :math:`t_0` the first day seen and cycles of P days, the features are

    .. math:: t - t_0, \quad \sin(2 \pi t / P), \quad \cos(2 \pi t / P).

    Attributes:
        first: :math:`t_0`.
        cycles: names among `year`, `week` and `day`: those that the dates seen go through at least
            once, and in which they differ. A part of a cycle that was never seen tells nothing.

    Example:
        >>> import pandas as pd
        >>> days = pd.Series(pd.date_range("2024-01-01", periods=30))
        >>> features = DateFeatures.fit(days)
        >>> features.cycles, features(days).shape, str(features)
        (('week',), (30, 3), 'days since 2024-01-01, sine and cosine of week')
    """

    first: float
    cycles: tuple[str, ...]

    @classmethod
    def fit(cls, column: Any) -> "DateFeatures":
        """Learn the first day and the cycles of a Series of dates."""
        days = _days(column)
        known = days[~np.isnan(days)]
        if not len(known):
            raise InputError(f"column {column.name!r} has no date in any row: leave it out")
        span = float(np.ptp(known))
        seen = (
            name for name, period in CYCLES.items() if span >= period and np.ptp(known % period) > 0
        )
        return cls(float(known.min()), tuple(seen))

    @property
    def width(self) -> int:
        """Number of features."""
        return 1 + 2 * len(self.cycles)

    def __call__(self, column: Any) -> npt.NDArray[np.float64]:
        """Features `(N, F)` of a Series of N dates; NaN where one is missing."""
        days = _days(column)
        turns = [2 * np.pi * days / CYCLES[name] for name in self.cycles]
        waves = [wave(turn) for turn in turns for wave in (np.sin, np.cos)]
        return np.stack([days - self.first, *waves], axis=1)

    def __str__(self) -> str:
        """The features in words."""
        start = np.datetime64(0, "s") + np.timedelta64(round(86_400 * self.first), "s")
        waves = f", sine and cosine of {' and '.join(self.cycles)}" if self.cycles else ""
        return f"days since {str(start)[:10]}{waves}"


def holds_dates(column: Any) -> bool:
    """Whether a Series holds dates, with or without a time zone."""
    from pandas.api.types import is_datetime64_any_dtype

    return bool(is_datetime64_any_dtype(column))


def _days(column: Any) -> npt.NDArray[np.float64]:
    """Days since 1970 by the local clock, which the habits of people and of the sun follow."""
    if column.isna().all():
        return np.full(len(column), np.nan)
    if not holds_dates(column):
        raise InputError(f"column {column.name!r} held dates in fit and now holds none")
    local = column if column.dt.tz is None else column.dt.tz_localize(None)
    times = local.to_numpy(dtype="datetime64[us]")
    days: npt.NDArray[np.float64] = times.astype(np.int64) / 86_400e6
    days[np.isnat(times)] = np.nan
    return days
