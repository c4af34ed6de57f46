"""Training: each run is a function of its own seed, split and strength."""

import dataclasses
import itertools

import pytest
import torch
from torch import nn
from torch.distributions import Independent, Normal

from prerank.datasets import AR1Regression, published_split
from prerank.distributions.noise import RunNoise
from prerank.errors import InputError, InputTypeError, ShapeError
from prerank.files import CheckpointFile
from prerank.models import MixtureNetwork, ModuleNetwork
from prerank.penalty import CalibrationPenalty
from prerank.preranks import PAPER
from prerank.training import Objective, Progress, Run, Settings, Trainer, TrainingData, train

F64 = torch.float64
ROWS, DIM = 600, 3
NETWORK = MixtureNetwork(2, DIM, n_components=2, hidden=(8,))
RUNS = [Run(0, 0, 0.0), Run(1, 1, 3.0), Run(1, 0, 10.0), Run(7, 1, 1.0), Run(3, 2, 30.0)]


def make_data(rows=ROWS, dim=DIM, dtype=F64, splits=3, clip=True):
    x, y = AR1Regression(dim=dim).sample(rows, generator=0)
    parts = [published_split(rows, seed) for seed in range(splits)]
    return TrainingData.build(
        x, y, [(part.train, part.validation) for part in parts], dtype=dtype, clip=clip
    )


DATA = make_data()
NOISY = Objective(CalibrationPenalty("marginal+hdr", n_samples=20))
EXACT = Objective(CalibrationPenalty("marginal"))  # a closed form: no noise
PLAIN = Objective()


def settings(**options):
    options = {"fine_tune": False, **options}  # one part; two have tests of their own
    return Settings(**{"batch_size": 32, "max_epochs": 5, "lr": 5e-3, **options})


def fields(result):
    return {f.name: getattr(result, f.name) for f in dataclasses.fields(result)}


def assert_same(found, expected):
    for name, value in fields(expected).items():
        torch.testing.assert_close(
            getattr(found, name), value, rtol=0, atol=0, equal_nan=True, msg=name
        )


def steps(trainer, count):
    for _ in range(count):
        trainer.step()
    return trainer


# --- alone and in a stack --------------------------------------------------------------------


def assert_run(together, m, alone, rtol=1e-9):
    """Run m of a stack is the run alone; the history of a stack may be longer."""
    torch.testing.assert_close(together.theta[m], alone.theta[0], rtol=rtol, atol=rtol)
    length = len(alone.history)
    history = together.history[:, m]
    torch.testing.assert_close(history[:length], alone.history[:, 0], rtol=rtol, atol=rtol)
    assert history[length:].isnan().all()
    assert together.epochs[m] == alone.epochs[0]
    assert together.best_epoch[m] == alone.best_epoch[0]
    torch.testing.assert_close(together.objective[m], alone.objective[0], rtol=rtol, atol=rtol)


def test_a_run_in_a_stack_is_the_run_alone():
    # 240 rows in batches of 32 are 7 steps an epoch: 42 steps.
    chosen = settings(max_epochs=6, patience=6)
    objective = Objective(CalibrationPenalty("marginal+hdr", n_samples=10))
    together = train(NETWORK, DATA, RUNS, objective=objective, settings=chosen)
    assert together.epochs.tolist() == [6] * len(RUNS)
    for m in (1, 2, 4):
        alone = train(NETWORK, DATA, [RUNS[m]], objective=objective, settings=chosen)
        assert_run(together, m, alone)
    # The check can fail: the runs are different ones.
    assert torch.cdist(together.theta, together.theta).fill_diagonal_(1).min() > 0.05


@pytest.mark.parametrize("spec", ["scale", "dependency", "pca", "copula", "location+copula"])
def test_parity_of_the_other_penalties(spec):
    objective = Objective(CalibrationPenalty(spec, n_samples=12))
    chosen = settings(max_epochs=2)
    together = train(NETWORK, DATA, RUNS[1:4], objective=objective, settings=chosen)
    for m, run in enumerate(RUNS[1:4]):
        alone = train(NETWORK, DATA, [run], objective=objective, settings=chosen)
        assert_run(together, m, alone)


def test_parity_of_the_energy_score():
    objective = Objective(score="energy", n_samples=10)
    chosen = settings(max_epochs=4)
    together = train(NETWORK, DATA, RUNS[:3], objective=objective, settings=chosen)
    for m, run in enumerate(RUNS[:3]):
        assert_run(together, m, train(NETWORK, DATA, [run], objective=objective, settings=chosen))


def test_the_order_of_runs_does_not_matter():
    chosen = settings(max_epochs=3)
    forward, backward = (
        train(NETWORK, DATA, runs, objective=NOISY, settings=chosen) for runs in (RUNS, RUNS[::-1])
    )
    torch.testing.assert_close(forward.theta, backward.theta.flip(0), rtol=1e-9, atol=1e-9)


def test_float32_follows_float64():
    single = make_data(dtype=torch.float32)
    chosen = settings(max_epochs=2)
    found, exact = (
        train(NETWORK, data, RUNS[:3], objective=NOISY, settings=chosen) for data in (single, DATA)
    )
    assert found.theta.dtype == torch.float32
    # 14 steps of 5e-3 each: the runs are the same ones up to single precision.
    torch.testing.assert_close(found.theta.double(), exact.theta, rtol=0, atol=2e-3)


def test_torch_s_global_state_is_neither_used_nor_changed():
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        trainer = Trainer(NETWORK, DATA, RUNS, objective=NOISY, settings=settings(max_epochs=2))
        while not trainer.done:
            torch.rand(seed)
            state = torch.get_rng_state()
            trainer.step()
            assert torch.equal(torch.get_rng_state(), state)
        results.append(trainer.result())
    assert_same(*results)


# --- interruptions ---------------------------------------------------------------------------

STOPPING = settings(max_epochs=8, patience=2, lr=0.03, min_delta=0.01)


def finished(trainer):
    while not trainer.done:
        trainer.step()
    return trainer.result()


@pytest.mark.parametrize(("dtype", "places"), [(torch.float32, [39]), (F64, [7, 39])])
def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(tmp_path, dtype, places):
    data, stored = make_data(dtype=dtype), []

    def new():
        return Trainer(NETWORK, data, RUNS, objective=NOISY, settings=STOPPING)

    before = new()
    for made, place in itertools.pairwise([0, *places]):  # 7: between two epochs
        steps(before, place - made).save(CheckpointFile(tmp_path / f"{place}.safetensors"))
        stored.append((place, before.progress, before.result()))
    whole = finished(before)
    assert len(set(whole.epochs.tolist())) > 1  # some stop early: the stack shrinks on the way
    assert 7 * int(whole.epochs.min()) < places[-1] < 7 * int(whole.epochs.max())
    for index, (place, progress, result) in enumerate(stored):
        after = steps(new(), index)  # whatever it did before is forgotten
        after.load(CheckpointFile(tmp_path / f"{place}.safetensors"))
        assert after.progress == progress
        assert_same(after.result(), result)
        assert_same(finished(after), whole)


@pytest.mark.parametrize("last_batch", [False, True])
def test_many_interruptions(tmp_path, last_batch):
    # Passes over the rows, of 7 or 8 steps, and epochs, of 10, end at different times.
    chosen = dataclasses.replace(STOPPING, min_steps=10, last_batch=last_batch)
    whole = finished(Trainer(NETWORK, DATA, RUNS, objective=NOISY, settings=chosen))
    trainer = Trainer(NETWORK, DATA, RUNS, objective=NOISY, settings=chosen)
    path = tmp_path / "checkpoint"
    for pause in itertools.cycle([1, 5, 11]):
        for _ in range(pause):
            if not trainer.done:
                trainer.step()
        trainer.save(CheckpointFile(path))
        if trainer.done:
            break
        trainer = Trainer(NETWORK, DATA, RUNS, objective=NOISY, settings=chosen)
        trainer.load(CheckpointFile(path))
    assert_same(trainer.result(), whole)


def test_a_saved_trainer_goes_on_unharmed(tmp_path):
    trainer = Trainer(NETWORK, DATA, RUNS, objective=NOISY, settings=STOPPING)
    plain = Trainer(NETWORK, DATA, RUNS, objective=NOISY, settings=STOPPING)
    for _ in range(9):
        trainer.step()
        trainer.save(CheckpointFile(tmp_path / "checkpoint"))
        plain.step()
    assert_same(trainer.result(), plain.result())


OTHERS = {
    "seed": ([Run(2, 0, 0.0), *RUNS[1:]], NETWORK, STOPPING),
    "split": ([Run(0, 1, 0.0), *RUNS[1:]], NETWORK, STOPPING),
    "strength": ([Run(0, 0, 0.1), *RUNS[1:]], NETWORK, STOPPING),
    "number of runs": (RUNS[1:], NETWORK, STOPPING),
    "order": (RUNS[::-1], NETWORK, STOPPING),
    "lr": (RUNS, NETWORK, dataclasses.replace(STOPPING, lr=0.02)),
    "max_epochs": (RUNS, NETWORK, dataclasses.replace(STOPPING, max_epochs=16)),
    "network": (RUNS, MixtureNetwork(2, DIM, n_components=3, hidden=(8,)), STOPPING),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_checkpoint_of_other_runs_is_refused(tmp_path, name):
    path = tmp_path / "checkpoint"
    steps(Trainer(NETWORK, DATA, RUNS, settings=STOPPING), 3).save(CheckpointFile(path))
    runs, network, chosen = OTHERS[name]
    other = Trainer(network, DATA, runs, settings=chosen)
    before = other.result()
    with pytest.raises(InputError, match="checkpoint of other runs"):
        other.load(CheckpointFile(path))
    assert_same(other.result(), before)


@pytest.mark.parametrize("how", ["missing", "empty", "cut", "text"])
def test_a_broken_checkpoint_is_refused(tmp_path, how):
    path = tmp_path / "run.safetensors"
    trainer = steps(Trainer(NETWORK, DATA, RUNS, settings=STOPPING), 3)
    if how != "missing":
        trainer.save(CheckpointFile(path))
        content = {"empty": b"", "cut": path.read_bytes()[:-7], "text": b"hello, this is text"}
        path.write_bytes(content[how])
    with pytest.raises(InputError, match=r"run\.safetensors"):
        trainer.load(CheckpointFile(path))


# --- stopping --------------------------------------------------------------------------------


def validation_objective(data, run, theta, objective):
    """The objective on all validation rows of a run, for objectives without noise."""
    rows = data.validation[run.split]
    dist = NETWORK(theta[None], data.x[run.split, rows][None])
    y = data.y[run.split, rows][None]
    value = -dist.log_prob(y).mean()
    if objective.penalty is not None:
        value = value + run.strength * objective.penalty(dist, y)[0]
    return float(value)


def stopping_epoch(history, patience, min_delta):
    reference, waited = float("inf"), 0
    for epoch, value in enumerate(history, start=1):
        waited = 0 if value < reference - min_delta else waited + 1
        reference = value if waited == 0 else reference
        if waited >= patience:
            return epoch
    return len(history)


@pytest.mark.parametrize("objective", [PLAIN, EXACT], ids=["nll", "penalty"])
@pytest.mark.parametrize("options", [{"patience": 1}, {"patience": 3, "min_delta": 0.02}], ids=str)
def test_runs_stop_on_their_objective_and_keep_the_best(objective, options):
    # A large step, so that the objective goes up and down.
    chosen = settings(max_epochs=40, lr=0.05, **options)
    found = train(NETWORK, DATA, RUNS, objective=objective, settings=chosen)
    assert found.history.shape == (int(found.epochs.max()), len(RUNS))
    assert len(set(found.epochs.tolist())) > 1
    worse = 0
    for m, run in enumerate(RUNS):
        count = int(found.epochs[m])
        history = found.history[:count, m]
        assert not history.isnan().any()
        assert found.history[count:, m].isnan().all()
        assert count == stopping_epoch(history.tolist(), chosen.patience, chosen.min_delta)
        assert found.objective[m] == history.min()
        assert found.best_epoch[m] == int(history.argmin()) + 1
        expected = validation_objective(DATA, run, found.theta[m], objective)
        assert float(found.objective[m]) == pytest.approx(expected, rel=1e-9)
        # It was worth keeping: the last parameters are worse ones. (Those of the epochs that were
        # waited for may still be the best, but by less than would have counted.)
        assert count < chosen.max_epochs
        reference = history[-chosen.patience - 1]
        assert (
            history[-1] > history.min() or reference >= history[-1] >= reference - chosen.min_delta
        )
        worse += int(history[-1] > history.min())
    assert worse >= len(RUNS) - 1


def test_runs_that_stop_do_not_change_the_others():
    chosen = settings(max_epochs=6, patience=1, lr=0.01, min_delta=0.05)
    found = train(NETWORK, DATA, RUNS, objective=NOISY, settings=chosen)
    assert len(set(found.epochs.tolist())) > 2
    for m, run in enumerate(RUNS):
        alone = train(NETWORK, DATA, [run], objective=NOISY, settings=chosen)
        assert_run(found, m, alone)


def test_the_stack_shrinks():
    sizes = []

    class Watched:
        stackable = True
        n_parameters = NETWORK.n_parameters
        initial = staticmethod(NETWORK.initial)

        def __call__(self, theta, x):
            if theta.requires_grad:
                sizes.append(len(theta))
            return NETWORK(theta, x)

    chosen = settings(max_epochs=25, patience=1, lr=0.03)
    found = train(Watched(), DATA, RUNS, objective=NOISY, settings=chosen)
    running = [sum(int(e) > epoch for e in found.epochs) for epoch in range(max(found.epochs))]
    needed = [count for count in running for _ in range(7)]
    assert len(sizes) == len(needed)
    assert all(size >= count for size, count in zip(sizes, needed, strict=True))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < len(RUNS)


def test_validation_rows_may_be_taken_in_chunks(monkeypatch):
    chosen = settings(max_epochs=3)
    whole = train(NETWORK, DATA, RUNS, objective=EXACT, settings=chosen)
    monkeypatch.setattr("prerank.training.trainer._CHUNK_ROWS", 7)
    parts = train(NETWORK, DATA, RUNS, objective=EXACT, settings=chosen)
    torch.testing.assert_close(parts.theta, whole.theta, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(parts.history, whole.history, rtol=1e-12, atol=0)


def test_chunks_of_validation_rows_do_not_depend_on_the_stack(monkeypatch):
    monkeypatch.setattr("prerank.training.trainer._CHUNK_ROWS", 7)
    chosen = settings(max_epochs=2)
    together = train(NETWORK, DATA, RUNS, objective=NOISY, settings=chosen)
    for m, run in enumerate(RUNS):
        alone = train(NETWORK, DATA, [run], objective=NOISY, settings=chosen)
        torch.testing.assert_close(alone.history[:, 0], together.history[:, m], rtol=1e-9, atol=0)


def test_a_stopped_trainer_says_so():
    trainer = steps(Trainer(NETWORK, DATA, RUNS[:1], settings=settings(max_epochs=1)), 7)
    assert trainer.done
    with pytest.raises(InputError, match="stopped"):
        trainer.step()


# --- batches ---------------------------------------------------------------------------------


class Recorder:
    """A network that remembers the inputs of training steps."""

    stackable = True
    n_parameters = NETWORK.n_parameters
    initial = staticmethod(NETWORK.initial)

    def __init__(self):
        self.seen = []

    def __call__(self, theta, x):
        if theta.requires_grad:
            self.seen.append(x)
        return NETWORK(theta, x)


def test_an_epoch_takes_each_row_at_most_once_and_leaves_the_rest_out():
    recorder, epochs = Recorder(), 12
    runs = RUNS[:2]
    # Without clipping every row is another point.
    data = make_data(clip=False)
    train(recorder, data, runs, settings=settings(max_epochs=epochs, patience=epochs))
    assert len(recorder.seen) == 7 * epochs  # 240 = 7 * 32 + 16
    assert {x.shape for x in recorder.seen} == {(2, 32, 2)}
    orders = []
    for m, run in enumerate(runs):
        train_rows = data.x[run.split, data.train[run.split]]
        used = set()
        for epoch in range(epochs):
            batch = torch.cat([x[m] for x in recorder.seen[7 * epoch : 7 * (epoch + 1)]])
            match = (batch[:, None] == train_rows).all(-1)
            assert (match.sum(1) == 1).all()  # training rows, all of them known
            rows = match.long().argmax(1)
            assert rows.unique().numel() == 7 * 32
            used |= set(rows.tolist())
            orders.append(rows)
        # Which 16 rows are left out changes: (16 / 240)^12 of the rows miss all epochs.
        assert len(used) == 240
    assert all(not torch.equal(a, b) for a, b in itertools.combinations(orders, 2))


def test_the_last_batch_may_count():
    recorder, epochs = Recorder(), 3
    data = make_data(clip=False)
    train(recorder, data, RUNS[:2], settings=settings(max_epochs=epochs, last_batch=True))
    assert [x.shape[1] for x in recorder.seen] == [*[32] * 7, 16] * epochs
    for start in range(0, len(recorder.seen), 8):  # every row, once
        rows = torch.cat([x[0] for x in recorder.seen[start : start + 8]])
        assert rows.unique(dim=0).shape == (240, 2)
    whole = Recorder()
    train(whole, data, RUNS[:2], settings=settings(batch_size=80, max_epochs=1, last_batch=True))
    assert [x.shape[1] for x in whole.seen] == [80] * 3  # nothing is left over


@pytest.mark.parametrize("least", [3, 7, 10, 20])
def test_an_epoch_may_need_several_passes(least):
    recorder, epochs = Recorder(), 3
    data = make_data(clip=False)
    chosen = settings(max_epochs=epochs, min_steps=least)
    found = train(recorder, data, RUNS[:1], settings=chosen)
    assert len(found.history) == epochs
    total = max(least, 7) * epochs
    assert len(recorder.seen) == total
    # Passes go on where an epoch ends: any 7 steps from a multiple of 7 on share no row.
    for start in range(0, total, 7):
        rows = torch.cat([x[0] for x in recorder.seen[start : start + 7]])
        assert rows.unique(dim=0).shape == rows.shape


class Listener(Objective):
    """An objective that remembers the beginning of the noise that it is given."""

    def __call__(self, dist, y, strength, noise, shift=None):
        HEARD["training"].append(RunNoise(noise.seeds, noise.step).uniform((4,), F64))
        return super().__call__(dist, y, strength, noise, shift)

    def scores(self, dist, y, noise):
        if not torch.is_grad_enabled():
            HEARD["validation"].append(RunNoise(noise.seeds, noise.step).uniform((4,), F64))
        return super().scores(dist, y, noise)


HEARD = {"training": [], "validation": []}


def test_noise_is_fresh_in_training_and_fixed_in_validation():
    for heard in HEARD.values():
        heard.clear()
    train(NETWORK, DATA, RUNS[:4], objective=Listener(), settings=settings(max_epochs=4))
    training, validation = (torch.stack(HEARD[name]) for name in ("training", "validation"))
    assert training.shape == (28, 4, 4)
    chunks = len(validation) // 4  # of the validation rows, in each of 4 epochs
    assert torch.equal(validation, validation[:chunks].repeat(4, 1, 1))
    fresh = torch.cat([training, validation[:chunks]])
    # Every value is another one, but for the two runs that share a seed.
    assert torch.equal(fresh[:, 1], fresh[:, 2])
    assert fresh[:, [0, 1, 3]].unique().numel() == (28 + chunks) * 3 * 4


@pytest.mark.parametrize("batch", [240, 241, 10_000])
def test_fewer_rows_than_a_batch(batch):
    recorder = Recorder()
    found = train(recorder, DATA, RUNS[:2], settings=settings(batch_size=batch, max_epochs=3))
    assert [x.shape[1] for x in recorder.seen] == [240] * 3
    assert found.epochs.tolist() == [3, 3]


def test_small_data():
    data = make_data(rows=20, splits=1)  # 8 training and 2 validation rows
    found = train(NETWORK, data, [Run(0, 0, 1.0)], objective=NOISY, settings=settings())
    assert torch.isfinite(found.theta).all()
    assert torch.isfinite(found.objective).all()


# --- what is learnt --------------------------------------------------------------------------


def test_a_bound_on_gradients_may_be_left_out():
    # With large targets the first gradients are: 1e4 and more.
    data = dataclasses.replace(DATA, y=100 * DATA.y)
    found = {
        bound: train(NETWORK, data, RUNS[:1], settings=settings(gradient_bound=bound)).theta
        for bound in (10.0, 1e30, float("inf"))
    }
    assert torch.equal(found[1e30], found[float("inf")])
    assert not torch.allclose(found[10.0], found[float("inf")], rtol=1e-3)


def test_the_likelihood_is_learnt():
    problem = AR1Regression(dim=2)
    x, y = problem.sample(4000, generator=0)
    split = published_split(4000, 0)
    data = TrainingData.build(x, y, [(split.train, split.validation)])
    network = MixtureNetwork(2, 2, n_components=1, hidden=(32,))
    found = train(
        network, data, [Run(0)], settings=Settings(batch_size=128, lr=0.01, max_epochs=40)
    )
    rows = split.validation
    # In standardised units the log-density is larger by the sum of the logarithms of the scales.
    best = -problem.conditional(x[rows]).log_prob(y[rows]).mean()
    best = best - data.y_scaler.scale.log().sum()
    # 1600 rows and some 200 parameters cost about 200 / (2 * 1600) = 0.06 nats; 400 validation
    # rows of the truth itself are the common reference.
    assert best - 0.02 < float(found.objective[0]) < best + 0.12
    assert found.history[0, 0] > found.objective[0] + 0.3


def test_the_penalty_lowers_the_penalty():
    """Independent targets are predicted for correlated ones: their mean is too narrow."""
    data = make_data(rows=2000)
    network = MixtureNetwork(2, DIM, n_components=1, hidden=(8,), covariance="diagonal")
    penalty = CalibrationPenalty("location")
    runs = [Run(seed, seed, strength) for seed in range(3) for strength in (0.0, 20.0)]
    chosen = settings(max_epochs=25, batch_size=100, lr=0.02)
    found = train(network, data, runs, objective=Objective(penalty), settings=chosen)
    splits = torch.tensor([run.split for run in runs])
    rows = data.validation[splits]
    dist = network(found.theta, data.x[splits[:, None], rows])
    plain, penalised = penalty(dist, data.y[splits[:, None], rows]).reshape(3, 2).unbind(1)
    # The predicted spread of the mean of three targets is too small by a third.
    assert (plain > 0.05).all()
    assert (penalised < 0.6 * plain).all()


def test_the_energy_score_can_be_trained_on():
    objective = Objective(CalibrationPenalty("marginal"), score="energy", n_samples=20)
    chosen = settings(max_epochs=8, lr=0.02)
    found = train(NETWORK, DATA, RUNS[:2], objective=objective, settings=chosen)
    assert (found.objective < found.history[0] - 0.05).all()
    assert (found.objective > 0).all()


def test_the_published_penalty_can_be_trained_on():
    objective = Objective(CalibrationPenalty.published("marginal"))
    found = train(NETWORK, DATA, RUNS[1:3], objective=objective, settings=settings(max_epochs=8))
    assert (found.objective < found.history[0]).all()


# --- trouble ---------------------------------------------------------------------------------


class Poisoned:
    """A network whose run with seed 13 begins with parameters that are not numbers."""

    stackable = True
    n_parameters = NETWORK.n_parameters

    def initial(self, seed):
        return NETWORK.initial(seed) * (torch.nan if seed == 13 else 1)

    def __call__(self, theta, x):
        return NETWORK(theta, x)


def test_runs_without_numbers_do_not_hurt_the_others():
    bad = [Run(13, 0, 1.0), Run(5, 0, torch.inf), Run(5, 0, torch.nan)]
    chosen = settings(max_epochs=4, patience=2)
    found = train(Poisoned(), DATA, [RUNS[0], *bad, RUNS[2]], objective=NOISY, settings=chosen)
    for m, run in ((0, RUNS[0]), (4, RUNS[2])):
        assert_run(found, m, train(NETWORK, DATA, [run], objective=NOISY, settings=chosen))
        assert torch.isfinite(found.theta[m]).all()
    # They stop when their patience is over, with what they began with.
    assert found.epochs[1:4].tolist() == [2] * 3
    assert found.best_epoch[1:4].tolist() == [0] * 3
    assert found.objective[1:4].tolist() == [torch.inf] * 3
    initial = torch.stack([Poisoned().initial(run.seed) for run in bad])
    torch.testing.assert_close(found.theta[1:4], initial, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("label", [prerank.label for prerank in PAPER])
def test_a_run_without_numbers_does_not_stop_a_penalty(label):
    runs, chosen = [RUNS[0], Run(13, 0, 1.0)], settings(max_epochs=2)
    objective = Objective(CalibrationPenalty(label, n_samples=8))
    found = train(Poisoned(), DATA, runs, objective=objective, settings=chosen)
    alone = train(NETWORK, DATA, runs[:1], objective=objective, settings=chosen)
    assert_run(found, 0, alone)


class Spread(torch.nn.Module):
    """A loss term that is no calibration penalty: the mean variance of the forecasts."""

    def forward(self, dist, y, *, generator=None):
        return dist.variance.mean((-2, -1))


def test_any_loss_term_plugs_in():
    chosen = settings(max_epochs=3)
    runs = [Run(0, 0, 0.0), Run(0, 0, 3.0)]
    found = train(NETWORK, DATA, runs, objective=Objective(Spread()), settings=chosen)
    rows = DATA.validation[:1]
    x, y = DATA.x[[[0]], rows], DATA.y[[[0]], rows]
    for m, run in enumerate(runs):
        dist = NETWORK(found.theta[m : m + 1], x)
        expected = -dist.log_prob(y).mean() + run.strength * dist.variance.mean()
        torch.testing.assert_close(found.objective[m], expected, rtol=1e-9, atol=0)
    plain, narrow = (NETWORK(found.theta[m : m + 1], x).variance.mean() for m in range(2))
    assert narrow < plain


def test_a_loss_term_must_not_mix_the_runs():
    def mixed(dist, y, *, generator=None):
        return dist.variance.mean()

    with pytest.raises(ShapeError, match="one value for each"):
        train(NETWORK, DATA, RUNS[:2], objective=Objective(mixed), settings=settings())


def test_a_checkpoint_of_other_data_is_refused(tmp_path):
    trainer = steps(Trainer(NETWORK, DATA, RUNS, settings=settings()), 3)
    trainer.save(CheckpointFile(tmp_path / "checkpoint"))
    others = {"y": DATA.y + 1}, {"spreads": DATA.y.unsqueeze(0)}
    for other in (dataclasses.replace(DATA, **change) for change in others):
        with pytest.raises(InputError, match="other runs, settings or data"):
            Trainer(NETWORK, other, RUNS, settings=settings()).load(
                CheckpointFile(tmp_path / "checkpoint")
            )


def test_spreads_of_the_targets_take_turns():
    seen = []

    def note(dist, y, *, generator=None):
        seen.append(float(y[0, 0, 0]))
        return dist.loc.sum((1, 2, 3)) * 0

    versions = torch.stack([torch.full_like(DATA.y, value) for value in (7.0, 8.0, 9.0)])
    data = dataclasses.replace(DATA, spreads=versions)
    trainer = Trainer(NETWORK, data, RUNS[2:3], objective=Objective(note), settings=settings())
    batches = DATA.train.shape[1] // 32
    steps(trainer, 4 * batches)
    # Validation rows keep the targets that they have.
    turns = [value for value in seen if value in (7, 8, 9)]
    assert turns == [value for value in (7, 8, 9, 7) for _ in range(batches)]
    assert len(seen) > len(turns)
    same = dataclasses.replace(DATA, spreads=torch.stack([DATA.y] * 2))
    assert_same(*(train(NETWORK, d, RUNS[:2], settings=settings()) for d in (same, DATA)))


def test_wild_targets_stay_finite():
    x, y = AR1Regression(dim=DIM).sample(ROWS, generator=0)
    y[::50] *= 1e6
    y[:, 2] = (y[:, 2] > 0).double()  # and a discrete one
    split = published_split(ROWS, 0)
    data = TrainingData.build(x, y, [(split.train, split.validation)])
    found = train(NETWORK, data, [Run(0, 0, 5.0)], objective=NOISY, settings=settings())
    assert torch.isfinite(found.theta).all()
    assert torch.isfinite(found.objective).all()


class Gaussian(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2 * DIM))

    def forward(self, x):
        loc, raw = self.body(x).chunk(2, -1)
        return Independent(Normal(loc, nn.functional.softplus(raw) + 1e-3), 1)


def test_modules_are_trained_one_by_one():
    network = ModuleNetwork(Gaussian)
    chosen = settings(max_epochs=6, patience=1, lr=0.03)
    calls = []
    found = train(network, DATA, RUNS, objective=NOISY, settings=chosen, on_epoch=calls.append)
    assert found.theta.shape == (len(RUNS), network.n_parameters)
    assert len(set(found.epochs.tolist())) > 1
    assert found.history.shape == (int(found.epochs.max()), len(RUNS))
    for m, run in enumerate(RUNS):
        alone = train(network, DATA, [run], objective=NOISY, settings=chosen)
        assert_run(found, m, alone, rtol=1e-12)
    assert [call.epoch for call in calls] == [
        epoch + 1 for count in found.epochs.tolist() for epoch in range(count)
    ]
    with pytest.raises(InputError, match="cannot be stacked"):
        Trainer(network, DATA, RUNS)


def test_progress():
    seen = []
    chosen = settings(max_epochs=25, patience=1, lr=0.03)
    found = train(NETWORK, DATA, RUNS, settings=chosen, on_epoch=seen.append)
    last = int(found.epochs.max())
    assert [progress.epoch for progress in seen] == list(range(1, last + 1))
    expected = [sum(int(e) > epoch for e in found.epochs) for epoch in range(1, last + 1)]
    assert [progress.running for progress in seen] == expected
    assert expected[-1] == 0
    assert {(p.runs, p.max_epochs) for p in seen} == {(len(RUNS), 25)}


def test_progress_of_a_trainer():
    trainer = Trainer(NETWORK, DATA, RUNS, settings=settings(max_epochs=2))
    assert not trainer.done
    assert trainer.progress == Progress(0, 2, len(RUNS), len(RUNS), 0)
    assert trainer.result().history.numel() == 0
    assert steps(trainer, 6).progress.epoch == 0
    assert steps(trainer, 1).progress == Progress(1, 2, len(RUNS), len(RUNS), 7)
    assert not trainer.done
    assert steps(trainer, 7).progress == Progress(2, 2, 0, len(RUNS), 14)
    assert trainer.done


def test_a_result_does_not_change_afterwards():
    trainer = steps(Trainer(NETWORK, DATA, RUNS, settings=settings()), 7)
    early = trainer.result()
    kept = {name: value.clone() for name, value in fields(early).items()}
    steps(trainer, 14)
    assert not torch.equal(trainer.result().theta, early.theta)
    for name, value in fields(early).items():
        assert torch.equal(value, kept[name]), name


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"lr": 0.0}, InputError),
        ({"lr": float("nan")}, InputError),
        ({"batch_size": 0}, InputError),
        ({"batch_size": 2.5}, InputTypeError),
        ({"min_steps": 0}, InputError),
        ({"max_epochs": 0}, InputError),
        ({"patience": 0}, InputError),
        ({"min_delta": -1e-9}, InputError),
        ({"min_delta": float("nan")}, InputError),
        ({"gradient_bound": 0.0}, InputError),
        ({"gradient_bound": float("nan")}, InputError),
    ],
    ids=str,
)
def test_settings_are_checked(options, error):
    with pytest.raises(error, match=next(iter(options))):
        Settings(**options)


@pytest.mark.parametrize(
    ("runs", "match"),
    [([], "empty"), ([Run(0, 3)], "splits outside 0..2"), ([Run(0, -1)], "splits outside")],
    ids=str,
)
def test_runs_are_checked(runs, match):
    with pytest.raises(InputError, match=match):
        Trainer(NETWORK, DATA, runs)


def test_the_score_is_checked():
    with pytest.raises(InputError, match="crps"):
        Objective(score="crps")
