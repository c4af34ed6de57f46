"""`prerank diagnose --missing available`: files in which values are missing."""

import json

import numpy as np
import pandas as pd
import pytest

from cli.commands import call

ROWS = 200


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gaps")
    rng = np.random.default_rng(0)
    values = rng.normal(size=(ROWS, 21, 2)) + rng.normal(size=(ROWS, 21, 1))
    observed = pd.DataFrame(values[:, 0], columns=["wind", "rain"])
    observed.loc[:49, "rain"] = np.nan
    wide = {f"{n}_{s}": values[:, s, d] for d, n in enumerate(observed) for s in range(1, 21)}
    samples = pd.DataFrame(wide)
    samples.loc[100:119, "wind_3"] = np.nan
    for name, table in {"samples": samples, "observed": observed}.items():
        table.insert(0, "day", range(ROWS))
        table.to_csv(folder / f"{name}.csv", index=False)
    return "--samples", folder / "samples.csv", "--observations", folder / "observed.csv"


def test_missing_values_are_used_if_asked_for(files):
    done = call("diagnose", *files, "--missing", "available", "--json")
    assert done.exit_code == 0, done.stderr
    record = json.loads(done.stdout)
    used = {(row["prerank"], row["component"]): row["n"] for row in record["findings"]}
    assert used["marginal", "rain"] == 150
    assert used["marginal", "wind"] == 180
    assert used["scale", "all"] == 130
    assert any("150 of rain" in point for point in record["verdict"]["points"])


def test_the_refusal_names_the_option(files):
    done = call("diagnose", *files)
    assert done.exit_code != 0
    assert "--missing" in done.stderr


def test_regions_need_all_values(files, tmp_path):
    inputs = tmp_path / "inputs.csv"
    pd.DataFrame({"day": range(ROWS), "height": np.arange(ROWS) / 3}).to_csv(inputs, index=False)
    done = call("diagnose", *files, "--missing", "available", "--inputs", inputs)
    assert done.exit_code != 0
    assert "leave those rows out" in done.stderr
