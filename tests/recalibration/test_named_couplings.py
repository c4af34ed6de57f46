"""Couplings of arrays of xarray give what they give for arrays, with names; and they repair."""

import numpy as np
import pytest
import xarray as xr

import prerank
from named_fields import EVENT, MEMBERS, STATIONS, fields, plain, shuffled
from prerank import Ensemble
from prerank.errors import PrerankError
from prerank.recalibration import (
    EnsembleCopulaCoupling,
    MarginalRecalibrator,
    SchaakeShuffle,
    couple,
)

SAMPLES, Y = fields(1.6, times=400)
DIST, OBSERVED = Ensemble(plain(SAMPLES, Y)[0]), plain(SAMPLES, Y)[1]
KINDS = [MarginalRecalibrator, EnsembleCopulaCoupling, SchaakeShuffle]


@pytest.mark.parametrize("kind", KINDS)
def test_the_result_is_that_of_the_arrays_and_looks_like_the_forecast(kind):
    plainly = kind(generator=0).fit(DIST, OBSERVED)(DIST).samples.numpy()
    fitted = kind(generator=0).fit(shuffled(SAMPLES), Y, member="number", target=EVENT)
    assert fitted.dimensions_ == ("number", EVENT)
    assert fitted.target_names_[:2] == ("Bonn/6", "Bonn/12")
    new = fitted(SAMPLES)
    np.testing.assert_array_equal(plain(new, Y)[0], plainly)
    assert new.dims == SAMPLES.dims
    assert new.attrs == SAMPLES.attrs
    assert new.coords.keys() == SAMPLES.coords.keys()
    moved = SAMPLES.isel(station=[2, 0, 1], lead=[1, 0]).transpose("lead", "number", ...)
    xr.testing.assert_equal(
        fitted(moved).transpose(*new.dims).sel(station=STATIONS),
        new.sel(station=STATIONS, lead=[12, 6]),
    )


def test_margins_and_dependence_are_repaired_on_kept_rows():
    """Members too wide, their dependence lost: the shuffle gives both back, ECC the width."""
    broken = SAMPLES.copy()
    rng = np.random.default_rng(5)
    for at in np.ndindex(3, 2):
        order = rng.permutation(MEMBERS)
        broken[:, :, at[0], at[1]] = SAMPLES[order, :, at[0], at[1]].to_numpy()
    # Forecasts that hardly differ between rows, whose past has the dependence of the errors.
    centre = fields(0.0, times=400)[0].isel(number=0)
    broken, y = broken - centre, Y - centre
    early, late = {"time": slice(0, 250)}, {"time": slice(250, None)}
    errors = {}
    for name, kind in (("ecc", EnsembleCopulaCoupling), ("schaake", SchaakeShuffle)):
        fitted = kind(generator=0).fit(broken.isel(early), y.isel(early), target=EVENT)
        errors[name] = prerank.diagnose(fitted(broken.isel(late)), y.isel(late), target=EVENT)
    errors["raw"] = prerank.diagnose(broken.isel(late), y.isel(late), target=EVENT)
    p = {name: {k: f.p_holm for k, f in one.by_prerank.items()} for name, one in errors.items()}
    assert p["raw"]["marginal"] < 0.01
    assert p["ecc"]["marginal"] > 0.01
    assert p["ecc"]["location"] < 0.001
    assert min(p["schaake"][k] for k in ("marginal", "location", "pca", "copula")) > 0.01
    # The order statistics of 15 members differ between targets by chance, which no order mends.
    ecc, schaake = (errors[name].by_prerank["scale"].excess for name in ("ecc", "schaake"))
    assert schaake < ecc / 2


def test_couple_joins_by_names():
    expected = couple(DIST, OBSERVED[:MEMBERS]).samples
    past = Y.isel(time=slice(MEMBERS)).rename(time="day").isel(station=[1, 2, 0], lead=[1, 0])
    found = couple(SAMPLES, past, target=EVENT)
    np.testing.assert_array_equal(plain(found, Y)[0], expected)
    again = couple(SAMPLES, shuffled(SAMPLES), member="number", target=EVENT)
    np.testing.assert_array_equal(again, SAMPLES)
    other, _ = fields(seed=3, times=400)
    found = couple(SAMPLES, shuffled(other), target=EVENT)
    np.testing.assert_array_equal(
        plain(found, Y)[0], couple(DIST, plain(other, Y)[0]).samples.numpy()
    )
    assert found.attrs == {"units": "K"}


BAD = {
    "not of arrays": (
        lambda: EnsembleCopulaCoupling().fit(DIST, OBSERVED)(SAMPLES),
        "this EnsembleCopulaCoupling was not fitted to arrays of xarray",
    ),
    "names without arrays": (
        lambda: SchaakeShuffle().fit(DIST, OBSERVED, target="lead"),
        "target is a name in arrays of xarray",
    ),
    "other places": (
        lambda: SchaakeShuffle().fit(SAMPLES, Y, target=EVENT)(SAMPLES.isel(lead=[0])),
        "dist has 3 targets and this SchaakeShuffle 6",
    ),
    "a table": (lambda: couple(SAMPLES, OBSERVED, target=EVENT), "template must be an xarray"),
    "few of the past": (
        lambda: couple(SAMPLES, Y.isel(time=slice(9)).rename(time="day"), target=EVENT),
        "template has 9 points and margins 15 members",
    ),
    "two dimensions": (
        lambda: couple(SAMPLES, Y.expand_dims(run=3), target=EVENT),
        "template has the dimensions 'run', 'time', 'station', 'lead': it needs 'number', or one",
    ),
    "another station": (
        lambda: couple(SAMPLES, Y.isel(station=[0, 1]), target=EVENT),
        "template has 4 targets and margins 6",
    ),
    "names of tensors": (lambda: couple(DIST, OBSERVED, member="number"), "member is a name"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_match_is_named(case):
    call, message = BAD[case]
    with pytest.raises(PrerankError, match=message):
        call()
