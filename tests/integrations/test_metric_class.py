"""A metric of torchmetrics: the error of all rows, whatever the batches and processes."""

import copy
import doctest
import importlib
import pickle

import pytest
import torch
from torch.distributions import MultivariateNormal

from adapters.judging import load
from prerank import PrerankError, pce, pce_floor, pit
from prerank.integrations import torchmetric

torchmetrics = load("torchmetrics")

# Of the library, which is not ours to mend.
pytestmark = pytest.mark.filterwarnings("default")
Y = 1.3 * torch.randn(1000, 2, generator=torch.Generator().manual_seed(0))


def law(n):
    return MultivariateNormal(torch.zeros(n, 2), torch.eye(2))


def collected(metric, rows):
    for part in rows:
        metric.update(law(len(part)), part)
    return metric


def test_it_is_a_metric_and_the_error_of_all_rows():
    metric = torchmetric("marginal")
    assert isinstance(metric, torchmetrics.Metric)
    collected(metric, Y.split(256))
    expected = pce(pit(law(1000), Y, "marginal")).mean()  # in closed form, so the same number
    torch.testing.assert_close(metric.compute(), expected)
    metric.reset()
    collected(metric, Y[:500].split(100))
    torch.testing.assert_close(metric.compute(), pce(pit(law(500), Y[:500], "marginal")).mean())


def test_parts_of_several_processes_are_one():
    first, second = (collected(torchmetric("marginal"), rows.split(250)) for rows in Y.split(500))
    first.merge_state(second)
    torch.testing.assert_close(first.compute(), pce(pit(law(1000), Y, "marginal")).mean())


def test_draws_differ_between_batches_and_not_between_runs():
    once, again = (collected(torchmetric("scale"), [Y[:100]] * 2) for _ in range(2))
    assert not torch.equal(once.pits[0], once.pits[1])
    assert all(map(torch.equal, once.pits, again.pits))
    other = collected(torchmetric("scale", seed=1), [Y[:100]])
    assert not torch.equal(other.pits[0], once.pits[0])


def test_calibrated_forecasts_have_about_the_floor():
    metric = torchmetric("all", n_samples=20)
    collected(metric, (Y / 1.3).split(250))
    # Seven errors with a standard deviation of .136 / sqrt(1000) = .0043 each, or less together.
    assert abs(float(metric.compute()) - pce_floor(n=1000)) < 4 * 0.0043


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_go_on(copied):
    metric = collected(torchmetric("scale+marginal"), [Y[:300]])
    again = copied(metric)
    assert torch.equal(*(collected(m, [Y[300:]]).compute() for m in (metric, again)))
    assert type(again) is type(metric)


def test_collections_and_bad_arguments():
    metrics = torchmetrics.MetricCollection(
        {"scale": torchmetric("scale"), "hdr": torchmetric("hdr")}, compute_groups=False
    )
    metrics.update(law(100), Y[:100])
    assert set(metrics.compute()) == {"scale", "hdr"}
    with pytest.raises(PrerankError, match="nonsense"):
        torchmetric("nonsense")
    with pytest.raises(PrerankError, match="seed"):
        torchmetric("scale", seed=-1)


def test_example():
    module = importlib.import_module("prerank.integrations.metric_class")
    assert doctest.testmod(module) == (0, 4)
