"""Arrays of xarray are matched by their coordinates, and what does not match is named."""

import numpy as np
import pytest
import xarray as xr

from named_fields import EVENT, MEMBERS, STATIONS, TIMES, fields, plain, shuffled
from prerank.adapters import named_forecast, named_samples
from prerank.errors import PrerankError

SAMPLES, Y = fields()


def test_labels_decide_and_not_places():
    found = named_forecast(shuffled(SAMPLES), Y, target=EVENT)
    samples, y = plain(SAMPLES, Y)
    np.testing.assert_array_equal(found.dist.samples, samples)
    np.testing.assert_array_equal(found.y, y)
    assert found.y.index.equals(Y.indexes["time"])


@pytest.mark.parametrize("rows", [("time", "station"), ("station", "time")])
def test_rows_may_be_given_an_order(rows):
    found = named_forecast(SAMPLES, Y, target="lead", rows=rows)
    samples, y = plain(SAMPLES, Y, rows=rows, target=("lead",))
    np.testing.assert_array_equal(found.dist.samples, samples)
    np.testing.assert_array_equal(found.y, y)
    assert list(found.y.index.names) == list(rows)


@pytest.mark.parametrize("values", [1, 7 * MEMBERS * 6, 10**9])
def test_blocks_are_the_rows_one_after_the_other(values):
    found = named_forecast(shuffled(SAMPLES), Y, target=EVENT)
    dists, tables = zip(*found.blocks(values), strict=True)
    assert len(dists) == {1: TIMES, 10**9: 1}.get(values, -(-TIMES // 7))
    joined = np.concatenate([dist.samples for dist in dists], 1)
    np.testing.assert_array_equal(joined, found.dist.samples)
    np.testing.assert_array_equal(np.concatenate(tables), found.y)


def test_labels_in_two_precisions_match():
    lats = np.array([51.2, 50.7, 59.9])
    single = SAMPLES.assign_coords(station=lats.astype(np.float32))
    double = Y.assign_coords(station=lats)
    found = named_forecast(single.isel(station=[1, 2, 0]), double, target=EVENT)
    np.testing.assert_array_equal(found.dist.samples, plain(SAMPLES, Y)[0])
    assert found.observed.targets[:2] == ["51.2/6", "51.2/12"]


def test_dimensions_without_labels_go_by_place():
    bare = [array.drop_vars(["time", "lead"]) for array in (SAMPLES, Y)]
    found = named_forecast(*bare, target=EVENT)
    np.testing.assert_array_equal(found.dist.samples, plain(SAMPLES, Y)[0])
    assert found.observed.targets[:2] == ["Bonn/lead0", "Bonn/lead1"]


def test_single_events_have_the_name_of_the_array():
    found = named_forecast(SAMPLES, Y)
    assert found.observed.targets == ["t2m"]
    assert found.dist.batch_shape == (Y.size,)


def test_the_dimension_of_the_members_may_have_any_name():
    other = SAMPLES.rename(number="run")
    assert named_samples(SAMPLES, target=EVENT).member == "number"
    assert named_samples(other, member="run", target=EVENT).rows == ("time",)


def test_other_values_look_like_the_field():
    field = named_samples(shuffled(SAMPLES), target=EVENT)
    xr.testing.assert_identical(field.like(field.values()), shuffled(SAMPLES))


def missing(array, **where):
    changed = array.copy()
    changed.loc[where] = np.nan
    return changed


def relabelled(array, **labels):
    return array.assign_coords(labels)


BARE = [array.drop_vars("station") for array in (SAMPLES, Y)]
BAD = {
    "labels": (
        lambda: (SAMPLES, relabelled(Y, station=["Bonn", "Gent", "Oslo"])),
        "dimension 'station' of dist and y differ: 1 of 3 labels are only in dist .'Ghent'., "
        "1 of 3 only in y .'Gent'.",
    ),
    "types of labels": (
        lambda: (SAMPLES, relabelled(Y, lead=["6", "12"])),
        "'lead' .* 2 of 2 labels are only in dist .6, 12., 2 of 2 only in y .'6', '12'.",
    ),
    "dates": (
        lambda: (SAMPLES, Y[4:]),
        r"'time' .* 4 of 120 .* \(2025-01-01, 2025-01-04, 2025-01-07, ...\), 0 of 116 only in y "
        r"\(none\)",
    ),
    "repeated labels": (
        lambda: (SAMPLES, relabelled(Y, lead=[6, 6])),
        "dimension 'lead' of y has duplicates",
    ),
    "labels on one side": (
        lambda: (SAMPLES, Y.drop_vars("lead")),
        "dimension 'lead' has labels in dist only",
    ),
    "sizes": (
        lambda: (BARE[0], BARE[1].isel(station=[0, 1])),
        "dimension 'station' has 3 places in dist and 2 in y, and no labels",
    ),
    "other coordinates": (
        lambda: (BARE[0], BARE[1].isel(station=[1, 0, 2])),
        r"'station' has no labels, and coordinate 'height' differs at 2 of 3 .* y\.set_index",
    ),
    "a dimension too few": (
        lambda: (SAMPLES, Y.isel(lead=0)),
        "y has the dimensions 'time', 'station', .* 'lead' is not in y",
    ),
    "another dimension": (
        lambda: (SAMPLES, Y.rename(time="valid")),
        "'valid' is not in dist and 'time' is not in y; .* y.sel",
    ),
    "units": (
        lambda: (SAMPLES, (Y - 273.15).assign_attrs(units="degC")),
        "dist is in 'K' and y in 'degC'",
    ),
    "missing observations": (
        lambda: (SAMPLES, missing(Y, time="2025-01-04", station=["Ghent", "Oslo"])),
        "y has 4 missing or infinite values of 720, in 1 of 120 rows, the first at "
        "time=2025-01-04, station=Ghent, lead=6: .*dropna.'time'",
    ),
    "missing members": (
        lambda: (missing(SAMPLES, number=3, lead=12), Y),
        "dist has 360 missing .* of 10,800, in 120 of 120 rows, the first at number=3, "
        "time=2025-01-01, station=Bonn, lead=12",
    ),
    "kinds": (
        lambda: (SAMPLES.to_dataset(), Y),
        "dist is a Dataset and y a DataArray",
    ),
    "variables": (
        lambda: (SAMPLES.to_dataset(), Y.rename("temperature").to_dataset()),
        "y has no variable 't2m', .* it has 'temperature'",
    ),
    "dimensions of variables": (
        lambda: (xr.Dataset({"t2m": SAMPLES, "u10": SAMPLES[..., 0]}), Y.to_dataset()),
        "variable 'u10' of dist has the dimensions 'number', 'time', 'station', and 't2m'",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_match_is_named(case):
    make, message = BAD[case]
    with pytest.raises(PrerankError, match=message):
        list(named_forecast(*make(), member="number", target=EVENT).blocks())


NAMES = {
    "member": ({"member": "run"}, "dist has no dimension 'run'; there are 'number', 'time'"),
    "target": ({"target": "leads"}, "target names 'leads', but dist has the dimensions 'number'"),
    "target twice": ({"target": ["lead", "lead"]}, "target names 'lead' more than once"),
    "members as a target": ({"target": "number"}, "which is the dimension of the members"),
    "no rows": ({"target": ("time", *EVENT)}, "none is left for rows"),
    "rows": (
        {"target": "lead", "rows": "time"},
        "rows are 'time', but dist has 'time', 'station' beside member 'number' and target 'lead'",
    ),
}


@pytest.mark.parametrize("case", NAMES)
def test_names_are_checked(case):
    names, message = NAMES[case]
    with pytest.raises(PrerankError, match=message):
        named_forecast(SAMPLES, Y, **names)


def test_the_member_has_to_be_named_where_its_name_is_unusual():
    with pytest.raises(PrerankError, match="name the dimension of the members with member=: dist"):
        named_forecast(SAMPLES.rename(number="run"), Y)


def test_labels_belong_to_rows():
    found = named_forecast(SAMPLES, Y, target="lead")
    assert found.labels("station", "by").tolist() == STATIONS * TIMES
    assert found.labels("height", "by")[:3].tolist() == [60, 10, 20]
    years = Y.time.dt.year.to_numpy().repeat(len(STATIONS))
    np.testing.assert_array_equal(found.labels("time.year", "by"), years)
    given = list(range(found.observed.n))
    assert found.labels(given, "by") is given


LABELS = {
    "of a target": ("station", "'station' is none of the rows, which are 'time'"),
    "unknown": ("season", "by 'season' is not a coordinate of y or dist; known are .*'height'"),
    "missing": ("week", "by 'week' has no value in 20 of 120 rows"),
    "array": (Y.time, "by is an array of xarray: name a coordinate"),
}


@pytest.mark.parametrize("case", LABELS)
def test_labels_of_rows_are_checked(case):
    value, message = LABELS[case]
    week = np.where(np.arange(TIMES) < 100, 1.0, np.nan)
    found = named_forecast(SAMPLES, Y.assign_coords(week=("time", week)), target=EVENT)
    with pytest.raises(PrerankError, match=message):
        found.labels(value, "by")
