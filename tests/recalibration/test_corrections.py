"""The law of PITs: none where they are uniform, the right one where they are not."""

import pytest
import torch

from prerank.recalibration.corrections import (
    Correction,
    extend,
    fit_correction,
    interpolate,
)
from prerank.recalibration.level_sets import increasing


def normal(*shape, seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=g, dtype=torch.float64)


# Binomials of 20 and 10 with p = .05 exceed 4 and 3 with probabilities of .003 and .001.
@pytest.mark.parametrize(("n", "fits", "most"), [(60, 20, 4), (2000, 10, 3)])
def test_uniform_pits_are_mostly_left_alone(n, fits, most):
    changed = [
        not fit_correction(normal(n, seed=1000 * n + seed), generator=seed).is_identity
        for seed in range(fits)
    ]
    assert sum(changed) <= most


SHAPES = {
    "bias": lambda e: e + 1,
    "narrow": lambda e: 2.5 * e,
    "wide": lambda e: 0.4 * e,
    "skew": lambda e: torch.expm1(0.7 * e),
    "heavy": lambda e: e * (1 + e.square() / 3),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_correction_makes_scores_normal(shape):
    w, fresh = SHAPES[shape](normal(2, 2000, seed=1))
    correction = fit_correction(w, generator=0)
    u = torch.special.ndtr(correction.forward(fresh)[0]).sort().values
    grid = (torch.arange(len(u)) + 0.5) / len(u)
    # Kolmogorov's distance of two samples of n rows: 1.95 sqrt(2 / n) at the level 0.001.
    assert float((u - grid).abs().max()) < 1.95 * (2 / 2000) ** 0.5
    assert float(correction.log_ratio(fresh).mean()) > 0


@pytest.mark.parametrize("shape", SHAPES)
def test_correction_is_inverted_and_has_the_derivative_of_autograd(shape):
    correction = fit_correction(SHAPES[shape](normal(500, seed=2)), generator=0)
    w = torch.linspace(-8, 8, 997, dtype=torch.float64).requires_grad_()
    value, log_slope = correction.forward(w)
    (gradient,) = torch.autograd.grad(value.sum(), w)
    assert bool((value.diff() > 0).all())
    assert torch.allclose(correction.inverse(value.detach()), w.detach(), atol=1e-9)
    assert torch.allclose(gradient.log(), log_slope.detach(), atol=1e-9)


def test_ratio_integrates_to_one():
    correction = fit_correction(2 * normal(500, seed=2), generator=0)
    w = torch.linspace(-40, 40, 800_001, dtype=torch.float64)
    density = (correction.log_ratio(w) - 0.5 * w.square()).exp() / (2 * torch.pi) ** 0.5
    # The trapezoidal rule misses half a step times each jump, of at most .4 times the slopes.
    jumps = 0.4 * float(correction.forward(w)[1].exp().diff().abs().sum())
    assert abs(float(torch.trapezoid(density, w)) - 1) < 1e-4 * jumps + 1e-9


def test_tied_scores_do_not_break_the_fit():
    w = normal(500, seed=3).clamp_max(0.2)
    value, log_slope = fit_correction(w, generator=0).forward(w)
    assert bool(value.isfinite().all() & log_slope.isfinite().all())
    constant = fit_correction(torch.ones(50, dtype=torch.float64), generator=0)
    assert bool(constant.forward(w)[0].isfinite().all())


def test_no_correction_changes_nothing():
    w = normal(50, seed=4)
    value, log_slope = Correction().forward(w)
    assert Correction().is_identity
    assert torch.allclose(value, w)
    assert float(log_slope.abs().max()) < 1e-12


def test_pooled_shells_keep_their_mass_and_order():
    log_density = normal(30, 12, seed=4)
    masses = normal(12, seed=5).softmax(0)
    found = increasing(log_density, masses)
    volumes = masses / log_density.exp()
    assert bool((found.diff(dim=-1) >= -1e-12).all())
    assert torch.allclose((volumes * found.exp()).sum(-1), torch.ones(30, dtype=torch.float64))


def test_interpolation_goes_on_with_given_slopes():
    nodes = torch.tensor([[0.0, 1.0, 1.0, 2.0]])
    values = torch.tensor([[0.0, 1.0, 3.0, 4.0]])
    nodes, values = extend(nodes, values, 5.0, 0.5)
    x = torch.tensor([[-2.0], [0.5], [1.5], [4.0]])
    assert interpolate(x, nodes, values)[0].flatten().tolist() == [-10.0, 0.5, 3.5, 5.0]
    at = torch.tensor([1.0])
    assert float(interpolate(at, nodes, values)[0]) == 3.0
    assert float(interpolate(at, nodes, values, right=False)[0]) == 1.0
