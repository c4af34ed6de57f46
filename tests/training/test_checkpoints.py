"""Training that is broken off goes on as if nothing had happened."""

import shutil
import time

import pytest
import torch

from prerank.datasets import AR1Regression, published_split
from prerank.errors import InputError
from prerank.files import CheckpointFile, read_tensors, write_tensors
from prerank.models import MixtureNetwork, ModuleNetwork
from prerank.penalty import CalibrationPenalty
from prerank.training import (
    Checkpoint,
    Interrupted,
    Objective,
    Run,
    Settings,
    TrainingData,
    train,
)

X, Y = AR1Regression(dim=2).sample(200, generator=0)
SPLITS = [published_split(200, seed=seed) for seed in (0, 1)]
DATA = TrainingData.build(X, Y, [(s.train, s.validation) for s in SPLITS], dtype=torch.float64)
NETWORK = MixtureNetwork(2, 2, n_components=2, hidden=(6,))
RUNS = [Run(0, 0, 0.0), Run(0, 0, 10.0), Run(1, 1, 100.0)]
OBJECTIVE = Objective(CalibrationPenalty("marginal+hdr", n_samples=12))
SETTINGS = Settings(batch_size=32, max_epochs=2, patience=2, lr=1e-2)


def trained(checkpoint=None, on_epoch=None, settings=SETTINGS, runs=RUNS):
    options = {"objective": OBJECTIVE, "settings": settings}
    return train(NETWORK, DATA, runs, checkpoint=checkpoint, on_epoch=on_epoch, **options)


def assert_same(one, other):
    for name in ("theta", "epochs", "best_epoch", "objective", "history"):
        a, b = getattr(one, name), getattr(other, name)
        assert torch.equal(a.nan_to_num(-1), b.nan_to_num(-1)), name


class Killed(BaseException):
    """The process is gone."""


def killed_after(epochs):
    seen = []

    def on_epoch(progress):
        seen.append(progress)
        if len(seen) > epochs:
            raise Killed

    return on_epoch


TOTAL = []
WHOLE = trained(on_epoch=TOTAL.append)


@pytest.mark.parametrize("epochs", [0, len(TOTAL) // 2, len(TOTAL) - 1])
def test_a_killed_training_ends_as_if_it_had_not_been(tmp_path, epochs):
    checkpoint = Checkpoint(CheckpointFile(tmp_path / "run"), every=0.0)
    with pytest.raises(Killed):
        trained(checkpoint, killed_after(epochs))
    later = []
    assert_same(
        trained(Checkpoint(CheckpointFile(tmp_path / "run"), every=0.0), later.append), WHOLE
    )
    assert len(later) <= len(TOTAL) - epochs  # what was written is not trained again


def test_it_can_be_killed_again_and_again(tmp_path):
    for _ in range(len(TOTAL) + 5):
        try:
            found = trained(
                Checkpoint(CheckpointFile(tmp_path / "run"), every=0.0), killed_after(1)
            )
            break
        except Killed:
            continue
    assert_same(found, WHOLE)


def test_time_that_is_up_interrupts_in_good_order(tmp_path):
    for _ in range(len(TOTAL) + 5):
        checkpoint = Checkpoint(CheckpointFile(tmp_path / "run"), until=time.monotonic())
        try:
            found = trained(checkpoint)
            break
        except Interrupted:
            continue
    assert_same(found, WHOLE)


def test_nothing_is_written_before_its_time(tmp_path):
    with pytest.raises(Killed):
        trained(Checkpoint(CheckpointFile(tmp_path / "run"), every=1e9), killed_after(1))
    assert list(tmp_path.iterdir()) == []


def test_files_of_other_runs_and_broken_ones_are_passed_over(tmp_path):
    checkpoint = Checkpoint(CheckpointFile(tmp_path / "run"), every=0.0)
    trained(checkpoint, runs=RUNS[:2])
    assert_same(trained(checkpoint), WHOLE)
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:100])
    assert_same(trained(checkpoint), WHOLE)


def flip(path):
    content = bytearray(path.read_bytes())
    content[-1000] ^= 0x10  # in a number
    path.write_bytes(content)


def rename(path):
    path.write_bytes(path.read_bytes().replace(b'"theta"', b'"thetb"'))


def changed(**changes):
    """Whoever means harm writes a digest that fits."""

    def write(path):
        tensors, about = read_tensors(path)
        tensors |= {name: change(tensors[name]) for name, change in changes.items()}
        write_tensors(path, tensors, about)

    return write


DAMAGE = {
    "a flipped bit": flip,
    "another name": rename,
    "nothing": lambda path: write_tensors(path, {}, read_tensors(path)[1]),
    "another type": changed(theta=lambda t: t.float()),
    "other sizes": changed(theta=lambda t: t[:, 1:]),
    "fewer rows": changed(going=lambda t: t[1:]),
    "no such run": changed(place=lambda t: t + 99),
    "a run before the first": changed(place=lambda t: t - 1),
    "one run twice": changed(place=lambda t: t * 0),
    "places in a matrix": changed(place=lambda t: t.unsqueeze(1)),
    "a history of others": changed(history=lambda t: t[:, 1:]),
    "steps before the first": changed(number=lambda t: t - 10**6),
}


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """Checkpoints of a training that was killed in its first part: no test changes them."""
    folder = tmp_path_factory.mktemp("half")
    with pytest.raises(Killed):
        trained(Checkpoint(CheckpointFile(folder / "run"), every=0.0), killed_after(1))
    return folder


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_checkpoints_are_as_good_as_none(half, tmp_path, damage):
    shutil.copytree(half, tmp_path, dirs_exist_ok=True)
    checkpoint = Checkpoint(CheckpointFile(tmp_path / "run"), every=1e9)
    files = list(tmp_path.iterdir())
    for path in files:
        damage(path)
    with pytest.raises(Killed):  # unreadable ones are gone before others are written
        trained(Checkpoint(CheckpointFile(tmp_path / "run"), every=1e9), killed_after(0))
    assert len(list(tmp_path.iterdir())) < len(files)
    assert_same(trained(checkpoint), WHOLE)


def test_links_to_checkpoints_elsewhere_are_not_followed(half, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    for path in half.iterdir():
        (folder / path.name).symlink_to(path)
    seen = []
    assert_same(trained(Checkpoint(CheckpointFile(folder / "run")), seen.append), WHOLE)
    assert len(seen) == len(TOTAL)
    assert not any(path.is_symlink() for path in folder.iterdir())


def test_dropping_leaves_nothing(tmp_path):
    checkpoint = Checkpoint(CheckpointFile(tmp_path / "run"), every=0.0)
    trained(checkpoint)
    (tmp_path / "running").write_text("another file")
    checkpoint.drop()
    assert [path.name for path in tmp_path.iterdir()] == ["running"]


def test_networks_that_cannot_be_stacked_have_none(tmp_path):
    network = ModuleNetwork(lambda: torch.nn.Linear(2, 2))
    with pytest.raises(InputError, match="one by one"):
        train(network, DATA, RUNS[:1], checkpoint=Checkpoint(CheckpointFile(tmp_path / "run")))
