"""Saved models survive interruptions, other savers and readers at the same time."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import prerank
from prerank.errors import InputError

SOURCE = Path(prerank.__file__).parents[1]
SAVE = """
import sys, prerank
model = prerank.load_model(sys.argv[1])
for _ in range(int(sys.argv[3])):
    model.save(sys.argv[2])
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two fitted models and the folders that they are saved in."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 2)), rng.normal(size=(60, 2))
    folder = tmp_path_factory.mktemp("models")
    found = []
    for seed in (0, 1):
        model = prerank.MixtureRegressor(
            1, method="none", hidden=(4,), max_epochs=1, random_state=seed
        ).fit(x, y)
        model.save(folder / str(seed))
        found.append((model, folder / str(seed)))
    return found


def savers(models, target, times):
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    return [
        subprocess.Popen(
            [sys.executable, "-c", SAVE, str(folder), str(target), str(times)], env=environment
        )
        for _, folder in models
    ]


def test_an_interrupted_save_of_the_same_parameters_leaves_the_model(models, tmp_path):
    """Bytes of one model differ from save to save, since the header of the format has no order."""
    model, _ = models[0]
    model.save(tmp_path)
    for _ in range(20):
        # The last file cannot be written: a folder is in its place for the time of the save.
        (tmp_path / "model.json").rename(tmp_path / "aside")
        (tmp_path / "model.json").mkdir()
        with pytest.raises(InputError, match="not a file"):
            model.save(tmp_path)
        (tmp_path / "model.json").rmdir()
        (tmp_path / "aside").rename(tmp_path / "model.json")
        assert torch.equal(prerank.load_model(tmp_path).theta_, model.theta_)


def test_parts_that_were_written_in_vain_are_deleted(models, tmp_path):
    (one, _), (other, _) = models
    one.save(tmp_path)
    before = {file.name for file in tmp_path.iterdir()}
    settings = (tmp_path / "model.json").read_bytes()
    (tmp_path / "model.json").unlink()
    (tmp_path / "model.json").mkdir()
    with pytest.raises(InputError, match="not a file"):
        other.save(tmp_path)
    (tmp_path / "model.json").rmdir()
    (tmp_path / "model.json").write_bytes(settings)
    assert {file.name for file in tmp_path.iterdir()} == before
    other.save(tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) == 1


@pytest.mark.slow
def test_savers_and_readers_at_the_same_time(models, tmp_path):
    target = tmp_path / "model"
    models[0][0].save(target)
    running = savers(models, target, 150)
    loads = 0
    try:
        while any(process.poll() is None for process in running):
            prerank.load_model(target)  # is never refused
            loads += 1
    finally:
        for process in running:
            process.wait()
    assert [process.returncode for process in running] == [0, 0]
    assert loads > 20
    theta = prerank.load_model(target).theta_
    assert any(torch.equal(theta, model.theta_) for model, _ in models)
    assert len(list(target.glob("*.safetensors"))) == 1


def test_weights_without_a_finite_forecast_are_refused(models, tmp_path):
    wrong = copy.copy(models[0][0])
    wrong.theta_ = torch.full_like(wrong.theta_, 1e38)
    wrong.save(tmp_path)
    with pytest.raises(InputError, match=r"the weights have parameters"):
        prerank.load_model(tmp_path)
