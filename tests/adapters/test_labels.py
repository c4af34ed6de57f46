"""Samples with named axes."""

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.judging import judge
from prerank import diagnose
from prerank.adapters import from_arrays, from_pandas, from_xarray
from prerank.errors import InputError, PrerankError

SAMPLES, TIMES, PLACES, TARGETS = 40, 30, 5, ["wind", "rain"]
CORNERS = {"place": list("abcde"), "target": TARGETS}


def forecasts(seed=0):
    """Samples with dimensions (member, time, place, target), and observations of the same law."""
    rng = np.random.default_rng(seed)
    pool = rng.normal(size=(SAMPLES + 1, TIMES, PLACES, 1)) * [1.0, 0.6]
    pool[..., 1] += 0.8 * rng.normal(size=pool.shape[:-1])
    days = pd.date_range("2026-01-01", periods=TIMES)
    array = xr.DataArray(pool, dims=["member", "time", *CORNERS], coords={"time": days, **CORNERS})
    return array[1:], array[0]


# --- arrays ----------------------------------------------------------------------------------


@settings(max_examples=40)
@given(
    st.permutations(range(4)),
    st.booleans(),
    st.tuples(*[st.integers(2, 5)] * 4),
)
def test_axes_find_their_place(order, negative, shape):
    samples = np.arange(float(np.prod(shape))).reshape(shape)  # (S, M, N, D)
    moved = samples.transpose(order)
    axes = [order.index(0), order.index(3)]
    rows = [axis for axis in order if axis in (1, 2)]
    expected = samples.transpose(0, *rows, 3)
    if negative:
        axes = [axis - 4 for axis in axes]
    found = from_arrays(moved, sample_axis=axes[0], target_axis=axes[1])
    np.testing.assert_array_equal(found.samples.numpy(), expected)


def test_weights_pass_through():
    found = from_arrays(np.zeros((6, 3, 2)), sample_axis=1, weights=[1, 2, 1])
    torch.testing.assert_close(found.weights[:, 0], torch.tensor([0.25, 0.5, 0.25]).double())


# --- xarray ----------------------------------------------------------------------------------

FORMS = {
    "as they are": lambda a: a,
    "other order of dimensions": lambda a: a.transpose(*reversed(a.dims)),
    "dataset": lambda a: a.to_dataset("target"),
    "other order of labels": lambda a: a.isel(time=slice(None, None, -1), target=[1, 0]),
}


@pytest.mark.parametrize(
    ("of_samples", "of_y"),
    [
        *((form, "as they are") for form in FORMS),
        ("as they are", "dataset"),
        ("dataset", "other order of labels"),
        ("other order of labels", "other order of dimensions"),
    ],
)
def test_labels_decide_and_not_places(of_samples, of_y):
    samples, y = forecasts()
    found = from_xarray(FORMS[of_samples](samples), FORMS[of_y](y), sample="member")
    assert found.dist.batch_shape == (TIMES * PLACES,)
    assert sorted(found.y.columns) == sorted(TARGETS)
    assert sorted(found.y.index.names) == ["place", "time"]
    for n in (0, 7, 149):
        where = dict(zip(found.y.index.names, found.y.index[n], strict=True))
        for d, target in enumerate(found.y.columns):
            place = {**where, "target": target}
            np.testing.assert_array_equal(found.dist.samples[:, n, d], samples.sel(place))
            assert found.y.iloc[n][target] == float(y.sel(place))


def test_the_right_forecast_is_cleared_and_a_wrong_one_blamed():
    samples, y = forecasts()
    judge(*from_xarray(samples, y, sample="member"))
    judge(*from_xarray(0.5 * samples, y, sample="member"), blamed="marginal")
    # Each target from another day: right margins, and no dependence.
    rain = samples.sel(target="rain").roll(time=1)
    shuffled = xr.concat([samples.sel(target="wind"), rain], "target").assign_coords(target=TARGETS)
    judge(*from_xarray(shuffled, y, sample="member"), blamed="scale", cleared="marginal")


def test_results_are_labelled():
    samples, y = forecasts()
    dist, table = from_xarray(samples, y, sample="member")
    found = diagnose(dist, table, preranks="marginal", generator=0)
    assert list(found.table["component"]) == ["all", *TARGETS]
    pits = found.pits["marginal"].numpy()
    back = pd.DataFrame(pits, table.index, table.columns).to_xarray().to_dataarray("target")
    back = back.transpose(*y.dims)
    assert back.shape == y.shape
    assert float(back.sel(time="2026-01-03", place="b", target="rain")) == pits[2 * PLACES + 1, 1]


def test_one_target_and_one_dimension_of_rows():
    samples, y = (a.isel(place=0, target=0, drop=True).rename("wind") for a in forecasts())
    dist, table = from_xarray(samples, y, sample="member")
    assert (dist.batch_shape, dist.event_shape) == ((TIMES,), (1,))
    assert list(table.columns) == ["wind"]
    assert table.index.name == "time"


def test_dimensions_without_labels_go_by_place():
    samples, y = (a.drop_vars(["time", "place"]) for a in forecasts())
    dist, _ = from_xarray(samples, y, sample="member")
    np.testing.assert_array_equal(dist.samples[:, 6, 0], samples[:, 1, 1, 0])


def test_labels_on_one_side_only_are_an_error():
    samples, y = forecasts()
    with pytest.raises(InputError, match=r"'time' has labels in y only.*y\.drop_vars"):
        from_xarray(samples.drop_vars("time"), y, sample="member")
    with pytest.raises(InputError, match="'place' has labels in samples only"):
        from_xarray(samples, y.drop_vars("place"), sample="member")


# --- pandas ----------------------------------------------------------------------------------


def tables():
    samples, y = forecasts()
    long = samples.to_dataset("target").to_dataframe()  # (member, time, place)
    return long, y.to_dataset("target").to_dataframe()


def test_categories_that_are_not_there_are_no_rows():
    days = pd.CategoricalIndex(["a", "b"], categories=["a", "b", "c"], name="day")
    lines = pd.MultiIndex.from_product([days, range(3)], names=["day", "sample"])
    samples = pd.DataFrame({"rain": np.arange(6.0)}, lines)
    dist, _ = from_pandas(samples, pd.DataFrame({"rain": [0.0, 1.0]}, days))
    assert dist.samples[..., 0].T.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("shuffled", [False, True])
def test_long_tables_are_those_of_xarray(shuffled):
    long, y = tables()
    samples, observed = forecasts()
    expected, _ = from_xarray(samples, observed, sample="member")
    if shuffled:
        long = long.sample(frac=1, random_state=0).reorder_levels(["place", "member", "time"])
        long = long[TARGETS[::-1]]
    else:
        long.index = long.index.set_levels(range(100, 100 + SAMPLES), level="member")
    found = from_pandas(long, y, sample="member")
    assert found.y is y
    columns = [TARGETS.index(name) for name in y.columns]
    torch.testing.assert_close(found.dist.samples, expected.samples[..., columns], rtol=0, atol=0)


def test_a_long_table_is_diagnosed():
    long, y = tables()
    judge(*from_pandas(long, y, sample="member"))
    judge(*from_pandas(long + 0.5, y, sample="member"), blamed="marginal location")


# --- bad input -------------------------------------------------------------------------------


SAMPLED, OBSERVED = forecasts()
LONG, WIDE = tables()


def renumbered():
    """A table that numbers its lines in all rows together."""
    return (
        LONG.reset_index("member", drop=True)
        .assign(member=range(len(LONG)))
        .set_index("member", append=True)
    )


BAD = {
    "axis": (lambda: from_arrays(np.zeros((3, 4, 2)), sample_axis=3), "sample_axis is 3"),
    "axis type": (lambda: from_arrays(np.zeros((3, 4, 2)), target_axis=True), "must be an int"),
    "same axis": (lambda: from_arrays(np.zeros((3, 4, 2)), sample_axis=2), "the same axis"),
    "too few axes": (lambda: from_arrays(np.zeros((3, 4))), r"samples must have shape"),
    "no such dimension": (lambda: from_xarray(SAMPLED, OBSERVED), "no dimension 'sample'"),
    "dimensions of y": (
        lambda: from_xarray(SAMPLED, OBSERVED.isel(place=0), sample="member"),
        "y has the dimensions",
    ),
    "no rows": (
        lambda: from_xarray(SAMPLED[:, 0, 0], OBSERVED[0, 0], sample="member"),
        "none is left for rows",
    ),
    "other labels": (
        lambda: from_xarray(SAMPLED, OBSERVED.isel(time=slice(2, None)), sample="member"),
        "2 of 30 labels are only in samples .2026-01-01, 2026-01-02., 0 of 28 only in y .none",
    ),
    "repeated labels": (
        lambda: from_xarray(
            SAMPLED, OBSERVED.assign_coords(place=["a", "a", "b", "c", "d"]), sample="member"
        ),
        "has duplicates",
    ),
    "array": (lambda: from_xarray(SAMPLED, OBSERVED.to_numpy(), sample="member"), "y must be an"),
    "no such level": (lambda: from_pandas(LONG, WIDE), "no index level 'sample'"),
    "other levels": (
        lambda: from_pandas(LONG, WIDE.reset_index("place", drop=True), sample="member"),
        "name them alike",
    ),
    "other columns": (
        lambda: from_pandas(LONG, WIDE.rename(columns={"rain": "snow"}), sample="member"),
        "columns of samples and y differ.*'rain'",
    ),
    "other rows": (lambda: from_pandas(LONG, WIDE.iloc[3:], sample="member"), "rows of samples"),
    "a line twice": (
        lambda: from_pandas(pd.concat([LONG, LONG.iloc[:1]]), WIDE, sample="member"),
        "samples has an index with duplicates",
    ),
    "a line too few": (
        lambda: from_pandas(LONG.iloc[1:], WIDE, sample="member"),
        r"samples numbers 40 different samples, but row .* has only 39 of them",
    ),
    "other numbers in each row": (
        lambda: from_pandas(renumbered(), WIDE, sample="member"),
        "all rows need samples of the same numbers",
    ),
    "levels without names": (
        lambda: from_pandas(
            LONG.rename_axis(["member", None, None]),
            WIDE.rename_axis([None, None]),
            sample="member",
        ),
        "each by a name of its own",
    ),
    "rows of y twice": (
        lambda: from_pandas(LONG, pd.concat([WIDE, WIDE.iloc[:1]]), sample="member"),
        "rows of y has duplicates",
    ),
    "samples is an array": (
        lambda: from_pandas(LONG.to_numpy(), WIDE, sample="member"),
        "samples must be a pandas.DataFrame",
    ),
    "y is a series": (
        lambda: from_pandas(LONG, WIDE["rain"], sample="member"),
        r"y is a pandas.Series: .*y\.to_frame\(\)",
    ),
    "y is None": (
        lambda: from_pandas(LONG, None, sample="member"),
        "y must be a pandas.DataFrame .* got builtins.NoneType",
    ),
    "y is a list": (
        lambda: from_pandas(LONG, [1.0], sample="member"),
        "y must be a pandas.DataFrame .* got builtins.list",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, message = BAD[case]
    with pytest.raises(PrerankError, match=message):
        call()
