"""`prerank compare`, and `--time` and `--cluster` of `prerank diagnose`."""

import numpy as np
import pandas as pd
import pytest

from cli.commands import call, record, refused, said
from prerank.files import write_samples

N = 200
TARGETS = ("rain", "wind")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("two")
    random = np.random.default_rng(0)
    table = pd.DataFrame(random.normal(size=(N, 2)), columns=list(TARGETS))
    table["day"] = pd.date_range("2024-01-01", periods=N).astype(str)
    table["station"] = np.arange(N) // 10
    table.to_csv(place / "observed.csv", index=False)
    for name, spread in (("right", 1.0), ("narrow", 0.4)):
        samples = spread * random.normal(size=(20, N, 2))
        wide = {f"{t}_{s}": samples[s, :, d] for d, t in enumerate(TARGETS) for s in range(20)}
        frame = pd.DataFrame({"day": table.day} | wide)
        frame[: N if name == "right" else N - 20].to_csv(place / f"{name}.csv", index=False)
    write_samples(place / "other.npz", random.normal(size=(20, N, 2)), ("sun", "snow"))
    return place


def compare(folder, *options, versus="narrow.csv"):
    files = ("--samples", folder / "right.csv", "--versus", folder / versus)
    return call("compare", *files, "--observations", folder / "observed.csv", *options)


def test_words_and_record(folder):
    words = said(compare(folder, "--preranks", "marginal"))
    assert "right.csv is better calibrated: mean excess" in words
    assert "20 forecasts that only one file has were left out" in words
    found = record(compare(folder, "--preranks", "marginal", "--time", "day", "--json"))
    assert found["n"] == N - 20
    assert found["better_calibrated"] == "right.csv"
    assert found["assumption"].startswith("rows in time order, 180 times")
    assert [one["measure"] for one in found["differences"]] == ["excess"] * 2 + ["energy score"]
    quiet = said(compare(folder, "--preranks", "marginal", "--cluster", "station", "--quiet"))
    assert "18 clusters" in quiet
    assert "value_a" not in quiet


def test_refusals(folder):
    assert "are the same file" in refused(compare(folder, versus="right.csv"))
    assert "soon" in refused(compare(folder, "--time", "soon"))


def test_diagnose_in_time_order(folder):
    files = ("--samples", folder / "right.csv", "--observations", folder / "observed.csv")
    options = ("--preranks", "marginal", "--json")
    found = record(call("diagnose", *files, *options, "--time", "day"))
    assert found["rows"] == {"kind": "time", "units": N, "degrees": 10}
    found = record(call("diagnose", *files, *options, "--cluster", "station"))
    assert found["rows"] == {"kind": "cluster", "units": 20, "degrees": 19}
    both = call("diagnose", *files, *options, "--cluster", "station", "--time", "day")
    assert "exclude each other" in refused(both)
