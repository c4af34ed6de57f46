"""Files that could be read in two ways: said, or refused."""

import numpy as np
import pandas as pd
import pytest

from prerank.errors import InputError
from prerank.files import read_forecasts

DAYS, SAMPLES = 50, 10


@pytest.fixture
def weather(tmp_path):
    """Rain is forecast to be 0 in every sample, and falls on some days."""
    rng = np.random.default_rng(0)
    long = pd.DataFrame(
        {
            "day": np.repeat(np.arange(DAYS), SAMPLES),
            "sample": np.tile(np.arange(SAMPLES), DAYS),
            "wind": rng.normal(size=DAYS * SAMPLES),
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


def read(folder, **options):
    return read_forecasts(folder / "samples.csv", folder / "observed.csv", **options)


def test_a_target_that_no_sample_varies_does_not_select_rows(weather):
    with pytest.raises(InputError, match=r"'rain' is the same in every sample.*--targets.*--key"):
        read(weather)


@pytest.mark.parametrize("options", [{"targets": ["wind", "rain"]}, {"key": ["day"]}])
def test_the_user_can_say_what_it_is(weather, options):
    found = read(weather, **options)
    assert found.samples.shape[1] == DAYS


def test_a_key_that_agrees_is_no_doubt(weather):
    observed = pd.read_csv(weather / "observed.csv").assign(rain=0.0)
    observed.to_csv(weather / "observed.csv", index=False)
    found = read(weather)
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
