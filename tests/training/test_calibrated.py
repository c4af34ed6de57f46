"""The path from data to a calibrated model: base, calibration, choice."""

import dataclasses
import time

import pytest
import torch

from prerank.datasets import OutlierRegression, published_split
from prerank.errors import InputError, InputTypeError, NotApplicableError
from prerank.files import CheckpointFile
from prerank.models import MixtureNetwork
from prerank.penalty import CalibrationPenalty
from prerank.recalibration import CalibrationHead
from prerank.training import (
    Checkpoint,
    Interrupted,
    Objective,
    Run,
    Settings,
    Trainer,
    TrainingData,
    forecast_unseen,
    search_strength,
    train,
    train_calibrated,
    validation_trials,
)

X, Y = OutlierRegression(factor=5.0, dim=2).sample(600, generator=0)
SPLITS = [published_split(600, seed=seed) for seed in (0, 1)]
DATA = TrainingData.build(X, Y, [(s.train, s.validation) for s in SPLITS])
NETWORK = MixtureNetwork(X.shape[1], 2, n_components=1, hidden=(6,))
RUNS = [Run(3, 0), Run(4, 1)]
PENALTY = CalibrationPenalty("marginal+hdr", n_samples=12)
SETTINGS = Settings(batch_size=64, max_epochs=4, patience=2, lr=1e-2)


def calibrated(strength, penalty=PENALTY, settings=SETTINGS, **options):
    return train_calibrated(
        NETWORK, DATA, RUNS, penalty=penalty, strength=strength, settings=settings, **options
    )


def by_hand(strengths, start, settings=SETTINGS):
    runs = [dataclasses.replace(run, strength=s) for s in strengths for run in RUNS]
    options = {"objective": Objective(PENALTY), "settings": settings, "start": start}
    return runs, train(NETWORK, DATA, runs, **options)


def test_a_strength_that_is_given_goes_on_from_the_base():
    training = calibrated(30.0)
    base = train(NETWORK, DATA, RUNS, settings=SETTINGS)
    _, expected = by_hand([30.0], base.theta)
    assert torch.equal(training.base, base.theta)
    assert list(training.trained) == [0.0, 30.0]
    assert torch.equal(training.trained[0.0].theta, base.theta)
    assert torch.equal(training.trained[30.0].theta, expected.theta)
    assert torch.equal(training.trained[30.0].epochs, expected.epochs)
    assert not torch.equal(expected.theta, base.theta)
    assert (training.strength, training.selection) == (30.0, None)


@pytest.mark.parametrize(("grid", "fine_tune"), [("auto", True), ((30.0, 3.0), False)], ids=str)
def test_a_strength_is_chosen_as_search_strength_would(grid, fine_tune):
    settings = dataclasses.replace(SETTINGS, fine_tune=fine_tune)
    base = train(NETWORK, DATA, RUNS, settings=settings)
    theta = {}

    def attempt(strengths):
        runs, result = RUNS, base
        if any(strengths):
            start = base.theta.repeat(len(strengths), 1) if fine_tune else None
            runs, result = by_hand(strengths, start, settings)
        theta.update(zip(strengths, result.theta.split(len(RUNS)), strict=True))
        return validation_trials(NETWORK, DATA, runs, result.theta, PENALTY.preranks, n_samples=50)

    expected = search_strength(attempt, grid, budget=0.2)
    training = calibrated(grid, settings=settings, budget=0.2, n_samples=50)
    assert training.selection == expected
    assert training.strength == expected.strength
    assert training.trained.keys() == theta.keys()
    assert all(torch.equal(training.trained[s].theta, theta[s]) for s in theta)


def test_a_base_that_is_given_is_not_trained_again():
    whole, seen = calibrated((30.0,)), []
    again = calibrated((30.0,), base=whole.base, on_epoch=seen.append)
    assert again.selection == whole.selection
    assert torch.equal(again.trained[30.0].theta, whole.trained[30.0].theta)
    assert torch.equal(again.base, whole.base)
    assert again.trained[0.0].epochs.tolist() == [0, 0]
    assert len(seen) == int(whole.trained[30.0].epochs.max())


def test_without_fine_tuning_a_given_strength_needs_no_base():
    settings = dataclasses.replace(SETTINGS, fine_tune=False)
    training = calibrated(30.0, settings=settings)
    _, expected = by_hand([30.0], None, settings)
    assert training.base is None
    assert list(training.trained) == [30.0]
    assert torch.equal(training.trained[30.0].theta, expected.theta)


def test_strength_0_is_the_base_alone():
    training = calibrated(0.0, penalty=None)
    assert list(training.trained) == [0.0]
    assert torch.equal(training.trained[0.0].theta, training.base)
    for strength in (1.0, "auto", (1.0, 2.0)):
        with pytest.raises(InputError, match="penalty"):
            calibrated(strength, penalty=None)


def test_a_head_is_fitted_behind_the_base():
    runs = [Run(3, 0), Run(4, 0)]
    head = CalibrationHead("marginal", strength=0.0, copies=1)
    training = train_calibrated(NETWORK, DATA, runs, strength=0.0, head=head, settings=SETTINGS)
    base = train(NETWORK, DATA, runs, settings=SETTINGS).theta
    assert torch.equal(training.base, base)
    assert training.head is head
    rows = [DATA.validation[0]] * 2
    forecast = forecast_unseen(NETWORK, DATA, base, runs, rows)
    assert forecast[0].logits.shape == (len(rows[0]), 2)
    expected = CalibrationHead("marginal", strength=0.0, copies=1).fit(*forecast)
    assert head.report() == expected.report()


@pytest.mark.parametrize("options", [{"strength": 1.0}, {"penalty": PENALTY}], ids=str)
def test_a_head_and_a_penalty_are_not_fitted_together(options):
    with pytest.raises(InputError, match="head"):
        calibrated(**{"strength": 0.0, "penalty": None, **options}, head=CalibrationHead())


def test_a_penalty_that_does_not_apply_is_refused_before_the_training():
    seen = []
    with pytest.raises(NotApplicableError, match="dependency"):
        calibrated(1.0, penalty=CalibrationPenalty("dependency"), on_epoch=seen.append)
    assert not seen


def test_a_search_that_does_not_exist_is_refused_before_the_training():
    seen = []
    with pytest.raises(InputError, match=r"strength must be .* got 'stage'"):
        calibrated("stage", on_epoch=seen.append)
    assert not seen


def test_a_base_that_diverges_is_refused():
    targets = torch.full_like(DATA.y, torch.inf)
    data = dataclasses.replace(DATA, y=targets)
    with pytest.raises(InputError, match="lower lr"):
        train_calibrated(NETWORK, data, RUNS, penalty=PENALTY, strength=1.0, settings=SETTINGS)


class Memory:
    """A store of checkpoints that is no file."""

    def __init__(self, kept=None, name=""):
        self.kept = {} if kept is None else kept
        self.name = name

    def load(self):
        return self.kept.get(self.name)

    def save(self, tensors, about):
        self.kept[self.name] = {n: t.clone() for n, t in tensors.items()}, dict(about)

    def discard(self):
        for name in [name for name in self.kept if name.startswith(self.name)]:
            del self.kept[name]

    def part(self, name):
        return Memory(self.kept, f"{self.name}.{name}")


def test_a_checkpoint_is_whatever_can_keep_one():
    whole, store = calibrated((3.0, 30.0)), Memory()
    interruptions = 0
    while True:
        try:
            checkpoint = Checkpoint(store, until=time.monotonic())
            found = calibrated((3.0, 30.0), checkpoint=checkpoint)
            break
        except Interrupted:
            interruptions += 1
    assert interruptions > 3
    assert found.selection == whole.selection
    for strength, result in whole.trained.items():
        assert torch.equal(found.trained[strength].theta, result.theta)
    assert store.kept
    checkpoint.drop()
    assert not store.kept


def test_a_path_is_still_a_place_for_checkpoints(tmp_path):
    trainer = Trainer(NETWORK, DATA, RUNS, settings=SETTINGS)
    trainer.step()
    with pytest.warns(DeprecationWarning, match="CheckpointFile"):
        trainer.save(tmp_path / "run")
    again = Trainer(NETWORK, DATA, RUNS, settings=SETTINGS)
    with pytest.warns(DeprecationWarning, match="CheckpointFile"):
        again.load(str(tmp_path / "run"))
    assert torch.equal(again.theta, trainer.theta)
    with pytest.raises(InputError, match="holds no checkpoint"):
        again.load(CheckpointFile(tmp_path / "other"))
    with pytest.warns(DeprecationWarning, match="CheckpointFile"):
        checkpoint = Checkpoint(tmp_path / "run")
    with pytest.warns(DeprecationWarning, match="CheckpointFile") as caught:
        assert Checkpoint(path=tmp_path / "run").store.path == tmp_path / "run"
    assert [warning.filename for warning in caught] == [__file__]
    for wrong in ({}, {"store": CheckpointFile(tmp_path), "path": tmp_path}):
        with pytest.raises(InputTypeError, match="needs a store"):
            Checkpoint(**wrong)
    checkpoint.resume(again)
    checkpoint.drop()
    assert not list(tmp_path.iterdir())


def test_the_former_name_of_the_holdout_offset():
    without = Settings(holdout_offset=False)
    use = "use holdout_offset"
    with pytest.warns(DeprecationWarning, match=use):
        assert Settings(shift=False) == without
    with pytest.warns(DeprecationWarning, match=use):
        assert not without.shift
    with pytest.warns(DeprecationWarning, match=use):
        assert dataclasses.replace(Settings(), shift=False) == without
    assert dataclasses.replace(without, holdout_offset=True) == Settings()
    # Checkpoints are found by a hash of the settings, which older versions wrote with this name.
    assert "shift=False" in Trainer(NETWORK, DATA, RUNS, settings=without)._signature
    assert "holdout" not in Trainer(NETWORK, DATA, RUNS, settings=without)._signature


def test_a_run_that_stays_as_it_was_is_not_returned_with_a_strength():
    """A learning rate that only raw networks gain from: the trained one keeps its parameters."""
    runs = [Run(3, 0), Run(4, 1), Run(5, 1)]
    trained = train(NETWORK, DATA, runs[:1], settings=dataclasses.replace(SETTINGS, max_epochs=60))
    raw = torch.stack([NETWORK.initial(run.seed) + 0.5 for run in runs[1:]]).to(trained.theta)
    options = {
        "penalty": PENALTY,
        "strength": (0.1,),
        "settings": dataclasses.replace(SETTINGS, max_epochs=2, lr=0.2),
        "base": torch.cat([trained.theta, raw]),
        "budget": 10.0,
    }
    every = train_calibrated(NETWORK, DATA, runs, **options)
    same = (every.trained[0.1].theta == every.base).all(-1)
    assert same.tolist() == [True, False, False]
    assert every.strength == 0.1
    first = train_calibrated(NETWORK, DATA, runs, returned=[0], **options)
    assert (first.strength, first.selection.strength) == (0.0, None)
    assert "the network that is returned" in first.selection.reason
