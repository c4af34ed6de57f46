"""`prerank monitor`: a state in a file, rows that are added once, alarms."""

import json

import numpy as np
import pandas as pd
import pytest

from cli.commands import call


@pytest.fixture
def files(tmp_path):
    """Two batches of 60 days, the second one biased, and both together."""
    rng = np.random.default_rng(0)
    day = pd.date_range("2024-01-01", periods=120).strftime("%Y-%m-%d")
    y = pd.DataFrame(rng.normal(size=(120, 2)), columns=["rain", "wind"])
    y.loc[60:] += 2
    members = {f"{name}_{s}": rng.normal(size=120) for name in y for s in range(20)}
    y.insert(0, "day", day)
    samples = pd.DataFrame({"day": day, **members})
    for name, rows in {"a": slice(0, 60), "b": slice(60, 120), "both": slice(0, 120)}.items():
        samples[rows].to_csv(tmp_path / f"{name}_samples.csv", index=False)
        y[rows].to_csv(tmp_path / f"{name}_y.csv", index=False)

    def arguments(name, *more):
        places = ("--samples", tmp_path / f"{name}_samples.csv")
        places += ("--observations", tmp_path / f"{name}_y.csv")
        return ("monitor", *places, "--state", tmp_path / "state.safetensors", *more)

    return arguments


def test_batches_are_added_and_an_alarm_has_its_code(files, tmp_path):
    first = call(*files("a", "--time", "day", "--check"))
    assert first.exit_code == 0, first.output
    assert "No alarm: 60 rows" in first.output
    assert "Added 60 rows" in first.output
    again = call(*files("a", "--time", "day"))
    assert again.exit_code == 1
    assert "were added before" in again.output
    picture = tmp_path / "path.png"
    second = call(*files("both", "--time", "day", "--skip-seen", "--check", "--plot", picture))
    assert second.exit_code == 4, second.output
    assert "Alarm since 2024-03" in second.output
    assert "Added 60 rows" in second.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    nothing = call(*files("both", "--time", "day", "--skip-seen", "--json"))
    record = json.loads(nothing.stdout)
    assert (record["added"], record["rows"], record["alarm"]) == (0, 120, True)
    assert record["alarm_time"].startswith("2024-03")
    assert record["evidence"] > record["threshold"] == 100


def test_without_times_values_identify_rows(files):
    assert call(*files("a", "--quiet")).exit_code == 0
    again = call(*files("both"))
    assert again.exit_code == 1
    assert "first 60 of these 120 rows have the forecasts and observations of" in again.output


def test_settings_stay(files):
    assert call(*files("a", "--alpha", "0.05", "--lead", "2", "--scale", "1,2")).exit_code == 0
    other = call(*files("b", "--lead", "3"))
    assert other.exit_code == 1
    assert "created with --lead 2" in other.output
    assert call(*files("b", "--alpha", "0.05")).exit_code == 0


def test_refusals(files, tmp_path):
    for more, words in {
        ("--skip-seen",): "needs --time",
        ("--scale", "1,x"): "--scale must be numbers",
        ("--plot", str(tmp_path / "path.xyz")): "path.xyz",
    }.items():
        refused = call(*files("a", *more))
        assert refused.exit_code == 1
        assert words in refused.output
