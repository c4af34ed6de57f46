"""Every form of the penalty that is compared in `experiments/frontier` can be trained with."""

from dataclasses import replace

import pytest
import torch

from forms import FORMS
from prerank.datasets import AR1Regression, published_split
from prerank.models import MixtureNetwork
from prerank.training import Run, Settings, TrainingData
from summary import Curve


def _data(dtype=torch.float32, rows=700):
    x, y = AR1Regression(dim=3).sample(rows, generator=0)
    splits = [published_split(rows, seed=seed) for seed in (0, 1)]
    return TrainingData.build(x, y, [(s.train, s.validation) for s in splits], dtype=dtype)


def _trained(form, label, network, data, runs, **options):
    """Train as `experiments/frontier/run.py` does; any parameters will do for a start."""
    settings, start = Settings(**{"batch_size": 64, **options, **form.settings}), {}
    if settings.fine_tune:
        settings = settings.tuning
        start["start"] = torch.stack([network.initial(run.seed) for run in runs])
    objective = form.objective(label)
    trainer = form.trainer(network, data, runs, objective=objective, settings=settings, **start)
    while not trainer.done:
        trainer.step()
    return trainer.result()


@pytest.mark.parametrize("name", FORMS)
def test_a_form_trains_and_stays_finite(name):
    form = FORMS[name]
    network = MixtureNetwork(2, 3, n_components=5, hidden=(8,))
    runs = [Run(0, 0, 10.0), Run(1, 1, 10.0), Run(2, 0, 0.0)]
    labels = form.preranks or ("marginal", "copula")
    label = labels[list(FORMS).index(name) % len(labels)]  # neighbouring forms differ in theirs
    found = _trained(form, label, network, _data(rows=160), runs, max_epochs=2)
    assert found.theta.isfinite().all()
    assert found.objective.isfinite().all()
    moved = [not torch.equal(found.theta[m], network.initial(m).float()) for m in range(3)]
    # After a first part, which is left out here, runs of strength 0 are done.
    assert moved == [True, True, not Settings(**form.settings).fine_tune]


@pytest.mark.parametrize(
    "name",
    ["default", "from scratch, shifted", "shifted, not shrunk", "shifted by frequencies"],
)
def test_a_run_does_not_depend_on_the_others(name):
    # Stopped runs leave the stack, and the shift of a penalty has to follow those that stay.
    form, data = FORMS[name], _data(torch.float64)
    assert Settings(**form.settings).fine_tune == (name != "from scratch, shifted")
    for split, rows in enumerate(data.validation):
        data.y[split, rows] *= 1.4  # there is something to shift
    network = MixtureNetwork(2, 3, n_components=2, hidden=(8,))
    options = {"max_epochs": 12, "patience": 1, "lr": 3e-2}
    runs = [Run(0, 0, 10.0), Run(1, 1, 300.0), Run(2, 0, 1.0)]
    together = _trained(form, "marginal", network, data, runs, **options)
    assert len(set(together.epochs.tolist())) > 1  # some left before others
    for m, run in enumerate(runs):
        alone = _trained(form, "marginal", network, data, [run], **options)
        assert together.epochs[m] == alone.epochs[0]
        torch.testing.assert_close(together.theta[m], alone.theta[0], rtol=1e-9, atol=1e-9)
    unshifted = replace(form, settings={**form.settings, "holdout_offset": False})
    other = _trained(unshifted, "marginal", network, data, runs, **options)
    assert not torch.allclose(other.theta, together.theta, atol=1e-3)


def test_the_summary_selects_on_validation_rows_and_reads_test_rows():
    def record(strength, excess, energy):
        part = {"excess": {"hdr": excess}, "energy": energy, "nll": strength, "noise": 0.01}
        return {"strength": strength, "validation": part, "test": part}

    base = {"records": [record(0.0, 0.05 + s, 1.0) for s in (0, 0.001)]}
    unit = {
        "prerank": "hdr",
        "records": [record(1.0, 0.02 + s, 1.01) for s in (0, 0.001)]
        + [record(9.0, 0.00 + s, 1.5) for s in (0, 0.001)],
    }
    curve = Curve.of(base, unit)
    selection, place = curve.selected()
    assert selection.strength == 1.0
    assert curve.strengths[place] == 1.0
    assert curve.likelihood(place) == 1.0
    assert curve.lowest(0.005) == pytest.approx(0.0505)
    assert curve.lowest(0.02) == pytest.approx(0.0205)
