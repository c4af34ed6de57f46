"""Training in two parts: without the penalty first, and from there on with it."""

import dataclasses
import functools

import pytest
import torch
from torch import nn
from torch.distributions import Independent, Normal

from prerank.datasets import AR1Regression
from prerank.distributions import GaussianMixture
from prerank.errors import InputError, ShapeError
from prerank.files import CheckpointFile, read_tensors
from prerank.models import MixtureNetwork, ModuleNetwork
from prerank.penalty import CalibrationPenalty, LevelCounts
from prerank.preranks import PAPER
from prerank.training import Objective, Run, Settings, Trainer, TrainingData, train
from prerank.training.state import State

F64 = torch.float64
ROWS, DIM = 400, 2
BATCH, PASS = 32, 5  # 160 training rows: 5 steps of 32 are a pass, and an epoch of the first part
TUNED = 10  # steps in an epoch of the second part: two passes
# One normal, for targets that are skewed: there is something to do for a penalty.
NETWORK = MixtureNetwork(2, DIM, n_components=1, hidden=(8,), covariance="diagonal")
RUNS = [
    *(Run(0, 0, 3.0), Run(1, 1, 30.0), Run(0, 0, 0.0)),
    *(Run(0, 0, 30.0), Run(1, 0, 3.0), Run(1, 1, 0.0)),
]
PAIRS = [(0, 0), (1, 1), (1, 0)]
OF_RUN = torch.tensor([PAIRS.index((run.seed, run.split)) for run in RUNS])
FREE = torch.tensor([run.strength == 0 for run in RUNS])


def make_data(dtype=F64):
    x, y = AR1Regression(dim=DIM).sample(ROWS, generator=0)
    orders = [torch.randperm(ROWS, generator=torch.Generator().manual_seed(s)) for s in range(2)]
    splits = [(order[:160], order[160:260]) for order in orders]
    return TrainingData.build(x, y.exp(), splits, dtype=dtype)


DATA = make_data()


def moved_apart(data):
    """The same rows, but those that validate lie further out: there is something to shift."""
    y = data.y.clone()
    for split, rows in enumerate(data.validation):
        y[split, rows] *= 1.4
    return dataclasses.replace(data, y=y)


APART = moved_apart(DATA)
NOISY = Objective(CalibrationPenalty("marginal+hdr", n_samples=10))
EXACT = Objective(CalibrationPenalty("marginal"))  # a closed form: no noise
ENERGY = Objective(CalibrationPenalty("location"), score="energy", n_samples=10)
BY_OBJECTIVE = pytest.mark.parametrize(
    "objective", [NOISY, EXACT, ENERGY], ids=["noisy", "exact", "energy"]
)


def settings(**options):
    # Large steps and little patience: the runs stop at different times, in both parts.
    chosen = {"batch_size": BATCH, "max_epochs": 20, "patience": 1, "lr": 0.03, "min_delta": 0.02}
    return Settings(**{**chosen, **options})


CHOSEN = settings()
# The second part, written out: three times the patience, and ten steps in an epoch.
TUNING = settings(patience=3, min_steps=TUNED)


def finished(trainer):
    while not trainer.done:
        trainer.step()
    return trainer.result()


def steps(trainer, count):
    for _ in range(count):
        trainer.step()
    return trainer


@functools.cache
def watched(objective):
    """The result of both parts, and the progress on the way."""
    seen = []
    options = {"objective": objective, "settings": CHOSEN, "on_epoch": seen.append}
    return train(NETWORK, DATA, RUNS, **options), seen


def two_parts(objective):
    return watched(objective)[0]


@functools.cache
def plain_part(objective):
    runs = [Run(*pair) for pair in PAIRS]
    return finished(Trainer(NETWORK, DATA, runs, objective=objective, settings=CHOSEN))


def first_part(objective):
    """Every seed and split by hand, without the penalty."""
    return plain_part(dataclasses.replace(objective, penalty=None))


def second_part(start, runs=RUNS, objective=NOISY, chosen=TUNING, data=DATA):
    return Trainer(NETWORK, data, runs, objective=objective, settings=chosen, start=start)


@functools.cache
def tuned_part(objective):
    """Every run by hand, from there on."""
    return finished(second_part(first_part(objective).theta[OF_RUN], objective=objective))


@pytest.fixture
def start():
    """Parameters of every run where the score alone has stopped."""
    return first_part(NOISY).theta[OF_RUN]


def values(history, m):
    """The objectives of one run, in the order of its epochs."""
    return history[:, m][~history[:, m].isnan()]


def assert_same(found, expected):
    for field in dataclasses.fields(expected):
        torch.testing.assert_close(
            getattr(found, field.name),
            getattr(expected, field.name),
            rtol=0,
            atol=0,
            equal_nan=True,
            msg=field.name,
        )


def assert_run(together, m, alone, rtol=1e-9):
    """Run m of a stack is the run alone."""
    for name in ("theta", "objective"):
        found, expected = getattr(together, name)[m], getattr(alone, name)[0]
        torch.testing.assert_close(found, expected, rtol=rtol, atol=rtol, msg=name)
    found, expected = values(together.history, m), values(alone.history, 0)
    torch.testing.assert_close(found, expected, rtol=rtol, atol=rtol)
    assert together.epochs[m] == alone.epochs[0]
    assert together.best_epoch[m] == alone.best_epoch[0]


def validation_objective(run, theta, objective):
    """The whole objective on all validation rows of a run, for objectives without noise."""
    rows = DATA.validation[run.split]
    dist = NETWORK(theta[None], DATA.x[run.split, rows][None])
    y = DATA.y[run.split, rows][None]
    return float(-dist.log_prob(y).mean() + run.strength * objective.penalty(dist, y)[0])


# --- two parts -------------------------------------------------------------------------------


@BY_OBJECTIVE
def test_every_strength_goes_on_from_the_same_unpenalised_run(objective):
    found = two_parts(objective)
    base = first_part(objective)
    after = tuned_part(objective)
    assert len(set(base.epochs.tolist())) > 1
    assert len(set(after.epochs.tolist())) > 1
    assert torch.equal(found.theta, after.theta)
    assert torch.equal(found.objective, after.objective)
    assert torch.equal(found.epochs, base.epochs[OF_RUN] + after.epochs)
    for m, pair in enumerate(OF_RUN.tolist()):
        both = [values(base.history, pair), values(after.history, m)]
        assert torch.equal(values(found.history, m), torch.cat(both))
        moved = after.best_epoch[m] > 0
        best = base.epochs[pair] + after.best_epoch[m] if moved else base.best_epoch[pair]
        assert found.best_epoch[m] == best
    # The check can fail: strengths that share a start end elsewhere. (But for those of the energy
    # score, two of which find nothing better than their start.)
    moved = after.best_epoch > 0
    assert moved[[0, 3]].all() or objective is ENERGY
    assert moved.sum() >= 2
    penalised = found.theta[moved]
    assert torch.cdist(penalised, penalised).fill_diagonal_(1).min() > 0.01


@BY_OBJECTIVE
def test_runs_of_strength_0_are_the_unpenalised_runs(objective):
    found = two_parts(objective)
    plain = train(
        NETWORK,
        DATA,
        [Run(run.seed, run.split) for run in RUNS],
        objective=dataclasses.replace(objective, penalty=None),
        settings=CHOSEN,
    )
    for name in ("theta", "objective", "epochs", "best_epoch"):
        free, expected = (getattr(result, name)[FREE] for result in (found, plain))
        torch.testing.assert_close(free, expected, rtol=1e-9, atol=1e-9, msg=name)
    for m in FREE.nonzero().flatten().tolist():
        torch.testing.assert_close(
            values(found.history, m), values(plain.history, m), rtol=1e-9, atol=1e-9
        )
    assert (found.epochs > plain.epochs)[~FREE].all()


def test_runs_of_strength_0_alone_need_no_second_part():
    runs, calls = [Run(0, 0, 0.0), Run(1, 1, 0.0), Run(0, 0, 0.0)], []
    found = train(NETWORK, DATA, runs, objective=NOISY, settings=CHOSEN, on_epoch=calls.append)
    plain = train(NETWORK, DATA, runs[:2], settings=CHOSEN)
    assert torch.equal(found.theta, plain.theta[[0, 1, 0]])
    assert found.history.shape == (len(plain.history), 3)
    assert len(calls) == len(plain.history)
    after = second_part(plain.theta[[0, 1, 0]], runs)
    assert after.done
    assert after.progress.running == 0
    assert after.result().history.shape == (0, 3)
    assert after.result().epochs.tolist() == after.result().best_epoch.tolist() == [0, 0, 0]


def test_one_part_takes_no_notice_of_the_other():
    two = settings(max_epochs=3)
    one = dataclasses.replace(two, fine_tune=False)
    found = train(NETWORK, DATA, RUNS, objective=NOISY, settings=one)
    for chosen in (one, two):  # a trainer makes one part in either case
        trainer = Trainer(NETWORK, DATA, RUNS, objective=NOISY, settings=chosen)
        assert_same(found, finished(trainer))
    both = train(NETWORK, DATA, RUNS, objective=NOISY, settings=two)
    assert not torch.allclose(found.theta[0], both.theta[0], atol=1e-3)


@BY_OBJECTIVE
def test_the_history_counts_the_epochs_of_both_parts(objective):
    found = two_parts(objective)
    base = first_part(objective)
    assert len(set(base.epochs[OF_RUN].tolist())) > 1  # the second parts begin at different epochs
    assert found.history.shape == (int(found.epochs.max()), len(RUNS))
    for m, pair in enumerate(OF_RUN.tolist()):
        count, before = int(found.epochs[m]), int(base.epochs[pair])
        history = found.history[:, m]
        assert not history[:count].isnan().any()
        assert history[count:].isnan().all()
        assert torch.equal(history[:before], base.history[:before, pair])
        best = int(found.best_epoch[m])
        assert 1 <= best <= count
        if best > before:
            assert history[best - 1] == found.objective[m] == history[before:count].min()
        elif not FREE[m]:
            assert (history[before:count] >= found.objective[m]).all()
        else:
            assert history[best - 1] == found.objective[m]


def test_a_result_has_an_entry_for_every_run():
    found = two_parts(NOISY)
    assert found.theta.shape == (len(RUNS), NETWORK.n_parameters)
    assert found.history.shape[1] == len(RUNS)
    for name in ("epochs", "best_epoch", "objective"):
        assert getattr(found, name).shape == (len(RUNS),)
    for m in range(len(RUNS)):
        assert len(values(found.history, m)) == found.epochs[m]
        assert 1 <= found.best_epoch[m] <= found.epochs[m]


def test_each_part_has_the_whole_limit_of_epochs():
    chosen = settings(max_epochs=2, patience=2)
    found = train(NETWORK, DATA, RUNS, objective=NOISY, settings=chosen)
    assert found.epochs.tolist() == [2 if free else 4 for free in FREE.tolist()]
    assert found.history.shape == (4, len(RUNS))


def test_progress_sees_both_parts():
    _, seen = watched(NOISY)
    base = first_part(NOISY)
    after = tuned_part(NOISY)
    lengths = [int(part.epochs.max()) for part in (base, after)]
    assert [progress.epoch for progress in seen] == [
        epoch + 1 for length in lengths for epoch in range(length)
    ]
    first, second = seen[: lengths[0]], seen[lengths[0] :]
    # A seed and split is trained once without the penalty, however many strengths there are.
    assert {progress.runs for progress in first} == {len(PAIRS)}
    assert {progress.runs for progress in second} == {len(RUNS)}
    assert [progress.running for progress in second] == [
        sum(int(e) > epoch for e in after.epochs) for epoch in range(1, lengths[1] + 1)
    ]


# --- settings of the second part -------------------------------------------------------------


@pytest.mark.parametrize(
    ("patience", "tripled", "least", "most"),
    [(1, 3, 1, 10), (5, 15, 9, 10), (15, 45, 10, 10), (1, 3, 11, 11), (5, 15, 300, 300)],
)
@pytest.mark.parametrize("fine_tune", [True, False])
def test_tuning_has_more_patience_and_ten_steps(patience, tripled, least, most, fine_tune):
    given = {
        **{"lr": 0.3, "batch_size": 7, "max_epochs": 2, "min_delta": 0.5, "gradient_bound": 2.0},
        **{"fine_tune": fine_tune, "holdout_offset": False},
    }
    chosen = Settings(patience=patience, min_steps=least, **given)
    # The limit of epochs is not widened, and nothing else changes.
    assert chosen.tuning == Settings(patience=tripled, min_steps=most, **given)
    assert chosen == Settings(patience=patience, min_steps=least, **given)
    assert CHOSEN.tuning == TUNING


class Watched:
    """A network that notes whether a call is a step or a look at validation rows."""

    n_parameters = NETWORK.n_parameters
    initial = staticmethod(NETWORK.initial)

    def __init__(self, stackable=True):
        self.stackable, self.steps = stackable, 0

    def __call__(self, theta, x):
        self.steps += theta.requires_grad
        return NETWORK(theta, x)


# An epoch of the first part has the 5 steps of a pass, or as many as are asked for.
@pytest.mark.parametrize(
    ("least", "first", "second", "stackable"),
    [(1, 5, 10, True), (7, 7, 10, False), (7, 7, 10, True), (12, 12, 12, True)],
)
def test_epochs_of_the_second_part_have_ten_steps(least, first, second, stackable):
    seen = []
    chosen = settings(max_epochs=2, patience=2, min_steps=least)
    network, runs = Watched(stackable), [Run(0, 0, 3.0), Run(0, 0, 30.0)]

    def note(progress):
        seen.append((progress.epoch, network.steps))
        network.steps = 0

    options = {"objective": EXACT, "on_epoch": note}
    found = train(network, DATA, runs, settings=chosen, **options)
    parts = 1 if stackable else 2
    before, after = [(1, first), (2, first)], [(1, second), (2, second)] * parts
    assert seen == [*before, *after]
    # From a start there is the second part alone, and without fine-tuning one like the first.
    seen.clear()
    train(network, DATA, runs, settings=chosen, start=found.theta, **options)
    assert seen == after
    seen.clear()
    scratch = dataclasses.replace(chosen, fine_tune=False)
    train(network, DATA, runs, settings=scratch, **options)
    assert seen == before * parts
    seen.clear()
    train(network, DATA, runs, settings=scratch, start=found.theta, **options)
    assert seen == before * parts
    # Nor is there anything to tune without a penalty.
    seen.clear()
    options["objective"] = Objective()
    train(network, DATA, runs, settings=chosen, start=found.theta, **options)
    assert seen == before * parts


def last_improvement(history, begin, min_delta):
    """Epochs until the last one that was better than the one before it by the least decrease."""
    reference, last = begin, 0
    for epoch, value in enumerate(history, start=1):
        if value < reference - min_delta:
            reference, last = value, epoch
    return last


@BY_OBJECTIVE
def test_each_part_stops_when_its_patience_is_over(objective):
    base = first_part(objective)
    found = two_parts(objective)
    begin = second_part(base.theta[OF_RUN], objective=objective).result().objective
    for m in range(len(PAIRS)):
        history = values(base.history, m).tolist()
        last = last_improvement(history, float("inf"), CHOSEN.min_delta)
        assert base.epochs[m] == last + 1  # the patience
    waited = 0
    for m, pair in enumerate(OF_RUN.tolist()):
        if FREE[m]:
            continue
        history = values(found.history, m)[int(base.epochs[pair]) :].tolist()
        last = last_improvement(history, float(begin[m]), CHOSEN.min_delta)
        assert len(history) == min(last + 3, CHOSEN.max_epochs)  # three times the patience
        waited += last > 0 and len(history) == last + 3
    assert waited >= 2  # not all stand still from the beginning, or go on to the limit


# --- the start -------------------------------------------------------------------------------


def test_a_run_is_never_worse_than_its_start():
    found = two_parts(EXACT)
    base = first_part(EXACT).theta[OF_RUN]
    moved = []
    for m, run in enumerate(RUNS):
        before, after = (
            validation_objective(run, theta[m], EXACT) for theta in (base, found.theta)
        )
        assert float(found.objective[m]) == pytest.approx(after, rel=1e-9)
        assert after <= before + 1e-12
        moved.append(after < before)
    assert sum(moved) >= 2  # the penalty was worth it for some


def test_the_start_is_judged_before_the_first_step(start):
    trainer = second_part(start, objective=EXACT)
    found = trainer.result()
    assert torch.equal(found.theta, start)
    assert found.best_epoch.tolist() == found.epochs.tolist() == [0] * len(RUNS)
    assert trainer.progress.epoch == 0
    assert trainer.progress.running == int((~FREE).sum())
    for m, run in enumerate(RUNS):
        expected = validation_objective(run, start[m], EXACT)
        assert float(found.objective[m]) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("patience", [1, 3])
def test_steps_that_are_too_large_leave_a_run_at_its_start(start, patience):
    kept = start.clone()
    wild = settings(lr=1e3, patience=patience)
    found = train(NETWORK, DATA, RUNS, objective=EXACT, settings=wild, start=start)
    assert torch.equal(found.theta, start)
    assert torch.equal(start, kept)  # what was given is not worked on
    assert found.best_epoch.tolist() == [0] * len(RUNS)
    assert found.epochs.tolist() == [0 if free else 3 * patience for free in FREE.tolist()]
    for m, run in enumerate(RUNS):
        expected = validation_objective(run, start[m], EXACT)
        assert float(found.objective[m]) == pytest.approx(expected, rel=1e-9)


def test_a_start_without_numbers_does_not_hurt_the_others(start):
    poisoned = start.clone()
    poisoned[0] = torch.nan
    found, whole = finished(second_part(poisoned)), tuned_part(NOISY)
    assert found.objective[0] == torch.inf
    assert found.best_epoch[0] == 0
    assert found.epochs[0] == TUNING.patience
    torch.testing.assert_close(found.theta[1:], whole.theta[1:], rtol=1e-9, atol=1e-9)


def test_a_start_that_is_given_is_used_and_nothing_is_trained_before_it():
    given = torch.stack([NETWORK.initial(100 + m) for m in range(len(RUNS))])
    seen = []
    found = train(
        NETWORK,
        DATA,
        RUNS,
        objective=EXACT,
        settings=CHOSEN,
        start=given,
        on_epoch=seen.append,
    )
    assert_same(found, finished(second_part(given, objective=EXACT)))
    assert [progress.epoch for progress in seen] == list(range(1, int(found.epochs.max()) + 1))
    assert {progress.runs for progress in seen} == {len(RUNS)}
    assert torch.equal(found.theta[FREE], given[FREE])
    assert found.epochs[FREE].tolist() == [0, 0]
    assert not torch.equal(found.theta[~FREE], given[~FREE])


def test_a_start_is_taken_in_the_type_of_the_data(start):
    single, chosen = make_data(torch.float32), settings(max_epochs=2)
    found = train(NETWORK, single, RUNS, objective=NOISY, settings=chosen, start=start)
    assert_same(found, finished(second_part(start.float(), chosen=chosen.tuning, data=single)))
    assert found.theta.dtype == torch.float32
    assert torch.equal(found.theta[FREE], start[FREE].float())


def test_a_start_is_copied_and_detached(start, tmp_path):
    given = start.clone().requires_grad_()
    expected = tuned_part(EXACT)
    trainer = second_part(given, objective=EXACT)
    with torch.no_grad():
        given.fill_(torch.nan)  # whatever becomes of it now
    early = trainer.result()
    assert torch.equal(early.theta, start)
    trainer.save(CheckpointFile(tmp_path / "checkpoint"))
    second_part(start, objective=EXACT).load(
        CheckpointFile(tmp_path / "checkpoint")
    )  # of this start
    assert_same(finished(trainer), expected)
    again = train(
        NETWORK,
        DATA,
        RUNS,
        objective=EXACT,
        settings=CHOSEN,
        start=start.clone().requires_grad_(),
    )
    assert_same(again, expected)
    for result in (early, trainer.result(), again):
        assert not any(getattr(result, f.name).requires_grad for f in dataclasses.fields(result))


def test_runs_of_strength_0_stay_at_a_start_in_single_runs_too(start):
    runs, given = [RUNS[2], RUNS[5]], start[[2, 5]]
    found = train(NETWORK, DATA, runs, objective=NOISY, settings=CHOSEN, start=given)
    assert found.epochs.tolist() == found.best_epoch.tolist() == [0, 0]
    assert torch.equal(found.theta, given)
    assert found.history.shape == (0, 2)
    assert found.theta.data_ptr() != given.data_ptr()


WRONG = {
    "a run less": lambda start: start[1:],
    "a run more": lambda start: torch.cat([start, start[:1]]),
    "one for all": lambda start: start[:1],
    "one vector": lambda start: start[0],
    "a parameter less": lambda start: start[:, 1:],
    "the transpose": lambda start: start.mT,
    "one axis more": lambda start: start.unsqueeze(0),
    "nothing": lambda start: start[:0],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_start_of_another_shape_is_refused(start, name):
    wrong = WRONG[name](start)
    message = rf"start has shape .*{len(RUNS)} runs of this network"
    with pytest.raises(ShapeError, match=message):
        second_part(wrong)
    for objective in (NOISY, Objective()):
        for chosen in (CHOSEN, settings(fine_tune=False)):
            with pytest.raises(ShapeError, match=message):
                train(NETWORK, DATA, RUNS, objective=objective, settings=chosen, start=wrong)


@pytest.mark.parametrize("name", WRONG)
def test_a_start_of_another_shape_is_refused_one_by_one(name):
    network = ModuleNetwork(Gaussian)
    whole = torch.stack([network.initial(run.seed) for run in RUNS]).double()
    wrong, seen = WRONG[name](whole), []
    for chosen in (settings(max_epochs=1), settings(max_epochs=1, fine_tune=False)):
        with pytest.raises(ShapeError, match=rf"start has shape .*{len(RUNS)} runs"):
            train(
                network,
                DATA,
                RUNS,
                objective=EXACT,
                settings=chosen,
                start=wrong,
                on_epoch=seen.append,
            )
    assert seen == []  # at the top: no run was trained before it was found


@pytest.mark.parametrize("objective", [EXACT, Objective()], ids=["penalty", "nll"])
@pytest.mark.parametrize("fine_tune", [True, False])
@pytest.mark.parametrize("stackable", [True, False])
def test_no_runs_at_all_are_refused(objective, fine_tune, stackable):
    network, chosen = Watched(stackable), settings(fine_tune=fine_tune)
    for start in (None, torch.zeros(0, network.n_parameters), torch.zeros(1, 1)):
        with pytest.raises(InputError, match="runs is empty"):
            train(network, DATA, [], objective=objective, settings=chosen, start=start)
    if not stackable:
        with pytest.raises(InputError, match="runs is empty"):
            train(ModuleNetwork(Gaussian), DATA, [], objective=objective, settings=chosen)


# --- alone and in a stack --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objective", "runs"),
    [(NOISY, range(6)), (Objective(CalibrationPenalty("pca(0.8)+location")), (1, 2, 4))],
    ids=["marginal+hdr", "pca(0.8)+location"],
)
def test_a_run_does_not_depend_on_the_others(objective, runs):
    together = two_parts(objective)
    assert len(set(together.epochs.tolist())) > 3
    for m in runs:
        alone = train(NETWORK, DATA, [RUNS[m]], objective=objective, settings=CHOSEN)
        assert_run(together, m, alone)


def test_the_order_of_runs_does_not_matter():
    forward = two_parts(NOISY)
    backward = train(NETWORK, DATA, RUNS[::-1], objective=NOISY, settings=CHOSEN)
    torch.testing.assert_close(forward.theta, backward.theta.flip(0), rtol=1e-9, atol=1e-9)


def saved(trainer, path):
    trainer.save(CheckpointFile(path))
    return read_tensors(path)[0]


def test_counts_and_shift_stay_with_their_run_when_the_stack_shrinks(start, tmp_path):
    options = {"chosen": dataclasses.replace(TUNING, patience=2), "data": APART}
    together, path = second_part(start, **options), tmp_path / "checkpoint"
    alone = [second_part(start[m : m + 1], [run], **options) for m, run in enumerate(RUNS)]
    sizes, moved = set(), False
    while not together.done:
        for trainer in (together, *alone):
            for _ in range(3):  # looks into epochs at different places
                if not trainer.done:
                    trainer.step()
        state = saved(together, path)
        sizes.add(len(state["place"]))
        for row, place in enumerate(state["place"].tolist()):
            if state["going"][row]:
                single = saved(alone[place], path)
                for name in ("counts", "shift"):
                    torch.testing.assert_close(
                        state[name][row], single[name][0], rtol=1e-9, atol=1e-9, msg=name
                    )
                moved = moved or bool(len(state["place"]) < 4 and (single["shift"] != 0).any())
    assert len(sizes) > 2
    assert moved  # in a stack that had shrunk


# --- the shift -------------------------------------------------------------------------------


@pytest.mark.parametrize("passes", [1, 2, 3])
def test_the_shift_goes_half_of_the_way_to_what_the_rows_say(start, tmp_path, passes):
    # Each step of an epoch counts all training rows, with the parameters before it.
    chosen = settings(batch_size=160, min_steps=passes, patience=10)
    runs, penalty = [RUNS[m] for m in (0, 1, 3)], EXACT.penalty
    trainer = second_part(start[[0, 1, 3]], runs, EXACT, chosen, APART)
    split = torch.tensor([run.split for run in runs])

    def tally(rows):
        at = split.unsqueeze(1), rows[split]
        return penalty.tally(NETWORK(trainer.theta.clone(), APART.x[at]), APART.y[at])

    expected = torch.zeros(3, DIM, 100, dtype=F64)
    for _ in range(4):
        frequencies = 0
        for _ in range(passes):
            frequencies += tally(APART.train).frequencies / passes
            trainer.step()
        # However often they were counted, there are 160 rows.
        training = LevelCounts([160 * frequencies], [None], 160)
        expected = (expected + penalty.shift(training, tally(APART.validation))) / 2
        state = saved(trainer, tmp_path / "checkpoint")
        torch.testing.assert_close(state["shift"], expected, rtol=1e-9, atol=1e-12)
        assert (state["counts"] == 0).all()
    assert (expected != 0).any((-2, -1)).all()


class Noted(CalibrationPenalty):
    """A penalty that keeps what it counted and by what it was shifted."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.training, self.validation, self.shifted = [], [], []

    def tally(self, dist, y, *, generator=None):
        found = super().tally(dist, y, generator=generator)
        counts = torch.cat(found.counts, -2).detach()
        (self.training if torch.is_grad_enabled() else self.validation).append(counts)
        return found

    def error(self, tally, shift=None):
        if torch.is_grad_enabled():
            self.shifted.append(None if shift is None else shift.clone())
        return super().error(tally, shift)


# 160 rows in batches of 64 are two steps and 128 rows: 32 are left out.
@pytest.mark.parametrize(
    ("batch", "least", "steps_made", "rows"),
    [(64, 1, 2, 128), (64, 2, 2, 128), (64, 3, 3, 128), (64, 10, 10, 128), (32, 7, 7, 160)],
)
def test_a_row_that_is_seen_several_times_in_an_epoch_is_one_row(
    start, tmp_path, batch, least, steps_made, rows
):
    penalty, runs = Noted("marginal+hdr", n_samples=10), [RUNS[m] for m in (0, 1, 3)]
    chosen = settings(batch_size=batch, min_steps=least, patience=10)
    trainer = second_part(start[[0, 1, 3]], runs, Objective(penalty), chosen, APART)
    expected, judged, formula = torch.zeros(3, DIM + 1, 100, dtype=F64), [], penalty.shift
    for epoch in range(3):
        del penalty.training[:], penalty.validation[:], penalty.shifted[:]
        steps(trainer, steps_made)
        assert trainer.progress.epoch == epoch + 1
        assert len(penalty.training) == steps_made
        assert len(penalty.validation) == 1
        # The steps of an epoch are shifted by what the one before has found.
        for shift in penalty.shifted:
            torch.testing.assert_close(shift, expected, rtol=1e-9, atol=1e-12)
        # The mean over all steps, with as many rows as one pass has.
        seen = torch.stack(penalty.training).mean(0) / batch * rows
        validation = LevelCounts(penalty.validation, [None], 100)
        expected = (expected + formula(LevelCounts([seen], [None], rows), validation)) / 2
        judged.append(formula(LevelCounts([seen], [None], steps_made * batch), validation))
        found = saved(trainer, tmp_path / "checkpoint")["shift"]
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    assert (expected != 0).any((-2, -1)).all()
    # The check can fail: with the rows of all passes together another shift would be found.
    whole = sum(shift / 2 ** (3 - epoch) for epoch, shift in enumerate(judged))
    several = steps_made * batch > rows
    assert torch.allclose(whole, expected, rtol=1e-6, atol=1e-9) != several


class Unmoved(CalibrationPenalty):
    """A penalty whose shift is always zero."""

    def shift(self, training, validation):
        return torch.zeros_like(super().shift(training, validation))


@pytest.mark.parametrize("fine_tune", [True, False])
def test_without_a_shift_a_run_trains_as_with_a_shift_of_zero(fine_tune):
    shifting = settings(fine_tune=fine_tune, max_epochs=4)
    unshifted = dataclasses.replace(shifting, holdout_offset=False)
    unmoved = Objective(Unmoved("marginal+hdr", n_samples=10))
    without, zero, shifted = (
        train(NETWORK, APART, RUNS, objective=objective, settings=chosen)
        for objective, chosen in ((NOISY, unshifted), (unmoved, shifting), (NOISY, shifting))
    )
    assert_same(zero, without)
    assert not torch.allclose(shifted.theta[1], without.theta[1], atol=1e-3)


class Unshifted(CalibrationPenalty):
    """A penalty that says that it has no shift."""

    shifts = False

    def error(self, tally, shift=None):
        assert shift is None
        return super().error(tally, shift)

    def shift(self, training, validation):
        raise AssertionError("there is nothing to measure")


def test_a_penalty_may_have_no_shift(start, tmp_path):
    objective = Objective(Unshifted("marginal+hdr", n_samples=10))
    chosen = settings(max_epochs=4)
    found = train(NETWORK, APART, RUNS, objective=objective, settings=chosen)
    plain = dataclasses.replace(chosen, holdout_offset=False)
    assert_same(found, train(NETWORK, APART, RUNS, objective=NOISY, settings=plain))
    state = saved(steps(second_part(start, objective=objective), 3), tmp_path / "checkpoint")
    assert state["shift"].shape == state["counts"].shape == (len(RUNS), 0, 0)


@pytest.mark.parametrize(("levels", "data"), [(2, DATA), (3, APART)], ids=["alike", "apart"])
def test_few_levels_are_enough(levels, data, tmp_path):
    # Two levels are 0 and 1, where nearly all counts agree.
    objective = Objective(CalibrationPenalty("marginal+hdr", n_samples=10, levels=levels))
    chosen = settings(max_epochs=3)
    found = train(NETWORK, data, RUNS, objective=objective, settings=chosen)
    assert found.theta.isfinite().all()
    assert found.objective.isfinite().all()
    trainer = second_part(found.theta, objective=objective, data=data)
    state = saved(steps(trainer, TUNED), tmp_path / "checkpoint")
    assert state["shift"].shape[1:] == (DIM + 1, levels)
    assert state["shift"].isfinite().all()


def test_counts_that_are_no_numbers_do_not_spoil_the_shift_for_ever():
    theta = torch.zeros(3, 2, dtype=F64)
    state = State.start(theta, (2, 5))
    first = torch.arange(30, dtype=F64).reshape(3, 2, 5)
    state.move_shift(first)
    assert torch.equal(state.shift, first / 2)
    state.counts += torch.nan
    bad = torch.full_like(first, 8.0)
    bad[0, 1], bad[1], bad[2, 0, 3] = torch.nan, torch.inf, -torch.inf
    state.move_shift(bad)
    assert (state.counts == 0).all()
    moved = bad.isfinite()
    assert torch.equal(state.shift[~moved], first[~moved] / 2)
    assert torch.equal(state.shift[moved], first[moved] / 4 + 4)
    before = state.shift.clone()
    state.move_shift(first)
    assert torch.equal(state.shift, (before + first) / 2)


class Hiccup:
    """A network that gives no numbers in some steps."""

    stackable = True
    n_parameters = NETWORK.n_parameters
    initial = staticmethod(NETWORK.initial)

    def __init__(self, *bad):
        self.calls, self.bad = 0, bad

    def __call__(self, theta, x):
        dist = NETWORK(theta, x)
        if theta.requires_grad:
            self.calls += 1
            if self.calls in self.bad:
                loc = dist.loc * torch.nan
                return GaussianMixture(dist.logits, loc, dist.scale_tril, validate_args=False)
        return dist


def test_a_step_without_numbers_costs_one_epoch_of_the_shift(start, tmp_path):
    network = Hiccup(TUNED + 7)  # in the second epoch
    chosen = settings(patience=20, min_steps=TUNED, lr=3e-3)
    trainer = Trainer(network, APART, RUNS, objective=NOISY, settings=chosen, start=start)
    shifts = [saved(steps(trainer, TUNED), tmp_path / "checkpoint") for _ in range(4)]
    going = [~FREE if len(state["place"]) == len(RUNS) else slice(None) for state in shifts]
    found = [state["shift"][rows] for state, rows in zip(shifts, going, strict=True)]
    assert all(shift.isfinite().all() for shift in found)
    assert torch.equal(found[0], found[1])  # that epoch had no counts
    for one, other in ((found[1], found[2]), (found[2], found[3])):
        assert (one != other).any((-2, -1)).all()
    assert trainer.result().objective.isfinite().all()


# --- interruptions ---------------------------------------------------------------------------


# Before the first step, within epochs and the two passes of them, between passes and between
# epochs, and at the end.
PLACES = [0, PASS, PASS + 3, TUNED, 2 * TUNED + PASS + 1, "end"]


@pytest.mark.parametrize(
    ("dtype", "places"), [(torch.float32, [PASS + 3, "end"]), (F64, PLACES)], ids=str
)
def test_an_interrupted_second_part_goes_on_as_if_nothing_had_happened(
    tmp_path, start, dtype, places
):
    data = moved_apart(make_data(dtype))
    chosen = dataclasses.replace(TUNING, patience=2, max_epochs=6)

    def new():
        return Trainer(NETWORK, data, RUNS, objective=NOISY, settings=chosen, start=start)

    before, made, stored = new(), 0, {}
    for place in places:
        if place == "end":
            finished(before)
        else:
            steps(before, place - made)
            made = place
        written = saved(before, tmp_path / str(place))
        stored[place] = written, before.progress, before.result()
    last, _, whole = stored["end"]
    assert len(set(whole.epochs.tolist())) > 2  # the stack shrinks on the way
    assert (last["shift"] != 0).any()
    for index, (place, (written, progress, result)) in enumerate(stored.items()):
        after = steps(new(), index % 3)  # whatever it did before is forgotten
        after.load(CheckpointFile(tmp_path / str(place)))
        assert after.progress == progress
        again = saved(after, tmp_path / "again")
        assert written.keys() == again.keys()
        assert {"counts", "shift"} <= written.keys()
        assert all(torch.equal(written[name], again[name]) for name in ("counts", "shift"))
        assert_same(after.result(), result)
        assert_same(finished(after), whole)
        ended = saved(after, tmp_path / "ended")
        assert torch.equal(ended["shift"], last["shift"])


def test_counts_of_an_epoch_are_part_of_a_checkpoint(tmp_path, start):
    trainer = second_part(start)
    # Every run has as many PITs of each component below level 1, nearly, as it has seen rows.
    for count in range(1, TUNED):
        trainer.step()
        state = saved(trainer, tmp_path / "checkpoint")
        assert state["counts"].shape == state["shift"].shape == (len(RUNS), DIM + 1, 100)
        below = state["counts"][..., -1] / (BATCH * count)
        assert ((below > 0.9) & (below <= 1)).all()
    trainer.step()
    assert (saved(trainer, tmp_path / "checkpoint")["counts"] == 0).all()


def test_a_checkpoint_with_another_start_is_refused(tmp_path, start):
    path = tmp_path / "checkpoint"
    steps(second_part(start), 3).save(CheckpointFile(path))
    nearby = start.clone()
    nearby[2, 5] = torch.nextafter(nearby[2, 5], nearby.new_tensor(torch.inf))
    drawn = torch.stack([NETWORK.initial(run.seed) for run in RUNS])
    for other in (nearby, start.flip(0), drawn, None):
        trainer = second_part(other)
        before = trainer.result()
        with pytest.raises(InputError, match="checkpoint of other runs"):
            trainer.load(CheckpointFile(path))
        assert_same(trainer.result(), before)
    second_part(start.clone()).load(CheckpointFile(path))
    # The same parameters, but drawn: nothing was judged before the first step.
    steps(second_part(None), 3).save(CheckpointFile(path))
    with pytest.raises(InputError, match="checkpoint of other runs"):
        second_part(drawn).load(CheckpointFile(path))


@pytest.mark.parametrize(
    "options",
    [{"holdout_offset": False}, {"fine_tune": False}, {"patience": 1}, {"min_steps": 1}],
    ids=str,
)
def test_a_checkpoint_of_other_settings_is_refused(tmp_path, start, options):
    path = tmp_path / "checkpoint"
    steps(second_part(start), 3).save(CheckpointFile(path))
    other = second_part(start, chosen=dataclasses.replace(TUNING, **options))
    with pytest.raises(InputError, match="checkpoint of other runs"):
        other.load(CheckpointFile(path))


# --- other networks and penalties ------------------------------------------------------------


class Gaussian(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2 * DIM))

    def forward(self, x):
        loc, raw = self.body(x).chunk(2, -1)
        return Independent(Normal(loc, nn.functional.softplus(raw) + 1e-3), 1)


def test_modules_are_trained_in_two_parts_one_by_one():
    network, calls = ModuleNetwork(Gaussian), []
    runs, of_run, free = RUNS[:4], OF_RUN[:4], FREE[:4]
    found = train(network, DATA, runs, objective=EXACT, settings=CHOSEN, on_epoch=calls.append)
    base = [finished(Trainer(network, DATA, [Run(*pair)], settings=CHOSEN)) for pair in PAIRS[:2]]
    options = {"objective": EXACT, "settings": TUNING}
    after = [
        finished(Trainer(network, DATA, [run], start=base[pair].theta, **options))
        for run, pair in zip(runs, of_run.tolist(), strict=True)
    ]
    assert found.theta.shape == (len(runs), network.n_parameters)
    assert torch.equal(found.theta, torch.cat([part.theta for part in after]))
    assert torch.equal(found.objective, torch.cat([part.objective for part in after]))
    for m, pair in enumerate(of_run.tolist()):
        assert found.epochs[m] == base[pair].epochs + after[m].epochs
        both = [values(part.history, 0) for part in (base[pair], after[m])]
        assert torch.equal(values(found.history, m), torch.cat(both))
    assert torch.equal(found.theta[free], torch.cat([base[p].theta for p in of_run[free]]))
    lengths = [int(part.epochs) for part in (*base, *after)]
    assert [call.epoch for call in calls] == [
        epoch + 1 for length in lengths for epoch in range(length)
    ]
    assert {call.runs for call in calls} == {1}


def variance(dist, y, *, generator=None):
    """A loss term that is no calibration penalty."""
    return dist.variance.mean((-2, -1))


def test_any_loss_term_has_two_parts(tmp_path):
    objective = Objective(variance)
    runs = [Run(0, 0, 0.0), Run(0, 0, 1.0), Run(0, 0, 3.0), Run(1, 1, 3.0)]
    found = train(NETWORK, DATA, runs, objective=objective, settings=CHOSEN)
    plain = train(NETWORK, DATA, runs, settings=CHOSEN)
    torch.testing.assert_close(found.theta[0], plain.theta[0], rtol=1e-9, atol=1e-9)
    spread = []
    for m, run in enumerate(runs):
        before, after = (
            validation_objective(run, result.theta[m], objective) for result in (plain, found)
        )
        assert float(found.objective[m]) == pytest.approx(after, rel=1e-9)
        assert after < before or (run.strength == 0 and after == pytest.approx(before, rel=1e-9))
        rows = DATA.validation[run.split]
        dist = NETWORK(found.theta[m : m + 1], DATA.x[run.split, rows][None])
        spread.append(float(dist.variance.mean()))
    assert spread[0] > spread[1] > spread[2]
    # It counts nothing, and has no shift: whether there should be one does not matter.
    same = train(NETWORK, DATA, runs, objective=objective, settings=settings(holdout_offset=False))
    assert_same(same, found)
    state = saved(second_part(plain.theta, runs, objective), tmp_path / "checkpoint")
    assert state["shift"].numel() == state["counts"].numel() == 0


def test_a_loss_term_has_checkpoints_in_the_second_part(tmp_path, start):
    objective = Objective(variance)
    whole = finished(second_part(start, objective=objective))
    before = steps(second_part(start, objective=objective), TUNED + 2)
    before.save(CheckpointFile(tmp_path / "checkpoint"))
    after = second_part(start, objective=objective)
    after.load(CheckpointFile(tmp_path / "checkpoint"))
    assert_same(finished(after), whole)


@pytest.mark.parametrize("spec", ["marginal", "pca"])
def test_the_published_penalty_has_two_parts(spec, tmp_path):
    objective, runs = Objective(CalibrationPenalty.published(spec)), RUNS[:4]
    objective.penalty.n_samples = 20
    chosen = settings(max_epochs=3)
    found = train(NETWORK, APART, runs, objective=objective, settings=chosen)
    bare = [Run(run.seed, run.split) for run in runs]
    base = train(NETWORK, APART, bare, settings=chosen)
    trainer = second_part(base.theta, runs, objective, chosen.tuning, APART)
    before = trainer.result()
    after = finished(trainer)
    for name in ("theta", "objective"):
        expected = getattr(after, name)
        torch.testing.assert_close(getattr(found, name), expected, rtol=1e-9, atol=1e-9, msg=name)
    assert (found.objective <= before.objective).all()
    assert (found.objective < before.objective)[[0, 1, 3]].any()
    assert torch.equal(found.epochs, base.epochs + after.epochs)
    # No shift is measured, whether there should be one or not.
    unshifted = dataclasses.replace(chosen, holdout_offset=False)
    assert_same(train(NETWORK, APART, runs, objective=objective, settings=unshifted), found)
    trainer = second_part(base.theta, runs, objective, chosen.tuning, APART)
    state = saved(steps(trainer, TUNED), tmp_path / "checkpoint")
    assert state["shift"].numel() == state["counts"].numel() == 0
    assert not CalibrationPenalty.published(spec).shifts
    assert CalibrationPenalty(spec).shifts


# --- trouble ---------------------------------------------------------------------------------


class Broken:
    """A network that gives no numbers for some runs, except with the parameters of its start."""

    stackable = True
    n_parameters = NETWORK.n_parameters
    initial = staticmethod(NETWORK.initial)

    def __init__(self, seed):
        self.start, self.broken = NETWORK.initial(seed), True

    def __call__(self, theta, x):
        dist = NETWORK(theta, x)
        if not self.broken or theta.requires_grad:
            return dist
        # Those of the seed have moved by some steps, and are still nearer to it than the others.
        away = (theta - self.start).abs().amax(1)
        lost = ((away > 0) & (away < 0.25)).double()[:, None, None, None]
        loc = dist.loc + torch.where(lost > 0, torch.nan, 0)
        return GaussianMixture(dist.logits, loc, dist.scale_tril, validate_args=False)


def test_a_first_part_that_found_nothing_stays_without_a_result():
    chosen = settings(patience=2, lr=1e-3, max_epochs=4)
    network, lost = Broken(1), torch.tensor([run.seed == 1 for run in RUNS])
    found = train(network, DATA, RUNS, objective=EXACT, settings=chosen)
    whole = train(NETWORK, DATA, RUNS, objective=EXACT, settings=chosen)
    # Its start, whose objective with the penalty is a number, is no result.
    initial = torch.stack([NETWORK.initial(1)] * int(lost.sum()))
    assert torch.equal(found.theta[lost], initial)
    judged = second_part(initial, [run for run in RUNS if run.seed == 1], EXACT).result()
    assert judged.objective.isfinite().all()
    assert (found.objective[lost] == torch.inf).all()
    assert (found.best_epoch[lost] == 0).all()
    # Two epochs of patience, and then four: the limit comes before the six.
    expected = [2 if FREE[m] else 6 for m in lost.nonzero().flatten().tolist()]
    assert found.epochs[lost].tolist() == expected
    assert found.history[:, lost].isnan().all()
    for name in ("theta", "objective", "epochs", "best_epoch"):
        rest, other = (getattr(result, name)[~lost] for result in (found, whole))
        torch.testing.assert_close(rest, other, rtol=1e-9, atol=1e-9, msg=name)
    assert found.objective[~lost].isfinite().all()


def test_a_second_part_may_find_what_the_first_did_not():
    chosen = settings(patience=2, lr=1e-3, max_epochs=4)
    network, lost = Broken(1), torch.tensor([run.seed == 1 for run in RUNS])

    def mend(progress):
        network.broken = network.broken and progress.running > 0  # to the end of the first part

    found = train(network, DATA, RUNS, objective=EXACT, settings=chosen, on_epoch=mend)
    assert not network.broken
    initial = NETWORK.initial(1)
    for m in lost.nonzero().flatten().tolist():
        if FREE[m]:  # there is no second part for these
            assert found.objective[m] == torch.inf
            assert found.best_epoch[m] == 0
            assert torch.equal(found.theta[m], initial)
            continue
        after = finished(second_part(initial[None], [RUNS[m]], EXACT, chosen.tuning))
        assert after.best_epoch[0] > 0
        torch.testing.assert_close(found.theta[m], after.theta[0], rtol=1e-9, atol=1e-9)
        assert float(found.objective[m]) == pytest.approx(float(after.objective), rel=1e-9)
        assert found.best_epoch[m] == 2 + after.best_epoch[0]
        assert found.epochs[m] == 2 + after.epochs[0]
        assert found.history[:2, m].isnan().all()


def nothing(dist, y, *, generator=None):
    """A loss term that is not a number."""
    return dist.mean.mean((-2, -1)) * torch.nan


class Spoiled(CalibrationPenalty):
    """The same, with counts."""

    def tally(self, dist, y, *, generator=None):
        found = super().tally(dist, y, generator=generator)
        return LevelCounts(
            [counts * torch.nan for counts in found.counts], found.weights, found.rows
        )


@pytest.mark.parametrize("penalty", [nothing, Spoiled()], ids=["term", "counts"])
def test_a_strength_of_0_is_not_spoiled_by_a_penalty_without_numbers(penalty):
    objective = Objective(penalty)
    plain = train(NETWORK, DATA, [Run(*pair) for pair in PAIRS], settings=CHOSEN)
    found = train(NETWORK, DATA, RUNS, objective=objective, settings=CHOSEN)
    base = plain.theta[OF_RUN]
    assert torch.equal(found.theta, base)
    judged = second_part(base, objective=objective).result()
    for result in (found, judged):
        assert (result.objective[~FREE] == torch.inf).all()
        expected = plain.objective[OF_RUN[FREE]]
        torch.testing.assert_close(result.objective[FREE], expected, rtol=1e-12, atol=0)
    assert torch.equal(found.best_epoch, plain.best_epoch[OF_RUN])
    assert torch.equal(found.epochs, plain.epochs[OF_RUN] + torch.where(FREE, 0, 3))
    assert found.history[:, FREE].isfinite().any(0).all()


@pytest.mark.parametrize(
    "label", [prerank.label for prerank in PAPER if prerank.label != "dependency"]
)
@pytest.mark.parametrize("first", [0, 1])
def test_a_start_without_numbers_does_not_stop_a_penalty(label, first):
    # What the penalty counts is looked up with the parameters of the first run.
    objective = Objective(CalibrationPenalty(label, n_samples=8))
    runs, given = (
        [Run(0, 0, 3.0), Run(1, 1, 3.0)],
        torch.stack([NETWORK.initial(m) for m in (0, 1)]),
    )
    given[first] = torch.nan
    chosen = settings(max_epochs=1, min_steps=1)
    found = finished(second_part(given, runs, objective, chosen))
    other = 1 - first
    alone = finished(second_part(given[[other]], runs[other:][:1], objective, chosen))
    assert_run(found, other, alone)
    assert found.objective[first] == torch.inf
    assert found.theta[first].isnan().all()
