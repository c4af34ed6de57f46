"""`prerank diagnose --inputs`: regions in words, in JSON and on the page."""

import numpy as np
import pandas as pd
import pytest

from cli.commands import call, record
from prerank.files import write_samples

N = 400


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("inputs")
    random = np.random.default_rng(1)
    inputs = pd.DataFrame({"day": np.arange(N), "humidity": random.uniform(0, 100, N)})
    observed = pd.DataFrame(random.normal(size=(N, 2)), columns=["rain", "wind"])
    observed.loc[inputs.humidity > 75, "wind"] += 1.5
    observed.insert(0, "day", np.arange(N))
    observed.to_csv(place / "observed.csv", index=False)
    inputs.sample(frac=1, random_state=0).to_csv(place / "inputs.csv", index=False)
    write_samples(place / "samples.npz", random.normal(size=(40, N, 2)), ["rain", "wind"])
    return place


def diagnose(folder, *options):
    files = {"samples": "samples.npz", "observations": "observed.csv", "inputs": "inputs.csv"}
    given = [word for name, file in files.items() for word in (f"--{name}", folder / file)]
    return call("diagnose", *given, "--targets", "rain,wind", "--preranks", "marginal", *options)


def test_the_region_is_printed_and_on_the_page(folder, tmp_path):
    done = diagnose(folder, "--out", tmp_path / "report.html")
    assert done.exit_code == 0, done.output
    [line] = [line for line in done.stdout.splitlines() if line.startswith("- humidity above 7")]
    assert line.endswith("observed values higher than predicted in wind.")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Where in the data" in page
    assert 'alt="Region 1: humidity above 7' in page


def test_the_region_as_json(folder):
    where = record(diagnose(folder, "--json"))["where"]
    assert where["p_value"] == 0.002
    [region] = where["regions"]
    assert region["region"].startswith("humidity above 7")
    assert region["kind"] == "shift"
    assert region["component"] == "wind"


def test_times_are_passed_on(folder):
    done = diagnose(folder, "--time", "day")
    assert "Calibration differs over the inputs (p = 0.003, whole times shifted)." in done.stdout
