"""Every form of the penalty that is compared in `experiments/frontier` can be trained with."""

import sys
from pathlib import Path

import pytest
import torch

from prerank.datasets import AR1Regression, published_split
from prerank.models import MixtureNetwork
from prerank.training import Objective, Run, Settings, TrainingData

FOLDER = Path(__file__).parents[1] / "experiments" / "frontier"
if FOLDER.exists():
    sys.path.insert(0, str(FOLDER))
    from forms import FORMS
    from summary import Curve

    sys.path.remove(str(FOLDER))
else:
    pytest.skip(f"{FOLDER} is not in this copy of the source", allow_module_level=True)


def _data():
    x, y = AR1Regression(dim=3).sample(700, generator=0)
    splits = [published_split(700, seed=seed) for seed in (0, 1)]
    return TrainingData.build(x, y, [(s.train, s.validation) for s in splits])


@pytest.mark.parametrize("name", FORMS)
def test_a_form_trains_and_stays_finite(name):
    form = FORMS[name]
    network = MixtureNetwork(2, 3, n_components=5, hidden=(8,))
    runs = [Run(0, 0, 10.0), Run(1, 1, 10.0), Run(2, 0, 0.0)]
    settings = Settings(**{"batch_size": 64, "max_epochs": 2, **form.settings})
    trained = []
    for label in (form.preranks or ("marginal", "copula"))[-2:]:
        objective = Objective(form.penalty(label))
        trainer = form.trainer(network, _data(), runs, objective=objective, settings=settings)
        while not trainer.done:
            trainer.step()
        trained.append(trainer.result().theta)
        assert trained[-1].isfinite().all()
    assert not torch.equal(trained[0][0], network.initial(0).float())


def test_a_run_does_not_depend_on_the_others():
    # Stopped runs leave the stack, and the shift of a penalty has to follow those that stay.
    form = FORMS["shifted"]
    network = MixtureNetwork(2, 3, n_components=2, hidden=(8,))
    settings = Settings(batch_size=64, max_epochs=12, patience=2, lr=3e-2)
    found = []
    for runs in ([Run(0, 0, 10.0), Run(1, 1, 300.0), Run(2, 0, 1.0)], [Run(2, 0, 1.0)]):
        objective = Objective(form.penalty("marginal"))
        trainer = form.trainer(network, _data(), runs, objective=objective, settings=settings)
        while not trainer.done:
            trainer.step()
        found.append(trainer.result())
    assert len(set(found[0].epochs.tolist())) > 1  # some left before others
    torch.testing.assert_close(found[0].theta[2], found[1].theta[0], rtol=1e-3, atol=1e-3)


def test_the_summary_selects_on_validation_rows_and_reads_test_rows():
    def record(strength, excess, energy):
        part = {"excess": {"hdr": excess}, "energy": energy, "nll": 0.0}
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
    assert curve.lowest(0.005) == pytest.approx(0.0505)
    assert curve.lowest(0.02) == pytest.approx(0.0205)
