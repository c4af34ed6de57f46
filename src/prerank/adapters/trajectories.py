r"""Sampled forecasts of time series: H steps ahead, from several starts, of one or more series.

Each forecast is a trajectory of H steps of V variates. As one event it has

.. math:: D = H \cdot V

values; with the steps as rows D = V. The rows of one start depend on each other, and so do those of
starts less than H steps apart.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prerank.errors import InputError, ShapeError
from prerank.extras import library
from prerank.inputs import wrong_type

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["from_darts", "from_gluonts"]


def from_gluonts(
    forecasts: Iterable[object], series: Iterable[Any]
) -> "tuple[xr.DataArray, xr.DataArray]":
    """Samples and observations of what `make_evaluation_predictions` of GluonTS returns.

    `prerank.diagnose(samples, y, target=("step", "variate"), time="start")` asks whether whole
    trajectories are calibrated, `target="variate"` whether each step is. Either way `time="start"`
    allows for rows that depend on each other.

    Args:
        forecasts: `SampleForecast` objects, all of the same numbers of samples and steps. Others
            need `to_sample_forecast` first; quantiles are not enough.
        series: the observed series of each forecast, as pandas objects with a `PeriodIndex` that
            covers its steps.

    Returns:
        Samples with the dimensions `sample, forecast, step, variate`, and observations without
        the first. Coordinates: `series` and `start` of each forecast, `step` from 1 on, `variate`,
        and the `time` of each step.

    Example:
        >>> import pandas as pd, prerank
        >>> from gluonts.model.forecast import SampleForecast
        >>> rng = np.random.default_rng(0)
        >>> days = pd.period_range("2026-01-01", periods=400, freq="D")
        >>> flow = pd.Series(rng.normal(size=400), days)
        >>> forecasts = [
        ...     SampleForecast(rng.normal(size=(50, 2)), start, item_id="river")
        ...     for start in days[100:398:2]
        ... ]
        >>> samples, y = from_gluonts(forecasts, [flow] * len(forecasts))
        >>> dict(samples.sizes)
        {'sample': 50, 'forecast': 149, 'step': 2, 'variate': 1}
        >>> found = prerank.diagnose(samples, y, target=("step", "variate"), time="start")
        >>> found.verdict().failing, found.table.component.to_list()[1:3]
        ((), ['1/target', '2/target'])
    """
    import pandas as pd

    kind = library("gluonts.model.forecast", "from_gluonts").SampleForecast
    rows = []
    for forecast, whole in _pairs(forecasts, series):
        if not isinstance(forecast, kind):
            raise wrong_type(
                "forecasts",
                forecast,
                "SampleForecast objects of gluonts: others that can be sampled have "
                "to_sample_forecast",
            )
        if not isinstance(whole, pd.Series | pd.DataFrame):
            raise wrong_type("series", whole, "pandas objects, as make_evaluation_predictions has")
        times = forecast.index
        missing = ~times.isin(whole.index)
        if missing.any():
            raise _beyond(str(forecast.item_id), times[missing][0])
        alone = forecast.samples.ndim == 2 or isinstance(whole, pd.Series)
        names = ["target"] if alone else list(map(str, whole.columns))
        rows.append(
            _Trajectory(
                str(forecast.item_id),
                times.to_timestamp().to_numpy(),
                forecast.samples.reshape(*forecast.samples.shape[:2], -1),
                whole.loc[times].to_numpy().reshape(len(times), -1),
                names,
            )
        )
    return _joined(rows)


def from_darts(forecasts: Sequence[Any], series: Any) -> "tuple[xr.DataArray, xr.DataArray]":
    """Samples and observations of what `historical_forecasts` of darts returns.

    As `from_gluonts`, with `last_points_only=False` and `num_samples` above 1: each forecast is a
    trajectory. What `last_points_only=True` gives is a single one, whose steps are rows with
    `target="variate", time="time"`. The coordinate `series` numbers the series from 0.

    Args:
        forecasts: a list of stochastic `TimeSeries` with the same numbers of samples and steps; for
            several series a list of such lists.
        series: the observed `TimeSeries`, or a list of several.

    Example:
        >>> import prerank
        >>> from darts import TimeSeries
        >>> rng = np.random.default_rng(0)
        >>> flow = TimeSeries.from_values(rng.normal(size=(400, 1)))
        >>> forecasts = [
        ...     TimeSeries.from_times_and_values(flow.time_index[k : k + 2], drawn)
        ...     for k, drawn in zip(range(100, 398, 2), rng.normal(size=(149, 2, 1, 50)))
        ... ]
        >>> samples, y = from_darts(forecasts, flow)
        >>> found = prerank.diagnose(samples, y, target=("step", "variate"), time="start")
        >>> found.verdict().failing, found.table.component.to_list()[1:3]
        ((), ['1/0', '2/0'])
    """
    kind = library("darts", "from_darts").TimeSeries
    if isinstance(series, kind):
        forecasts, series = [forecasts], [series]
    rows = []
    for item, (own, whole) in enumerate(_pairs(forecasts, series)):
        if not isinstance(own, list | tuple | kind):
            raise wrong_type("forecasts", own, "a list of TimeSeries of darts, as series has")
        for forecast in [own] if isinstance(own, kind) else own:
            for value, name in ((forecast, "forecasts"), (whole, "series")):
                if not isinstance(value, kind):
                    raise wrong_type(name, value, "TimeSeries of darts")
            if forecast.n_samples < 2:
                raise InputError(
                    "forecasts has a TimeSeries with one sample: forecast with num_samples=100"
                )
            if whole.n_samples > 1:
                raise InputError(
                    f"series has a TimeSeries with {whole.n_samples} samples: give one"
                )
            times = forecast.time_index
            missing = ~times.isin(whole.time_index)
            if missing.any():
                raise _beyond(str(item), times[missing][0])
            rows.append(
                _Trajectory(
                    str(item),
                    times.to_numpy(),
                    np.moveaxis(forecast.all_values(), -1, 0),
                    whole[times].values(),
                    list(map(str, forecast.components)),
                )
            )
    return _joined(rows)


class _Trajectory(NamedTuple):
    item: str
    times: npt.NDArray[Any]  # (H,)
    samples: npt.NDArray[Any]  # (S, H, V)
    observed: npt.NDArray[Any]  # (H, V)
    variates: list[str]


def _pairs(forecasts: Iterable[Any], series: Iterable[Any]) -> list[tuple[Any, Any]]:
    for value, name in ((forecasts, "forecasts"), (series, "series")):
        if not isinstance(value, Iterable):
            raise wrong_type(name, value, "a list of forecasts, and one series for each")
    each, wholes = list(forecasts), list(series)
    if not each or len(each) != len(wholes):
        raise ShapeError(
            f"there are {len(each)} forecasts and {len(wholes)} series: give as many, and at least "
            "one"
        )
    return list(zip(each, wholes, strict=True))


def _beyond(item: str, time: object) -> InputError:
    return InputError(
        f"series {item!r} has no value at {time}, for which there is a forecast: leave such "
        "forecasts out, or give the series to its end"
    )


def _joined(rows: Sequence[_Trajectory]) -> "tuple[xr.DataArray, xr.DataArray]":
    """Arrays of all trajectories, which must be alike."""
    import xarray as xr

    if not rows:
        raise InputError("forecasts is empty: give at least one")
    kinds = {(row.samples.shape, row.observed.shape, *row.variates) for row in rows}
    if len(kinds) > 1 or rows[0].samples.shape[1:] != rows[0].observed.shape:
        shapes = sorted({(row.samples.shape, row.observed.shape) for row in rows})
        raise ShapeError(
            "all forecasts need the same samples, steps and variates, those of their series; "
            f"samples (S, H, V) and observations (H, V) have {shapes[:3]}"
        )
    coords = {
        "series": ("forecast", [row.item for row in rows]),
        "start": ("forecast", np.array([row.times[0] for row in rows])),
        "time": (("forecast", "step"), np.stack([row.times for row in rows])),
        "step": np.arange(1, len(rows[0].times) + 1),
        "variate": rows[0].variates,
    }
    dims = ("forecast", "step", "variate")
    samples = np.stack([row.samples for row in rows], 1)
    observed = np.stack([row.observed for row in rows])
    return xr.DataArray(samples, coords, ("sample", *dims)), xr.DataArray(observed, coords, dims)
