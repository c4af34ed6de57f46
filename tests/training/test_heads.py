"""A head that the networks of other folds ask for, and the one that is kept does not need."""

import torch

from prerank import CalibrationHead, nll
from prerank.datasets import AR1Regression
from prerank.models import MixtureNetwork
from prerank.training import Partition, Settings, TrainingData, forecast_unseen, train
from prerank.training.heads import fit_head

TRUTH = AR1Regression(dim=2)
X, Y = TRUTH.sample(300, generator=0)
NETWORK = MixtureNetwork(X.shape[1], 2, 1, (8,))
PARTITION = Partition.crossed(300, apart=False)
DATA = TrainingData.build(X, Y, PARTITION.splits)
SETTINGS = Settings(lr=0.02, max_epochs=40, batch_size=60)
THETA = train(NETWORK, DATA, PARTITION.runs, settings=SETTINGS).theta


def fitted(theta, returned):
    head = CalibrationHead("marginal", strength=0.0, copies=1)
    fit_head(head, NETWORK, DATA, theta, PARTITION.runs, PARTITION.unseen, returned=returned)
    return head


def forecast(theta, place):
    """Forecasts of one network for the rows that it has not seen, in units of the first split."""
    part = [values[place : place + 1] for values in (PARTITION.runs, PARTITION.unseen)]
    return forecast_unseen(NETWORK, DATA, theta[place : place + 1], *part, units=0)


KEPT = 3


def test_faults_of_other_networks_do_not_reach_the_one_that_is_kept():
    others = torch.arange(5) != KEPT
    # Networks that have learnt nothing are too wide, or too narrow, or biased.
    initial = torch.stack([NETWORK.initial(run.seed) for run in PARTITION.runs]).to(THETA)
    theta = torch.where(others[:, None], initial, THETA)
    everything = fitted(theta, None)
    assert everything.change_.active
    dist, y = forecast(theta, KEPT)
    # What the others ask for costs the kept one many standard errors of its 60 rows.
    assert float((nll(everything(dist), y) - nll(dist, y)).mean()) > 0.1
    head = fitted(theta, [KEPT])
    assert not head.change_.active
    assert all(not amount.any() for amount in head.amounts_.values())
    assert torch.equal(head(dist).loc, dist.loc)
    # Several members are no single network.
    assert fitted(theta, [KEPT, 0]).report() == everything.report()
