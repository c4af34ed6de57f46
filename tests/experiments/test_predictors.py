"""The ensemble of `experiments/predictors.py`: networks whose Gaussians make one mixture."""

import torch

from predictors import EnsembleNetwork
from prerank.datasets import AR1Regression, published_split
from prerank.models import MixtureNetwork
from prerank.penalty import CalibrationPenalty
from prerank.training import Objective, Run, Settings, TrainingData, train

MEMBER = MixtureNetwork(2, 3, n_components=1, hidden=(8,))
NETWORK = EnsembleNetwork(MEMBER, 4)


def test_its_density_is_the_mean_of_the_members():
    theta = torch.stack([NETWORK.initial(seed) for seed in (0, 1)])
    x, y = torch.randn(2, 7, 2).double(), torch.randn(2, 7, 3).double()
    found = NETWORK(theta, x)
    assert found.batch_shape == (2, 7)
    for run in range(2):
        parts = theta[run].reshape(4, -1)
        densities = [MEMBER(part[None], x[run : run + 1]).log_prob(y[run]).exp() for part in parts]
        torch.testing.assert_close(found.log_prob(y)[run].exp(), torch.stack(densities).mean(0)[0])


def test_members_start_apart():
    parts = NETWORK.initial(0).reshape(4, -1)
    assert len({tuple(part.tolist()) for part in parts}) == 4
    assert torch.equal(NETWORK.initial(0), NETWORK.initial(0))
    seeds = [run.seed for seed in (0, 42, 866) for run in NETWORK.runs(seed)]
    assert len(set(seeds)) == len(seeds)


def test_it_goes_on_from_members_that_were_trained_alone():
    x, y = AR1Regression(dim=3).sample(400, generator=0)
    split = published_split(400, seed=0)
    data = TrainingData.build(x, y, [(split.train, split.validation)])
    settings = Settings(lr=0.01, batch_size=64, max_epochs=5)
    members = train(MEMBER, data, NETWORK.runs(0), settings=settings).theta
    start = members.reshape(1, -1)
    objective = Objective(CalibrationPenalty("marginal+hdr", n_samples=20))
    run = [Run(0, 0, 10.0)]
    found = train(NETWORK, data, run, objective=objective, settings=settings, start=start)
    assert torch.isfinite(found.theta).all()
    moved = (found.theta - start).reshape(4, -1).abs().amax(1)
    assert (moved > 0).all()  # every member
