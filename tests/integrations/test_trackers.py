"""Numbers of a diagnosis for trackers, and real runs of those that are installed."""

import json
import math
import re

import pytest
import torch
from torch.distributions import MultivariateNormal

from adapters.judging import REQUIRED
from prerank import Ensemble, PrerankError, diagnose
from prerank.integrations import log_to_mlflow, log_to_wandb, tracked_numbers


@pytest.fixture(scope="module")
def diagnosis():
    y = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    dist = MultivariateNormal(torch.zeros(200, 2), torch.eye(2))
    return diagnose(dist, y, preranks="marginal+scale+pca(1)", generator=0)


def test_numbers_are_those_of_the_table(diagnosis):
    numbers = tracked_numbers(diagnosis, prefix="test")
    rows = diagnosis.table.query("component == 'all'").set_index("prerank")
    assert numbers["test/excess"] == pytest.approx(rows.excess.mean())
    assert numbers["test/scale/p_value"] == rows.p_value["scale"]
    assert numbers["test/pca_1_/excess"] == rows.excess["pca(1)"]
    assert all(re.fullmatch(r"[\w./-]+", name) for name in numbers)
    assert all(type(value) is float and math.isfinite(value) for value in numbers.values())
    json.dumps(numbers)


def test_weighted_samples_have_no_p_values():
    dist = Ensemble(torch.randn(9, 40, 2), torch.arange(1.0, 10.0))
    numbers = tracked_numbers(diagnose(dist, torch.randn(40, 2), preranks="scale"))
    assert list(numbers) == ["calibration/excess", "calibration/scale/excess"]


@pytest.mark.parametrize(("name", "log"), [("mlflow", log_to_mlflow), ("wandb", log_to_wandb)])
def test_a_tracker_that_is_missing_is_named(name, log, diagnosis, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, name, None)
    with pytest.raises(PrerankError, match=rf"{log.__name__} needs {name}: .*prerank\[trackers\]"):
        log(diagnosis)


def installed(name):
    return __import__(name) if name in REQUIRED else pytest.importorskip(name)


@pytest.mark.filterwarnings("default")  # of the trackers, which are not ours to mend
def test_a_run_of_mlflow(diagnosis, tmp_path, monkeypatch):
    mlflow = installed("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run() as run:
        log_to_mlflow(diagnosis, step=3)
    found = mlflow.MlflowClient().get_run(run.info.run_id)
    assert found.data.metrics == pytest.approx(tracked_numbers(diagnosis))
    kept = mlflow.artifacts.load_text(f"{run.info.artifact_uri}/calibration-3.txt")
    assert diagnosis.verdict().headline in kept


@pytest.mark.filterwarnings("default")
def test_a_run_of_wandb(diagnosis, tmp_path, capfd):
    wandb = installed("wandb")
    with wandb.init(mode="offline", dir=tmp_path, project="test") as run:
        log_to_wandb(diagnosis, step=0, run=run)
    summary = capfd.readouterr().err  # what it says of the run at its end, to five digits
    for name, value in tracked_numbers(diagnosis).items():
        [found] = re.findall(rf"{name} +(-?\d\S*)", summary)
        assert float(found) == pytest.approx(value, abs=1e-4)
    [kept] = (tmp_path / "wandb").glob("offline-run-*/files/media/table/**/*.table.json")
    assert len(json.loads(kept.read_text())["data"]) == len(diagnosis.table)
