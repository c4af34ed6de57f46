"""Drawing from any distribution."""

import pytest
import torch
from torch.distributions import Independent, MultivariateNormal, Normal, Poisson

from prerank import Ensemble, GaussianMixture
from prerank.distributions import RelaxedMixture, draw, draw_differentiable
from prerank.distributions.noise import row_normal, row_uniform
from prerank.errors import GradientError, InputError, InputTypeError
from truths import (
    MultivariateT,
    discrete,
    gaussian_mixture,
    independent_normal,
    multivariate_normal,
    student_copula,
)

OWN = {
    "mixture": gaussian_mixture,
    "multivariate normal": multivariate_normal,
    "independent normal": independent_normal,
}
FOREIGN = {"student copula": student_copula, "discrete": discrete}


def member(dist, m):
    """One predictor of a stack."""
    if isinstance(dist, GaussianMixture):
        return GaussianMixture(dist.logits[m], dist.loc[m], dist.scale_tril[m])
    if isinstance(dist, MultivariateNormal):
        return MultivariateNormal(dist.loc[m], scale_tril=dist.scale_tril[m])
    return Independent(Normal(dist.base_dist.loc[m], dist.base_dist.scale[m]), 1)


@pytest.mark.parametrize("function", [draw, draw_differentiable])
@pytest.mark.parametrize("family", OWN)
def test_noise_is_shared_over_the_stack(family, function):
    stack = OWN[family](3, 5)
    together = function(stack, 8, generator=4)
    assert together.points.shape == (8, 3, 5, 4)
    for m in range(3):
        alone = function(member(stack, m), 8, generator=4)
        torch.testing.assert_close(together.points[:, m], alone.points, rtol=1e-12, atol=1e-12)
        if alone.weights is not None:
            torch.testing.assert_close(together.weights[:, m], alone.weights, rtol=1e-12, atol=0)


@pytest.mark.parametrize("family", OWN)
def test_noise_differs_between_rows(family):
    n = 4_000
    dist = OWN[family](dim=2).expand((3,))  # equal laws
    points = draw(dist, n, generator=0).points
    scaled = (points - dist.mean) / dist.variance.sqrt()
    cross = torch.einsum("sad,sbe->abde", scaled, scaled) / n
    # Mean 0 and variance 1 under independence: 5 standard errors.
    assert (cross[~torch.eye(3, dtype=torch.bool)].abs() < 5 / n**0.5).all()


def test_stratified_noise_differs_between_rows():
    n = 4_000
    dist = gaussian_mixture(dim=2, components=3).expand((3,))
    points = draw_differentiable(dist, n, generator=0).points
    # Draws come in the order of their components, alike in all rows but for one draw at each
    # border; differences of neighbours leave only the noise inside a component.
    noise = points[1::2] - points[::2]
    scaled = (noise - noise.mean(0)) / noise.std(0)
    cross = torch.einsum("sad,sbe->abde", scaled, scaled) / len(scaled)
    # Products have variance up to 3 where components differ in spread: 5 standard errors.
    bound = 5 * (3 / len(scaled)) ** 0.5
    assert (cross[~torch.eye(3, dtype=torch.bool)].abs() < bound).all()


@pytest.mark.parametrize("family", [*OWN, "student copula"])
def test_law_of_draws(family):
    dist = (OWN | FOREIGN)[family](2, dim=3)
    n = 20_000
    points = draw(dist, n, generator=1).points
    reference = dist.sample((n,))
    # Tail-free summaries of two independent sets of draws: 5 standard errors of the difference.
    for function in (torch.tanh, torch.cos):
        a, b = function(points), function(reference)
        error = (a.var(0) / n + b.var(0) / n).sqrt()
        assert ((a.mean(0) - b.mean(0)).abs() < 5 * error).all()


@pytest.mark.parametrize("family", [*OWN, *FOREIGN])
def test_seeds_leave_the_global_state_alone(family):
    dist = (OWN | FOREIGN)[family](5)
    before = torch.get_rng_state()
    first = draw(dist, 8, generator=3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(7)
    after = torch.get_rng_state()
    assert torch.equal(draw(dist, 8, generator=3).points, first.points)
    assert not torch.equal(draw(dist, 8, generator=4).points, first.points)
    streams = [torch.Generator().manual_seed(3) for _ in range(2)]
    drawn, again = (draw(dist, 8, generator=stream).points for stream in streams)
    assert torch.equal(drawn, again)
    assert not torch.equal(draw(dist, 8, generator=streams[0]).points, drawn)  # it runs on
    assert torch.equal(torch.get_rng_state(), after)


@pytest.mark.parametrize("family", [*OWN, *FOREIGN])
def test_without_a_generator_the_global_state_is_used(family):
    dist = (OWN | FOREIGN)[family](5)
    torch.manual_seed(2)
    first = draw(dist, 8).points
    assert not torch.equal(draw(dist, 8).points, first)
    torch.manual_seed(2)
    assert torch.equal(draw(dist, 8).points, first)


def parameters(family):
    """Leaves and the distribution made of them."""
    dist = (OWN | {"student copula": student_copula})[family](5)
    base = {
        "mixture": lambda: (dist.logits, dist.loc, dist.scale_tril),
        "multivariate normal": lambda: (dist.loc, dist.scale_tril),
        "independent normal": lambda: (dist.base_dist.loc, dist.base_dist.scale),
        "student copula": lambda: (dist.base_dist.base.loc, dist.base_dist.base.scale_tril),
    }[family]()
    leaves = [p.clone().requires_grad_() for p in base]
    build = {
        "mixture": GaussianMixture,
        "multivariate normal": lambda loc, tril: MultivariateNormal(loc, scale_tril=tril),
        "independent normal": lambda loc, scale: Independent(Normal(loc, scale), 1),
        "student copula": lambda loc, tril: MultivariateT(loc, tril, 4.0),
    }[family]
    return leaves, build(*leaves)


@pytest.mark.parametrize("family", [*OWN, "student copula"])
def test_gradients(family):
    leaves, dist = parameters(family)
    assert not draw(dist, 8, generator=0).points.requires_grad
    for draws in (draw(dist, 8, generator=0, gradient=True), draw_differentiable(dist, 8)):
        gradients = torch.autograd.grad(
            draws.points.square().sum(), leaves, allow_unused=True, retain_graph=True
        )
        reached = [g is not None and bool(g.abs().sum() > 0) for g in gradients]
        if draws.weights is not None:  # stratified: the weights carry the logits
            assert reached == [False, True, True]
            (to_logits,) = torch.autograd.grad(draws.weights[0].sum(), leaves[:1])
            assert to_logits.abs().sum() > 0
        else:
            assert all(reached)
    plain = draw(dist, 8, generator=0).points
    assert torch.equal(draw(dist, 8, generator=0, gradient=True).points.detach(), plain)
    with torch.no_grad():
        assert not draw(dist, 8, gradient=True).points.requires_grad


def test_mixture_draws_are_stratified_where_gradients_are_wanted():
    dist = gaussian_mixture(5)
    streams = [torch.Generator().manual_seed(0) for _ in range(2)]
    weighted = draw_differentiable(dist, 10, generator=streams[0])
    offset, start = row_uniform(2, dist.batch_shape, like=dist.loc, noise=streams[1])
    normal = row_normal(10, dist.batch_shape, dist.event_shape, like=dist.loc, noise=streams[1])
    points, weights = dist.stratify(offset, start, normal)
    assert torch.equal(weighted.points, points)
    assert torch.equal(weighted.weights, weights)
    assert draw(dist, 10, generator=0).weights is None


@pytest.mark.parametrize("weights", [None, (1.0, 2.0, 3.0)])
@pytest.mark.parametrize("function", [draw, draw_differentiable])
def test_ensembles_give_their_members(function, weights):
    dist = Ensemble(torch.randn(3, 5, 2, requires_grad=True), weights)
    draws = function(dist, 50, generator=0)
    assert draws.points is dist.samples
    assert draws.weights is dist.weights


def test_relaxed_mixture_is_drawn_as_it_is():
    relaxed = RelaxedMixture(gaussian_mixture(5))
    torch.manual_seed(0)
    expected = relaxed.sample((8,))
    torch.manual_seed(0)
    assert torch.equal(draw(relaxed, 8).points, expected)


WITHOUT_RSAMPLE = {
    "independent poisson": lambda: Independent(Poisson(torch.ones(5, 3)), 1),
    "mixture of poissons": lambda: discrete(5),
}


@pytest.mark.parametrize("case", WITHOUT_RSAMPLE)
def test_no_gradient_without_rsample(case):
    dist = WITHOUT_RSAMPLE[case]()
    name = type(dist).__name__
    with pytest.raises(GradientError, match=f"{name} has no rsample"):
        draw_differentiable(dist, 8)
    assert draw(dist, 8, gradient=True).points.shape[:2] == (8, 5)  # to judge by, it can


@pytest.mark.parametrize("function", [draw, draw_differentiable])
@pytest.mark.parametrize(
    ("n", "error"),
    [(1, InputError), (0, InputError), (2.0, InputTypeError), (True, InputTypeError)],
)
def test_bad_number_of_samples(function, n, error):
    with pytest.raises(error, match="n_samples"):
        function(gaussian_mixture(2), n)
