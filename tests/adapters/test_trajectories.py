"""Forecasts of gluonts and darts, whole trajectories as events."""

import numpy as np
import pandas as pd
import pytest

from adapters.judging import judge, load, repair
from prerank import diagnose
from prerank.adapters import from_darts, from_gluonts
from prerank.errors import PrerankError

gluonts, darts = load("gluonts.model.forecast"), load("darts")
pytestmark = pytest.mark.filterwarnings("default")  # of the libraries
dims = {"target": ("step", "variate"), "time": "start"}
STEPS = 3


def autoregressive(memory, days, seed=0):
    """A series with variance 1 whose values remember the last one."""
    rng = np.random.default_rng(seed)
    values = [rng.normal()]
    for noise in rng.normal(size=days - 1):
        values.append(memory * values[-1] + (1 - memory**2) ** 0.5 * noise)
    return np.array(values)


# --- gluonts ------------------------------------------------------------------------------------


def climatology(memory, *, starts=400, samples=40):
    """What gluonts predicts by drawing past values: right without memory."""
    evaluation = load("gluonts.evaluation")
    npts = load("gluonts.model.npts")
    predictor = npts.NPTSPredictor(
        prediction_length=STEPS,
        context_length=400,
        kernel_type=npts.KernelType.uniform,
        use_seasonal_model=False,
    )
    values = autoregressive(memory, 400 + 10 * starts + STEPS)
    first = pd.Period("2010-01-01", freq="D")
    ends = range(400, 400 + 10 * starts, 10)
    known = [{"target": values[: k + STEPS], "start": first, "item_id": "flow"} for k in ends]
    np.random.seed(0)  # noqa: NPY002
    return [
        list(part) for part in evaluation.make_evaluation_predictions(known, predictor, samples)
    ]


@pytest.fixture(scope="module")
def forgetful():
    return from_gluonts(*climatology(0.9))


def test_gluonts_right_and_wrong(forgetful):
    judge(*from_gluonts(*climatology(0.0)), **dims)
    # Each step has the right distribution, all rows together; paths have not.
    judge(*forgetful, blamed="scale dependency", cleared="marginal", **dims)
    # Steps of one start are dependent rows. As independent ones they would be blamed.
    judge(*forgetful, target="variate", time="start")
    assert diagnose(*forgetful, target="variate", preranks="marginal").remarks


def test_gluonts_repaired(forgetful):
    repair(*forgetful, rows="forecast", blamed="scale", **dims)


def calibrated(seed, memory=0.8, steps=4, starts=150):
    """Forecasts from every day, drawn as the series goes on."""
    rng = np.random.default_rng([seed, 1])
    values = autoregressive(memory, 100 + starts + steps, seed)
    days = pd.period_range("2020-01-01", periods=len(values), freq="D")
    forecasts = []
    for start in range(100, 100 + starts):
        paths = [np.full(20, values[start - 1])]
        for _ in range(steps):
            noise = (1 - memory**2) ** 0.5 * rng.normal(size=20)
            paths.append(memory * paths[-1] + noise)
        forecasts.append(gluonts.SampleForecast(np.stack(paths[1:], 1), days[start]))
    return from_gluonts(forecasts, [pd.Series(values, days)] * starts)


def test_forecasts_that_overlap_are_dependent_rows():
    """Without their starts calibrated ones fail far too often."""
    failed = {"start": 0, None: 0}
    for seed in range(10):
        for time in failed:
            found = diagnose(
                *calibrated(seed), target="variate", time=time, preranks="marginal", generator=0
            )
            failed[time] += found.by_prerank["marginal"].p_value < 0.05
    assert failed["start"] <= 2  # of 10 at 5 %: more in one of 90 cases
    assert failed[None] >= 3


def test_the_labels_of_gluonts():
    forecasts, series = climatology(0.0, starts=12, samples=7)
    samples, y = from_gluonts(forecasts, series)
    assert samples.sizes == {"sample": 7, "forecast": 12, "step": STEPS, "variate": 1}
    np.testing.assert_array_equal(samples.values[:, 5, :, 0], forecasts[5].samples)
    np.testing.assert_array_equal(y.values[5, :, 0], series[5].to_numpy()[-STEPS:, 0])
    assert y.start.values[1] == np.datetime64("2010-01-01") + np.timedelta64(410, "D")
    assert y.time.values[1, 2] == y.start.values[1] + np.timedelta64(2, "D")
    assert set(y.series.values) == {"flow"}
    assert diagnose(samples, y, **dims).table.component.to_list()[1:4] == [
        f"{step}/target" for step in (1, 2, 3)
    ]


def test_several_variates_and_items_of_gluonts():
    kind = gluonts.SampleForecast
    rng = np.random.default_rng(0)
    days = pd.period_range("2026-01-01", periods=60, freq="D")
    rivers = {
        name: pd.DataFrame(rng.normal(size=(60, 2)), days, ["flow", "level"]) for name in "ab"
    }
    pairs = [
        (kind(rng.normal(size=(20, 2, 2)), days[k], item_id=name), river)
        for name, river in rivers.items()
        for k in range(0, 58, 2)
    ]
    samples, y = from_gluonts(*zip(*pairs, strict=True))
    np.testing.assert_array_equal(samples.values[:, 30], pairs[30][0].samples)
    np.testing.assert_array_equal(y.values[30], rivers["b"].values[2:4])
    found = diagnose(samples, y, by="series", preranks="marginal", **dims)
    assert list(found.groups) == ["a", "b"]
    names = ["1/flow", "1/level", "2/flow", "2/level"]
    assert found.overall.table.component.to_list()[1:] == names


# --- darts --------------------------------------------------------------------------------------


def regressed(penalty, **options):
    """Quantile regression on the last value; with the penalty it is ignored."""
    models = load("darts.models")
    tails = [0.005, 0.995]
    quantiles = np.sort([*tails, *np.arange(1, 20) / 20]).tolist()
    model = models.LinearRegressionModel(
        lags=1,
        output_chunk_length=1,
        likelihood="quantile",
        quantiles=quantiles,
        random_state=0,
        alpha=penalty,
    )
    days = pd.date_range("2010-01-01", periods=2000, freq="D")
    past, flow = (
        darts.TimeSeries.from_times_and_values(
            days, autoregressive(0.85, 2000, seed), columns=["flow"]
        )
        for seed in (0, 1)
    )
    given = {"forecast_horizon": STEPS, "stride": 5, "last_points_only": False, "verbose": False}
    given |= {"num_samples": 40, "retrain": False, **options}
    return model.fit(past).historical_forecasts(flow, **given), flow


@pytest.fixture(scope="module")
def ignorant():
    return regressed(1.0)  # the default of darts


def test_darts_right_and_wrong(ignorant):
    judge(*from_darts(*regressed(0.0)), **dims)
    last = from_darts(*regressed(0.0, last_points_only=True, forecast_horizon=1, stride=1))
    judge(*last, target="variate", time="time")
    judge(*from_darts(*ignorant), blamed="scale dependency", cleared="marginal", **dims)


def test_darts_repaired(ignorant):
    repair(*from_darts(*ignorant), rows="forecast", blamed="scale", **dims)


def test_the_labels_of_darts(ignorant):
    forecasts, flow = ignorant
    samples, y = from_darts([forecasts[:4], forecasts[:3]], [flow, flow])
    assert samples.sizes == {"sample": 40, "forecast": 7, "step": STEPS, "variate": 1}
    np.testing.assert_array_equal(
        samples.values[:, 2], forecasts[2].all_values().transpose(2, 0, 1)
    )
    np.testing.assert_array_equal(y.values[2], flow[forecasts[2].time_index].values())
    assert y.series.values.tolist() == ["0"] * 4 + ["1"] * 3
    assert y.time.values[2].tolist() == forecasts[2].time_index.to_numpy().tolist()
    assert y.variate.values.tolist() == ["flow"]
    # One series that was forecast from one start is one trajectory, whose steps can be rows.
    assert diagnose(*from_darts(forecasts[0], flow), target="variate").n == STEPS


# --- what does not fit --------------------------------------------------------------------------


def sampled(steps=2, start="2026-01-05", samples=5, variates=()):
    kind = gluonts.SampleForecast
    return kind(np.zeros((samples, steps, *variates)), pd.Period(start, freq="D"), item_id="a")


def quantiled():
    kind = gluonts.QuantileForecast
    return kind(np.zeros((3, 2)), pd.Period("2026-01-05", freq="D"), ["0.1", "0.5", "0.9"])


def line(columns=1, samples=1):
    values = np.zeros((10, columns, samples))
    return darts.TimeSeries.from_times_and_values(pd.RangeIndex(10), values)


DAYS = pd.Series(np.zeros(10), pd.period_range("2026-01-01", periods=10, freq="D"))
BAD = {
    "quantiles": (lambda: from_gluonts([quantiled()], [DAYS]), "to_sample_forecast"),
    "an array": (lambda: from_gluonts([sampled()], [DAYS.to_numpy()]), "series must be pandas"),
    "a number": (lambda: from_gluonts(1, [DAYS]), "forecasts must be a list"),
    "too few series": (lambda: from_gluonts([sampled()] * 2, [DAYS]), "2 forecasts and 1 series"),
    "nothing": (lambda: from_gluonts([], []), "at least one"),
    "beyond": (
        lambda: from_gluonts([sampled(start="2026-01-10")], [DAYS]),
        "series 'a' has no value at 2026-01-11",
    ),
    "steps": (lambda: from_gluonts([sampled(), sampled(3)], [DAYS] * 2), "need the same samples"),
    "members": (
        lambda: from_gluonts([sampled(), sampled(samples=6)], [DAYS] * 2),
        "need the same samples",
    ),
    "variates": (
        lambda: from_gluonts([sampled(variates=[2])], [DAYS]),
        "those of their series",
    ),
    "another kind": (lambda: from_darts([DAYS], line()), "forecasts must be TimeSeries of darts"),
    "one sample": (lambda: from_darts([line()], line()), "num_samples=100"),
    "samples observed": (
        lambda: from_darts([line(1, 5)], line(1, 5)),
        "series has a TimeSeries with 5",
    ),
    "no forecast": (lambda: from_darts([], line()), "forecasts is empty"),
    "columns": (lambda: from_darts([line(2, 5)], line()), "those of their series"),
    "time": (lambda: from_darts([line(1, 5)], line()[:4]), "series '0' has no value at 4"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, message = BAD[case]
    with pytest.raises(PrerankError, match=message):
        call()
