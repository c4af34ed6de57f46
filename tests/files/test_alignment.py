"""Forecasts are matched to observations; what is ambiguous is reported or refused."""

from datetime import time
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prerank.errors import InputError
from prerank.files import read_forecasts, write_samples

S, N = 4, 6
RNG = np.random.default_rng(1)
SAMPLES = RNG.normal(size=(S, N, 2))
TRUTH = RNG.normal(size=(N, 2))
OBSERVED = pd.DataFrame(TRUTH, columns=["u", "v"])


def long_frame(**key):
    """Rows with u and v for each sample and each forecast."""
    parts = [
        pd.DataFrame({**key, "sample": s, "u": x[:, 0], "v": x[:, 1]})
        for s, x in enumerate(SAMPLES)
    ]
    return pd.concat(parts, ignore_index=True)


def read(folder, samples, observations, **options):
    for name, frame in (("s", samples), ("y", observations)):
        frame.to_parquet(folder / f"{name}.parquet", index=False)
    return read_forecasts(folder / "s.parquet", folder / "y.parquet", **options)


def check(found, rows=slice(None), targets=(0, 1)):
    np.testing.assert_array_equal(found.samples, SAMPLES[:, rows][..., list(targets)])
    np.testing.assert_array_equal(found.observations, TRUTH[rows][:, list(targets)])


# What is left out


def test_rows_without_a_counterpart(tmp_path):
    frame = long_frame(id=range(N))
    frame = frame[frame["id"] != 2]
    found = read(tmp_path, frame, OBSERVED.assign(id=range(N)).drop(index=[4, 5]))
    check(found, [0, 1, 3])
    assert found.remarks == (
        "forecasts and observations were matched by id, which both files have",
        "1 of 4 rows of the observations have no forecast and were left out",
        "2 of 5 forecasts have no observation and were left out",
    )


def test_what_is_left_out_need_not_be_whole(tmp_path):
    """Broken forecasts that nobody observed, and missing observations that nobody forecast."""
    frame = long_frame(id=range(N))
    frame = frame[~((frame["id"] == 5) & (frame["sample"] == 1))]
    frame.loc[frame["id"] == 4, "u"] = np.nan
    extra = pd.DataFrame({"u": [np.nan], "v": [np.inf], "id": [99]})
    observed = pd.concat([OBSERVED.assign(id=range(N)).drop(index=[4, 5]), extra])
    check(read(tmp_path, frame, observed), [0, 1, 2, 3])


def test_some_row_numbers(tmp_path):
    frame = long_frame(row=range(N))
    found = read(tmp_path, frame[frame["row"] > 1], OBSERVED)
    check(found, slice(2, None))
    assert found.remarks == ("2 of 6 rows of the observations have no forecast and were left out",)


BY_ID = "forecasts and observations were matched by id, which both files have"
SAMPLED = "samples without a column in y.parquet were not judged: v"
OBSERVED_ALONE = "columns of y.parquet without samples were not judged: V"
WIDE = pd.DataFrame({f"{d}_{s}": SAMPLES[s, :, j] for j, d in enumerate("uv") for s in range(S)})

# Samples, what was observed, and what the remarks say.
ALONE = {
    "spelt differently": (
        long_frame(id=range(N)),
        OBSERVED.rename(columns={"v": "V"}).assign(id=range(N)),
        (BY_ID, SAMPLED, OBSERVED_ALONE),
    ),
    "not observed": (long_frame(row=range(N)), OBSERVED[["u"]], (SAMPLED,)),
    "not forecast": (
        long_frame(row=range(N)).drop(columns="v"),
        OBSERVED.rename(columns={"v": "V"}),
        (OBSERVED_ALONE,),
    ),
    "a column beside them": (
        long_frame(row=range(N), height=2.5),
        OBSERVED[["u"]].assign(site="north"),
        (SAMPLED,),
    ),
    "wide": (
        WIDE.assign(id=range(N), site_7=1.0),
        OBSERVED.rename(columns={"v": "V"}).assign(id=range(N)),
        (BY_ID, SAMPLED, OBSERVED_ALONE),
    ),
}


@pytest.mark.parametrize("case", ALONE)
def test_targets_that_one_file_has_alone(tmp_path, case):
    samples, observed, remarks = ALONE[case]
    found = read(tmp_path, samples, observed)
    check(found, targets=[0])
    assert found.remarks == remarks
    chosen = read(tmp_path, samples, observed, targets=["u"])
    assert not any("not judged" in remark for remark in chosen.remarks)


def test_names_of_an_array_that_were_not_observed(tmp_path):
    np.savez(tmp_path / "s.npz", samples=SAMPLES, targets=["u", "v"])
    OBSERVED[["u"]].to_parquet(tmp_path / "y.parquet")
    found = read_forecasts(tmp_path / "s.npz", tmp_path / "y.parquet")
    check(found, targets=[0])
    assert found.remarks == (SAMPLED,)


@pytest.mark.parametrize("targets", [None, ["u", "v"]], ids=["found", "named"])
def test_a_row_for_each_target_is_refused(tmp_path, targets):
    """And the advice works."""
    frame = long_frame(row=range(N))
    tidy = frame.melt(["row", "sample"], var_name="target", value_name="value")
    pivot = ".pivot(index=['row', 'sample'], columns='target', values='value').reset_index()"
    with pytest.raises(InputError, match="holds names of targets") as error:
        read(tmp_path, tidy, OBSERVED, targets=targets)
    assert str(error.value).endswith(f"in pandas with {pivot}")
    wide = tidy.pivot(index=["row", "sample"], columns="target", values="value").reset_index()
    check(read(tmp_path, wide, OBSERVED, targets=targets))


@settings(max_examples=25)
@given(st.permutations(range(S * N)), st.permutations(range(N)), st.booleans())
def test_the_order_of_rows_does_not_matter(tmp_path_factory, order, rows, known):
    options = {"targets": ["u", "v"]} if known else {}
    found = read(
        tmp_path_factory.mktemp("order"),
        long_frame(id=range(N)).iloc[list(order)],
        OBSERVED.assign(id=range(N)).iloc[list(rows)],
        **options,
    )
    check(found, list(rows))


# Keys


def pa_times():
    return pd.array(np.arange(N) * 3600, dtype=pd.ArrowDtype(pa.int32())).astype(
        pd.ArrowDtype(pa.time32("s"))
    )


KEYS = {
    "whole": (range(N), np.arange(N, dtype="uint8")),
    "float32": ([0.1 * i for i in range(N)], np.float32([0.1 * i for i in range(N)])),
    "whole and float": (np.arange(N), np.arange(N) * 1.0),
    "minus zero": ([-0.0, 1, 2, 3, 4, 5], [0.0, 1, 2, 3, 4, 5]),
    "text": (list("abcdef"), pd.Categorical(list("abcdef"))),
    "large text": (list("abcdef"), pd.array(list("abcdef"), dtype="large_string[pyarrow]")),
    "number and text": (range(N), ["0", "1", "2", "3", "4", "5"]),
    "number and padded text": (range(N), ["00", "01", "02", "03", "04", "05"]),
    "dates": (pd.date_range("2024-01-31", periods=N), pd.date_range("2024-01-31", periods=N).date),
    "date and text": (
        pd.date_range("2024-01-31", periods=N),
        pd.date_range("2024-01-31", periods=N).strftime("%Y-%m-%d"),
    ),
    "time and text": (
        pd.date_range("2024-01-31", periods=N, freq="h"),
        pd.date_range("2024-01-31", periods=N, freq="h").strftime("%Y-%m-%dT%H:%M:%S"),
    ),
    "zone and text": (
        pd.date_range("2024-01-31", periods=N, freq="h", tz="Asia/Tokyo"),
        pd.date_range("2024-01-30T15", periods=N, freq="h").strftime("%Y-%m-%dT%H:%M:%SZ"),
    ),
    "time zones": (
        pd.date_range("2024-01-31", periods=N, freq="h", tz="UTC"),
        pd.date_range("2024-01-31", periods=N, freq="h", tz="UTC").tz_convert("Asia/Tokyo"),
    ),
    "UTC and none": (
        pd.date_range("2024-01-31", periods=N, freq="h", tz="UTC"),
        pd.date_range("2024-01-31", periods=N, freq="h"),
    ),
    "float16": ([0, 0.5, 1, 1.5, 2, 2.5], np.float16([0, 0.5, 1, 1.5, 2, 2.5])),
    "decimal": ([Decimal(i) / 4 for i in range(N)], [i / 4 for i in range(N)]),
    "clock": ([time(i) for i in range(N)], [time(i) for i in range(N)]),
    "step": (pd.to_timedelta(range(N), "h"), pd.to_timedelta(range(N), "h").astype("m8[s]")),
    "clock units": ([time(i) for i in range(N)], pa_times()),
    "truth and text": ([True, False] * 3, ["true", "false"] * 3),
    "truth and number": ([True, False] * 3, [1, 0] * 3),
    "truth": ([True, False] * 3, [True, False] * 3),
    "units of time": (
        pd.date_range("2024-01-31", periods=N).astype("datetime64[s]"),
        pd.date_range("2024-01-31", periods=N).astype("datetime64[ns]"),
    ),
}


@pytest.mark.parametrize("case", KEYS)
def test_equal_keys_that_are_written_differently(tmp_path, case):
    for left, right in (KEYS[case], KEYS[case][::-1]):
        frame, observed = long_frame(k=left), OBSERVED.assign(k=right)
        if case.startswith("truth"):
            frame["j"], observed["j"] = np.tile([0, 0, 1, 1, 2, 2], S), [0, 0, 1, 1, 2, 2]
        check(read(tmp_path, frame, observed))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pd.date_range("2024-01-31", periods=N), np.arange(N)),
        (pd.date_range("2024-01-31", periods=N), list("abcdef")),
        (pd.to_timedelta(range(N), "h"), np.arange(N)),
        (pd.to_timedelta(range(N), "h"), pd.date_range("1970-01-01", periods=N, freq="h")),
        ([time(i) for i in range(N)], np.arange(N) * 3600),
        ([[i] for i in range(N)], [[i * 1.0] for i in range(N)]),
    ],
)
def test_keys_that_cannot_be_compared(tmp_path, left, right):
    with pytest.raises(InputError, match=r"s\.parquet: key 'k' cannot be compared.*write both"):
        read(tmp_path, long_frame(k=left), OBSERVED.assign(k=right))


def test_several_keys_are_told_from_targets(tmp_path):
    """Keys may be floats, targets whole numbers, and other columns may stand in both files."""
    lat, lon = np.repeat([0.5, 1.5], 3), np.tile([1, 2, 3], 2)
    frame = long_frame(lat=lat, lon=lon, area=np.arange(N) / 7)
    frame["u"] = np.arange(len(frame)) % 17
    frame["note"] = [f"text {i}" for i in range(len(frame))]
    observed = OBSERVED.assign(lat=lat, lon=lon, area=np.arange(N) / 7, note="none", u=range(N))
    found = read(tmp_path, frame, observed)
    assert found.targets == ("u", "v")
    assert "matched by lat, lon, area" in found.remarks[0]
    np.testing.assert_array_equal(found.samples[..., 1], SAMPLES[..., 1])


@pytest.mark.parametrize("options", [{"targets": "v"}, {"targets": ("v",), "key": "id"}])
def test_a_target_that_is_not_wanted_is_no_key(tmp_path, options):
    found = read(tmp_path, long_frame(id=range(N)), OBSERVED.assign(id=range(N)), **options)
    check(found, targets=[1])
    assert found.targets == ("v",)


def test_chosen_keys_leave_the_rest(tmp_path):
    """A column that both files have, and that disagrees, does no harm once keys are named."""
    frame = long_frame(id=range(N), run=1)
    observed = OBSERVED.assign(id=range(N), run=2)
    found = read(tmp_path, frame, observed, key=["id"])
    check(found)
    assert found.remarks == ()
    with pytest.raises(InputError, match="no forecast belongs to a row of"):
        read(tmp_path, frame, observed)


def test_samples_numbered_throughout(tmp_path):
    """Draw numbers that never repeat tell nothing about keys, but names do."""
    frame = long_frame(id=range(N)).rename(columns={"sample": "draw"})
    frame["draw"] = range(len(frame))
    observed = OBSERVED.assign(id=range(N))
    check(read(tmp_path, frame, observed, key="id"))
    check(read(tmp_path, frame, observed, targets=["u", "v"]))


def test_a_sample_column_of_another_name(tmp_path):
    frame = long_frame(id=range(N)).rename(columns={"sample": "path"}).assign(number=3)
    check(read(tmp_path, frame, OBSERVED.assign(id=range(N)), sample="path"))
    frame = frame.rename(columns={"path": "Draw"})
    with pytest.raises(InputError, match="each column of Draw, number could number the samples"):
        read(tmp_path, frame, OBSERVED.assign(id=range(N)))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_row_numbers_that_pandas_wrote(tmp_path, suffix):
    """They are in both files, and are neither keys nor targets."""
    frame = long_frame(id=range(N)).iloc[::-1]
    observed = OBSERVED.assign(id=range(N)).iloc[::-1]
    for name, table in (("s", frame), ("y", observed)):
        path = tmp_path / f"{name}{suffix}"
        _ = table.to_csv(path) if suffix == ".csv" else table.to_parquet(path, index=True)
    found = read_forecasts(tmp_path / f"s{suffix}", tmp_path / f"y{suffix}")
    check(found, slice(None, None, -1))
    assert found.targets == ("u", "v")


def test_columns_that_are_no_keys(tmp_path):
    """Lists differ from sample to sample, and are not asked further."""
    frame = long_frame(id=range(N))
    frame["path"] = [[i, i] for i in range(len(frame))]
    observed = OBSERVED.assign(id=range(N), path=[[i] for i in range(N)])
    check(read(tmp_path, frame, observed))


def test_one_forecast(tmp_path):
    found = read(tmp_path, long_frame(id=range(N)).query("id == 3"), OBSERVED.assign(id=range(N)))
    check(found, [3])


# Groups


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (list("abcabc"), "abcabc"),
        ([1.0, 2.0, 2.5, 1.0, 2.0, 2.5], ["1", "2", "2.5", "1", "2", "2.5"]),
        ([3, 3, 3, 4, 4, 4], "333444"),
        ([True, False] * 3, ["True", "False"] * 3),
        (pd.Categorical(list("aabbcc")), "aabbcc"),
        (pd.to_datetime(["2024-05-01"] * 6).date, ["2024-05-01"] * 6),
    ],
)
def test_groups(tmp_path, values, expected):
    """In either file, or in both."""
    frame, observed = long_frame(id=range(N)), OBSERVED.assign(id=range(N))
    with_groups = long_frame(id=range(N), season=values), observed.assign(season=values)
    for pair in ((frame, with_groups[1]), with_groups, (with_groups[0], observed)):
        found = read(tmp_path, *pair, by="season")
        check(found)
        assert found.groups == tuple(expected)
        assert "matched by id, which" in found.remarks[0]


def test_a_group_that_is_needed_as_a_key(tmp_path):
    day, station = np.repeat([1, 2, 3], 2), list("abababab")[:N]
    frame = long_frame(day=day, station=station)
    observed = OBSERVED.assign(day=day, station=station)
    found = read(tmp_path, frame, observed, by="station")
    check(found)
    assert found.groups == tuple("ababab")
    only = read(tmp_path, long_frame(id=range(N)), OBSERVED.assign(id=range(N)), by="id")
    assert only.groups == tuple("012345")


def test_groups_follow_what_is_left(tmp_path):
    frame = long_frame(id=range(N))
    observed = OBSERVED.assign(id=range(N), g=[None, *"bcdef"])
    found = read(tmp_path, frame[frame["id"] % 2 == 1], observed, by="g")
    assert found.groups == ("b", "d", "f")
    with pytest.raises(
        InputError, match=r"y\.parquet: column 'g' for the groups has no value in data row 1:"
    ):
        read(tmp_path, frame, observed, by="g")


def test_groups_of_samples(tmp_path):
    frame = long_frame(id=range(N))
    frame["g"] = frame["sample"] % 2
    with pytest.raises(
        InputError, match="differs among the samples of a forecast, that of data row 1:"
    ):
        read(tmp_path, frame, OBSERVED.assign(id=range(N)), by="g")


# Files that could be read in two ways

DAYS, DRAWS = 50, 10


@pytest.fixture
def weather(tmp_path):
    """Rain is forecast to be 0 in every sample, and falls on some days."""
    rng = np.random.default_rng(0)
    long = pd.DataFrame(
        {
            "day": np.repeat(np.arange(DAYS), DRAWS),
            "sample": np.tile(np.arange(DRAWS), DAYS),
            "wind": rng.normal(size=DAYS * DRAWS),
            "rain": 0.0,
        }
    )
    observed = pd.DataFrame(
        {
            "day": np.arange(DAYS),
            "wind": rng.normal(size=DAYS),
            "rain": 1.0 * (rng.random(DAYS) < 0.2),
        }
    )
    long.to_csv(tmp_path / "samples.csv", index=False)
    observed.to_csv(tmp_path / "observed.csv", index=False)
    return tmp_path


def read_weather(folder, **options):
    return read_forecasts(folder / "samples.csv", folder / "observed.csv", **options)


def test_a_target_that_no_sample_varies_does_not_select_rows(weather):
    with pytest.raises(InputError, match=r"'rain' is the same in every sample.*--targets.*--key"):
        read_weather(weather)


@pytest.mark.parametrize("options", [{"targets": ["wind", "rain"]}, {"key": ["day"]}])
def test_the_user_can_say_what_it_is(weather, options):
    found = read_weather(weather, **options)
    assert found.samples.shape[1] == DAYS


def test_a_key_that_agrees_is_no_doubt(weather):
    observed = pd.read_csv(weather / "observed.csv").assign(rain=0.0)
    observed.to_csv(weather / "observed.csv", index=False)
    found = read_weather(weather)
    assert found.targets == ("wind",)
    assert found.samples.shape[1] == DAYS


def test_arrays_against_a_table_say_how_they_were_matched(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "samples.npy", rng.normal(size=(8, 30, 2)))
    table = pd.DataFrame(rng.normal(size=(30, 2)), columns=["wind", "rain"]).assign(site="s")
    table.to_csv(tmp_path / "observed.csv", index=False)
    found = read_forecasts(tmp_path / "samples.npy", tmp_path / "observed.csv")
    told = " ".join(found.remarks)
    assert "targets were taken to be wind, rain, in this order" in told
    assert "matched by their order" in told


@pytest.mark.parametrize(
    ("key", "remarks"),
    [("row", []), ("day", ["no column is in both files: forecasts and observations were matched"])],
)
def test_arrays_with_a_key_say_once_how_they_were_matched(tmp_path, key, remarks):
    """Numbers of rows are not the order, and need no remark."""
    samples, stored = np.arange(12.0).reshape(3, 2, 2), {f"key_{key}": np.array([1, 0])}
    np.savez(tmp_path / "samples.npz", samples=samples, targets=np.array(["u", "v"]), **stored)
    (tmp_path / "observed.csv").write_text("site,u,v\na,1,2\nb,3,4\n")
    found = read_forecasts(tmp_path / "samples.npz", tmp_path / "observed.csv")
    assert [remark[:66] for remark in found.remarks] == [remark[:66] for remark in remarks]
    assert (found.samples == (samples[:, ::-1] if key == "row" else samples)).all()


# A large file


def test_many_rows(tmp_path):
    """Nothing here loops over its 200,000 rows."""
    samples = np.random.default_rng(0).normal(size=(200, 1000, 2))
    names = [f"station {i}" for i in range(1000)]
    source = write_samples(tmp_path / "s.parquet", samples, ["u", "v"], {"id": names})
    pd.DataFrame(samples[0], columns=["u", "v"]).assign(id=names).to_csv(tmp_path / "y.csv")
    found = read_forecasts(source, tmp_path / "y.csv")
    np.testing.assert_array_equal(found.samples, samples)
