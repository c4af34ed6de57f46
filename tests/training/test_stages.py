"""A search in stages: what it tries, what it chooses, and what it says of the rest."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from prerank.datasets import OutlierRegression, published_split
from prerank.errors import InputError
from prerank.models import MixtureNetwork
from prerank.penalty import CalibrationPenalty
from prerank.training import (
    Run,
    Settings,
    Trainer,
    TrainingData,
    Trial,
    choose_strength,
    search_in_stages,
    train_calibrated,
)
from prerank.training.selection import Skipped
from prerank.training.state import State

EXCESS, ENERGY, NOISE = np.array([0.05, 0.06, 0.07]), np.array([1.0, 1.1, 1.2]), np.full(3, 0.004)


class Runs:
    """Paired runs whose relative excess and cost are known functions of the strength."""

    def __init__(self, excess, cost, others=None):
        self.calls, self._excess, self._cost = [], excess, cost
        self._others = others or excess

    def __call__(self, strengths, runs):
        self.calls.append((list(strengths), runs))
        return [self._trial(strength).part(range(*runs.indices(3))) for strength in strengths]

    def _trial(self, strength):
        shares = np.array([self._excess(strength), *[self._others(strength)] * 2])
        return Trial(strength, EXCESS * shares, ENERGY * (1 + self._cost(strength)), NOISE)

    @property
    def tried(self):
        """Strengths with a penalty, on the first run, and on the others."""
        first = [s for strengths, runs in self.calls[1:] for s in strengths if runs.start is None]
        return first, [s for strengths, runs in self.calls[1:] for s in strengths if runs.start]


def valley(best):
    """Lowest at `best`, on a logarithmic scale; 1 at strength 0."""
    return lambda s: 1.0 if s == 0 else min(1.0, 0.1 + 0.2 * abs(math.log(s / best)))


def falling(strength):
    return 1 / (1 + strength)


def free(strength):
    return 0.0


def dear(strength):
    return 0.004 * strength


@pytest.mark.parametrize("best", [10.0, 30.0])
def test_one_strength_is_confirmed_on_the_other_runs(best):
    runs = Runs(valley(best), free)
    selection = search_in_stages(runs)
    assert selection.strength == best
    assert runs.calls[0] == ([0.0], slice(None))
    assert runs.tried == ([10.0, 30.0, 100.0], [best])
    assert [row.strength for row in selection.trace] == [0.0, best]


@pytest.mark.parametrize("best", [100.0, 300.0, 1000.0])
def test_goes_up_until_the_best_one_is_bracketed(best):
    runs = Runs(valley(best), free)
    assert search_in_stages(runs).strength == best
    first, others = runs.tried
    assert first[-1] / best == pytest.approx(3, rel=0.2)
    assert others == [best]


def test_does_not_go_up_where_nothing_beyond_noise_is_left():
    runs = Runs(falling, free)
    selection = search_in_stages(runs)
    # At 30 the first run has an excess of .0016, at 100 of .0005: half of the noise is .002.
    assert selection.strength == 30.0
    assert runs.tried == ([10.0, 30.0, 100.0], [30.0])


def test_goes_down_while_none_is_affordable():
    runs = Runs(falling, lambda s: 0.0 if s == 0 else 0.05 + 0.3 * s)
    assert search_in_stages(runs).strength == 0.1
    assert runs.tried == ([10.0, 30.0, 100.0, 3.0, 1.0, 0.3, 0.1], [0.1])


def test_none_is_affordable():
    runs = Runs(falling, lambda s: 0.0 if s == 0 else 1.0)
    selection = search_in_stages(runs)
    assert selection.strength is None
    assert selection.reason == "no strength is within the budget on the first run"
    assert selection.skipped[-1].strength == 300.0
    assert selection.skipped[-1].reason.endswith("cost more than the budgets allow")
    first, others = runs.tried
    assert (min(first), others) == (0.03, [])


@pytest.mark.parametrize("excess", [lambda s: 1.0, lambda s: 1.0 + s])
def test_nothing_helps(excess):
    runs = Runs(excess, free)
    selection = search_in_stages(runs)
    assert selection.strength is None
    assert "improves calibration on the first run" in selection.reason
    assert selection.skipped[-1].strength == 300.0
    assert selection.skipped[-1].reason.endswith("weaker ones do not improve the first run")
    assert runs.tried == ([10.0, 30.0, 100.0], [])


def test_without_evidence_nothing_is_tried():
    runs = Runs(lambda s: 0.01, free)
    selection = search_in_stages(runs)
    assert (selection.strength, selection.skipped) == (None, ())
    assert len(runs.calls) == 1


def test_a_weaker_one_takes_the_place_of_one_that_the_others_refuse():
    class Dear(Runs):
        def _trial(self, strength):
            found = super()._trial(strength)
            return replace(found, energy=found.energy * np.array([1, 1 + dear(strength), 1]))

    runs = Dear(falling, free)
    selection = search_in_stages(runs, budget=0.03)
    assert selection.strength == 10.0
    assert runs.tried == ([10.0, 30.0, 100.0], [30.0, 10.0])
    assert [row.within_budget for row in selection.trace] == [True, True, False]


def test_a_stronger_one_takes_the_place_of_one_that_does_not_help_the_others():
    runs = Runs(valley(30.0), free, others=lambda s: {0.0: 1.0, 30.0: 2.0}.get(s, 0.1))
    selection = search_in_stages(runs)
    assert selection.strength == 100.0
    assert runs.tried[1] == [30.0, 100.0]


def test_the_first_run_has_to_be_among_those_that_gain():
    runs = Runs(lambda s: 1.0 + s, free, others=falling)
    assert search_in_stages(runs, returned=[0]).strength is None


def test_one_run_alone():
    base, *found = Runs(valley(30.0), free)([0.0, 10.0, 30.0, 100.0], slice(1))
    known = {t.strength: t for t in (base, *found)}
    selection = search_in_stages(lambda strengths, runs: [known[s] for s in strengths])
    assert selection.strength == choose_strength([base, *found]).strength == 30.0


def test_what_was_skipped_is_named_with_its_reason():
    selection = search_in_stages(Runs(valley(30.0), lambda s: s / 500), budget=0.1)
    said = {skipped.strength: skipped.reason for skipped in selection.skipped}
    assert sorted(said) == list(said) == [3.0, 10.0, 100.0, 300.0]
    assert "not tried" in said[3.0]
    assert said[10.0] == (
        "excess 0.0160 on the first run, more than that of strength 30 (0.0050) beyond noise"
    )
    assert "budgets" in said[100.0]
    assert "not tried" in said[300.0]
    assert all(isinstance(skipped, Skipped) for skipped in selection.skipped)


def test_results_of_other_runs_are_joined():
    whole = Runs(valley(30.0), free)([30.0], slice(None))[0]
    first, others = whole.part([0]), whole.part([1, 2])
    joined = first.joined([others])
    for name in ("excess", "energy", "noise"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(whole, name))
    assert joined.nll is joined.unchanged is None
    assert first.joined([]).excess.tolist() == first.excess.tolist()


def test_a_run_without_any_improvement_has_more_epochs():
    state = State.start(torch.zeros(2, 1))
    state.begin(torch.ones(2), torch.ones(2, dtype=torch.bool))
    going = []
    for values in ([2.0, 0.5], [2.0, 2.0], [2.0, 2.0]):
        state.record(torch.tensor(values), patience=1, min_delta=0.0, first=3)
        going.append(state.going.tolist())
    assert going == [[True, True], [True, False], [False, False]]


def test_the_time_for_a_first_improvement_is_part_of_what_identifies_a_training():
    names = [
        Trainer(NETWORK, DATA, [Run(3, 0)], settings=replace(SETTINGS, first_patience=first))
        for first in (None, 5, 6)
    ]
    assert len({trainer.fingerprint for trainer in names}) == 3
    assert "first_patience" not in names[0]._signature  # as in checkpoints that knew nothing of it
    with pytest.raises(InputError, match="first_patience"):
        Settings(first_patience=0)


X, Y = OutlierRegression(factor=5.0, dim=2).sample(600, generator=0)
SPLITS = [published_split(600, seed=seed) for seed in (0, 1)]
DATA = TrainingData.build(X, Y, [(s.train, s.validation) for s in SPLITS])
NETWORK = MixtureNetwork(X.shape[1], 2, n_components=1, hidden=(6,))
SETTINGS = Settings(batch_size=64, max_epochs=8, patience=6, lr=1e-2)


@pytest.fixture(scope="module")
def training():
    return train_calibrated(
        NETWORK,
        DATA,
        [Run(3, 0), Run(4, 1)],
        penalty=CalibrationPenalty("marginal+hdr", n_samples=12),
        strength="stages",
        settings=SETTINGS,
        budget=10.0,
        returned=[0],
    )


def test_runs_of_the_chosen_strength_come_from_two_stacks(training):
    assert training.strength > 0
    assert sorted(training.trained) == [row.strength for row in training.selection.trace]
    assert len(training.trained[training.strength].theta) == 2
    (first, *_), (last, _) = training.stages[1][0], training.stages[-1]
    assert (first.split, last[0].split) == (0, 1)


def test_runs_are_those_that_the_strength_alone_would_give(training):
    # 40 and 100 steps, of which an epoch has 10.
    settings = replace(SETTINGS, patience=4, first_patience=10, tuning_patience=1)
    alone = train_calibrated(
        NETWORK,
        DATA,
        [Run(3, 0), Run(4, 1)],
        penalty=CalibrationPenalty("marginal+hdr", n_samples=12),
        strength=training.strength,
        settings=settings,
        base=training.base,
    )
    found, expected = training.trained[training.strength], alone.trained[training.strength]
    assert torch.equal(found.epochs, expected.epochs)
    assert torch.allclose(found.theta, expected.theta, rtol=1e-4, atol=1e-6)
