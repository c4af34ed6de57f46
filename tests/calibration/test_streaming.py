"""Batches: PITs are pooled, errors are not averaged."""

import pytest
import torch
from torch.distributions import MultivariateNormal

from prerank import (
    Ensemble,
    GaussianMixture,
    ProjectedCalibrationError,
    diagnose,
    pce,
    pce_floor,
    pit,
)
from prerank.errors import InputError, ShapeError
from truths import gaussian_mixture


def rows(dist, part):
    return GaussianMixture(
        dist.logits[..., part, :], dist.loc[..., part, :, :], dist.scale_tril[..., part, :, :, :]
    )


def batches(n, size):
    return [slice(start, start + size) for start in range(0, n, size)]


@pytest.mark.parametrize("size", [1, 7, 50, 200])
@pytest.mark.parametrize("stack", [(), (2,)])
def test_closed_forms_do_not_depend_on_batches(stack, size):
    dist = gaussian_mixture(*stack, 200)
    y = dist.sample(generator=1)
    metric = ProjectedCalibrationError("marginal+location")
    for part in batches(200, size):
        metric.update(rows(dist, part), y[..., part, :])
    together = pit(dist, y, "marginal+location")
    torch.testing.assert_close(metric.pits, together)
    torch.testing.assert_close(metric.compute(), pce(together))
    assert metric.compute().shape == (*stack, 5)


def test_levels_are_passed_on():
    dist = gaussian_mixture(50)
    metric = ProjectedCalibrationError("marginal", levels=7)
    metric.update(dist, dist.sample(generator=1))
    torch.testing.assert_close(metric.compute(), pce(metric.pits, levels=7))
    assert not torch.equal(metric.compute(), pce(metric.pits))


def test_members_of_an_ensemble_do_not_depend_on_batches():
    members, y = torch.randn(20, 60, 3), torch.randn(60, 3)
    metric = ProjectedCalibrationError("location", generator=0)
    for part in batches(60, 13):
        metric.update(Ensemble(members[:, part]), y[part])
    # Without ties the rank is exact but for the uniform within one step of 1/21.
    together = pit(Ensemble(members), y, "location", generator=1)
    torch.testing.assert_close((21 * metric.pits).floor(), (21 * together).floor())


def test_noise_runs_on_from_batch_to_batch():
    dist = MultivariateNormal(torch.zeros(5, 2), torch.eye(2))
    y = torch.zeros(5, 2)
    own, stream = (torch.Generator().manual_seed(3) for _ in range(2))
    metric = ProjectedCalibrationError("scale+copula", n_samples=30, generator=own)
    for _ in range(3):
        metric.update(dist, y)
    expected = torch.cat(
        [pit(dist, y, "scale+copula", n_samples=30, generator=stream) for _ in range(3)]
    )
    torch.testing.assert_close(metric.pits, expected, rtol=0, atol=0)
    assert not torch.equal(metric.pits[:5], metric.pits[5:10])
    seeded = ProjectedCalibrationError("scale+copula", n_samples=30, generator=3)
    for _ in range(2):
        seeded.update(dist, y)
    first = pit(dist, y, "scale+copula", n_samples=30, generator=3)
    torch.testing.assert_close(seeded.pits[:5], first, rtol=0, atol=0)
    assert not torch.equal(seeded.pits[5:], first)


def test_the_mean_over_batches_is_another_larger_number():
    n, size = 4096, 64
    dist = gaussian_mixture(n, dim=2)
    y = dist.sample(generator=1)
    metric, means = ProjectedCalibrationError("location"), []
    for part in batches(n, size):
        metric.update(rows(dist, part), y[part])
        means.append(pce(pit(rows(dist, part), y[part], "location")))
    batched = float(torch.stack(means).mean())
    # The predictor is right: the batched number sits at the floor of a batch, the pooled one at
    # that of all rows, eight times lower.
    assert batched == pytest.approx(pce_floor(size), rel=0.15)
    assert float(metric.compute()) < 0.5 * batched
    assert float(metric.compute()) < 2.5 * pce_floor(n)


def test_same_number_as_the_diagnosis():
    dist = gaussian_mixture(80)
    y = dist.sample(generator=1)
    metric = ProjectedCalibrationError("marginal")
    for part in batches(80, 30):
        metric.update(rows(dist, part), y[part])
    table = diagnose(dist, y, preranks="marginal", n_null=10).table
    assert float(metric.compute().mean()) == pytest.approx(table.pce[0], rel=1e-12)


def test_reset():
    dist = gaussian_mixture(30)
    metric = ProjectedCalibrationError("marginal")
    metric.update(dist, dist.sample(generator=1))
    first = metric.compute()
    metric.reset()
    with pytest.raises(InputError, match="update"):
        metric.compute()
    with pytest.raises(InputError, match="update"):
        _ = metric.pits
    metric.update(dist, dist.sample(generator=1))
    torch.testing.assert_close(metric.compute(), first, rtol=0, atol=0)
    assert metric.pits.shape == (30, 4)


def test_stack_and_components_must_not_change():
    metric = ProjectedCalibrationError("marginal")
    metric.update(gaussian_mixture(30), torch.zeros(30, 4))
    kept = metric.pits
    changed = [gaussian_mixture(30, dim=3), gaussian_mixture(2, 30)]
    for dist in changed:
        with pytest.raises(ShapeError) as caught:
            metric.update(dist, torch.zeros(30, dist.event_shape[0]))
        assert "(30, 4)" in str(caught.value)
        assert str((*dist.batch_shape, dist.event_shape[0])) in str(caught.value)
    torch.testing.assert_close(metric.pits, kept)  # the batch that did not fit is not kept
    metric.update(gaussian_mixture(3), torch.zeros(3, 4))  # another number of rows is fine
    assert metric.pits.shape == (33, 4)


def test_a_bad_batch_leaves_the_metric_as_it_was():
    dist = gaussian_mixture(30)
    metric = ProjectedCalibrationError("marginal")
    metric.update(dist, torch.zeros(30, 4))
    with pytest.raises(InputError, match="NaN"):
        metric.update(dist, torch.full((30, 4), float("nan")))
    assert metric.pits.shape == (30, 4)
