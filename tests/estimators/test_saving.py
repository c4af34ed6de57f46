"""Saved models survive interruptions, other savers and readers at the same time."""

import copy
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
import torch

import prerank
from cli.commands import contents
from prerank.errors import InputError
from prerank.estimators import model_folder, persistence
from prerank.estimators.model_folder import check_model_folder, settings_digest
from prerank.estimators.saved_settings import check_settings
from prerank.files import disk, new_folder, values

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


def interrupted_at(line, act):
    """Call with an interrupt at one of the lines that write, and count them."""
    files = {module.__file__ for module in (disk, model_folder, persistence, values)}
    passed = 0

    def look(frame, event, _):
        nonlocal passed
        if event == "call":
            return look if frame.f_code.co_filename in files else None
        passed += event == "line"
        if passed == line:
            passed += 1
            raise KeyboardInterrupt
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        act()
    finally:
        sys.settrace(before)
    return passed


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # unclosed files
def test_an_interrupt_at_any_moment_leaves_a_model(models, tmp_path):
    """At each line in turn: also when the new one has just taken its place."""
    (one, _), (other, _) = models
    whole = [one.theta_, other.theta_]
    one.save(tmp_path)
    lines = interrupted_at(0, lambda: other.save(tmp_path))
    assert lines > 100
    found = []
    for line in range(1, lines + 1):
        model = (one, other)[line % 2]
        with suppress(KeyboardInterrupt):  # at some lines it is reported, and not raised
            interrupted_at(line, lambda model=model: model.save(tmp_path))
        theta = prerank.load_model(tmp_path).theta_
        found.append([torch.equal(theta, known) for known in whole].index(True) == line % 2)
        check_model_folder(tmp_path, replace=True)
    assert {False, True} == set(found)
    one.save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3  # the lock, the settings and the weights


def test_ctrl_c_while_the_settings_take_their_place(models, tmp_path, monkeypatch):
    (one, _), (other, _) = models
    one.save(tmp_path)
    replace = Path.replace

    def interrupted(self, target):
        done = replace(self, target)
        if target.name == "model.json":
            signal.raise_signal(signal.SIGINT)
        return done

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        other.save(tmp_path)
    assert torch.equal(prerank.load_model(tmp_path).theta_, other.theta_)


def test_parts_that_were_written_in_vain_are_deleted(models, tmp_path, monkeypatch):
    (one, _), (other, _) = models
    one.save(tmp_path)
    before = contents(tmp_path)

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(persistence, "write_json", full)
        with pytest.raises(InputError, match=r"cannot write .*: No space left on device"):
            other.save(tmp_path)
    assert contents(tmp_path) == before
    other.save(tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) == 1


def test_equal_models_are_equal_files(models, tmp_path):
    for number in range(20):
        models[0][0].save(tmp_path / str(number))
    assert len({str(contents(folder)) for folder in tmp_path.iterdir()}) == 1


FOREIGN = {
    "another program": {"model.json": '{"class_name": "Sequential"}'},
    "a list": {"model.json": "[1]"},
    "a text": {"model.json": '"abc"'},
    "broken": {"model.json": "{"},
    "names of others": {
        "model.json": '{"weights": "report.html", "head": "decade.safetensors"}',
        "report.html": "mine",
        "decade.safetensors": "mine",
    },
}


def test_a_model_of_another_program_is_not_replaced(models, tmp_path):
    for case, files in FOREIGN.items():
        folder = tmp_path / case
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
        with pytest.raises(InputError, match=r"model\.json is not of a model of prerank's"):
            models[0][0].save(folder)
        (folder / ".lock").unlink()
        assert contents(folder) == {name: text.encode() for name, text in files.items()}


def test_places_where_nothing_can_be_saved(models, tmp_path):
    model, saved = models[0]
    (tmp_path / "file").write_text("mine")
    for name in ("lock", "link", "settings", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "lock" / ".lock").mkdir()
    (tmp_path / "link" / ".lock").symlink_to("../file")
    (tmp_path / "settings" / "model.json").mkdir()
    (tmp_path / "elsewhere" / "model.json").symlink_to(saved / "model.json")
    for name, words in {
        "file": "is not a folder",
        "file/below": "Not a directory",
        "null\0": "null",
        "lock": r"\.lock is not a file",
        "link": r"\.lock is not a file",
        "settings": r"model\.json is not a file",
        "elsewhere": "is a link that leads out",
    }.items():
        with pytest.raises(InputError, match=words):
            model.save(tmp_path / name)
    assert (tmp_path / "file").read_text() == "mine"


def test_what_a_killed_save_left_is_no_obstacle_and_goes_with_the_next_save(models, tmp_path):
    (one, _), (_, other_folder) = models
    one.save(tmp_path)
    (orphan,) = other_folder.glob("*.safetensors")  # a part whose settings were never written
    left = [
        orphan.name,
        f".{orphan.name[:16]}.part",
        f"..{orphan.name[:16]}.part.00ff00ff",
        ".model.json.00ff00ff",
    ]
    mine = ["bert-base.safetensors", "0123456789abcdef.safetensors", ".notes"]  # no such hash
    for name in (*left, *mine):
        (tmp_path / name).write_bytes(orphan.read_bytes())
    with pytest.raises(InputError, match="bert-base"):
        check_model_folder(tmp_path, replace=True)
    one.save(tmp_path)
    found = {file.name for file in tmp_path.iterdir()}
    assert found.isdisjoint(left)
    assert found.issuperset(mine)
    for name in mine:
        (tmp_path / name).unlink()
    (tmp_path / left[-1]).touch()
    check_model_folder(tmp_path, replace=True)


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


def forced(model, out):
    """What `prerank fit --force` does when it has trained."""
    with new_folder(out, partial(check_model_folder, replace=True)) as folder:
        model.save(folder)


def check_whole(folder, model):
    """The folder holds this model, and nothing else."""
    assert torch.equal(prerank.load_model(folder).theta_, model.theta_)
    check_model_folder(folder, replace=True)
    assert len(list(folder.iterdir())) == 3  # the lock, the settings and the weights


def test_a_folder_is_not_replaced_in_the_middle_of_a_save(models, tmp_path, monkeypatch):
    """The parts of the model are there, its settings not yet."""
    (one, _), (other, _) = models
    out = tmp_path / "model"
    one.save(out)
    write, replacing = persistence.write_json, Thread(target=forced, args=(one, out))

    def late(path, settings):
        if path.parent == out:
            replacing.start()
            replacing.join(0.5)  # seconds: it waits for this save
            prerank.load_model(out)
        return write(path, settings)

    monkeypatch.setattr(persistence, "write_json", late)
    other.save(out)
    replacing.join()
    check_whole(out, one)


def test_a_save_that_waits_for_a_folder_to_be_replaced_goes_to_the_new_one(models, tmp_path):
    (one, _), (other, _) = models
    out = tmp_path / "model"
    one.save(out)
    saving, asked = Thread(target=other.save, args=(out,)), []

    def check(path):
        asked.append(path)
        if len(asked) == 2:  # under the lock
            saving.start()
            saving.join(0.5)
            prerank.load_model(out)

    with new_folder(out, check) as folder:
        one.save(folder)
    saving.join()
    check_whole(out, other)
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.slow
def test_a_saver_a_reader_and_fit_at_the_same_time(models, tmp_path):
    target = tmp_path / "model"
    models[0][0].save(target)
    [running] = savers(models[:1], target, 100)
    loads = 0
    try:
        while running.poll() is None:
            forced(models[loads % 2][0], target)
            for _ in range(5):
                prerank.load_model(target)  # is never refused
            loads += 1
    finally:
        running.wait()
    assert running.returncode == 0
    assert loads > 5
    theta = prerank.load_model(target).theta_
    assert any(torch.equal(theta, model.theta_) for model, _ in models)
    assert os.listdir(tmp_path) == ["model"]


def some(value):
    """The first weights are others: they are multiplied by inputs, which are 0 in the mean."""

    def change(model):
        model.theta_ = model.theta_.clone()
        model.theta_[..., :4] = value

    return change


def scaled(key, **parts):
    def change(model):
        scaler = getattr(model, key)
        filled = {name: torch.full_like(getattr(scaler, name), v) for name, v in parts.items()}
        setattr(model, key, replace(scaler, **filled))

    return change


WEIGHTS = {
    "all too large": (lambda m: setattr(m, "theta_", torch.full_like(m.theta_, 1e38)), "no finite"),
    "some too large": (some(1e38), "no finite forecast"),
    "still too large": (some(1e30), "no finite forecast"),
    "y.scale": (scaled("y_scaler_", scale=1e300), "y.scale is not positive, or has no square"),
    "x.scale": (scaled("x_scaler_", scale=1e-300), "x.scale is not positive, or has no square"),
    "x.low": (scaled("x_scaler_", low=5.0, high=-5.0), "x.low lies above x.high"),
}


@pytest.mark.parametrize("case", WEIGHTS)
def test_weights_that_no_model_has(case, models, tmp_path, monkeypatch):
    change, words = WEIGHTS[case]
    wrong = copy.copy(models[0][0])
    change(wrong)
    with monkeypatch.context() as patch:
        patch.setattr(persistence, "_check_forecast", lambda *_: None)
        wrong.save(tmp_path)
    with pytest.raises(InputError, match=words):
        prerank.load_model(tmp_path)


JUDGED = {"strength": 1.0, "excess": "nan", "chosen": True}
SELECTIONS = {
    "reason": [1],
    "budget": "x",
    "limit": None,
    "strength": [],
    "trace": [JUDGED | {"chosen": 1}],
    "nll_budget": "inf",
}


@pytest.mark.parametrize(
    "forged",
    [
        {"parameters": {"device": "nonsense"}},
        {"parameters": {"n_components": 7}, "network": {"n_components": 1}},
        {"selection": 5},
        *({"selection": {name: value}} for name, value in SELECTIONS.items()),
        {"selection": {"trace": [JUDGED | {"energy": "much"}]}},
    ],
    ids=str,
)
def test_settings_of_a_type_that_no_model_has(forged):
    check_settings({"selection": {"reason": "", "limit": -1, "trace": [JUDGED]}})
    with pytest.raises((ValueError, TypeError)):
        check_settings(forged)


def test_a_model_without_a_finite_forecast_is_not_saved(models, tmp_path):
    wrong = copy.copy(models[0][0])
    some(1e38)(wrong)
    with pytest.raises(InputError, match="could not be loaded again: it has parameters that give"):
        wrong.save(tmp_path)


def test_parameters_that_were_changed_after_the_fit_are_not_saved(models, tmp_path):
    changed = copy.deepcopy(models[0][0]).set_params(n_components=7)
    with pytest.raises(InputError, match="n_components is 7, but the network was made with 1"):
        changed.save(tmp_path)


NONSENSE = [-1, 1e300, 10**30, "x", [], {}, [-1]]
# Texts and lists that say something there.
SENSE = {"hidden": [[]], "target_names": []}


def test_settings_that_no_model_has(models, tmp_path):
    """Each setting in turn, with hashes that fit: refused in words."""
    file = models[0][1] / "model.json"
    settings = json.loads(file.read_text())
    del settings["sha256"]
    places = [("parameters", name) for name in settings["parameters"]]
    places += [("network", name) for name in settings["network"]]
    places += [(None, name) for name in settings if name not in ("head", "head_sha256")]
    for part, name in places:
        for value in NONSENSE:
            if value in SENSE.get(name, []):
                continue
            forged = copy.deepcopy(settings)
            (forged[part] if part else forged)[name] = value
            shutil.copytree(file.parent, tmp_path / "model", dirs_exist_ok=True)
            text = json.dumps({**forged, "sha256": settings_digest(forged)})
            (tmp_path / "model" / "model.json").write_text(text)
            with pytest.raises(InputError):
                pytest.fail(f"{name}={value}: {prerank.load_model(tmp_path / 'model')}")


def test_a_model_that_could_not_be_loaded_is_not_saved(models, tmp_path):
    strong = copy.deepcopy(models[0][0])
    strong.strength = 1e12
    strong.save(tmp_path / "model")
    assert prerank.load_model(tmp_path / "model").strength == 1e12
    strong.strength = 1e300
    with pytest.raises(InputError, match="could not be loaded again: strength is 1e\\+300"):
        strong.save(tmp_path / "model")
    assert prerank.load_model(tmp_path / "model").strength == 1e12
