"""Scores against scoringrules, against their definitions, and as training losses."""

import math

import numpy as np
import pytest
import scoringrules as sr
import torch
from torch.distributions import Independent, MultivariateNormal, Normal
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import prerank.scores
from prerank import Ensemble, GaussianMixture, crps, energy_score, nll, variogram_score
from prerank.errors import InputError
from truths import gaussian_mixture, independent_normal, multivariate_normal, student_copula

ESTIMATORS = ["fair", "nrg"]
SHAPES = [(7, 6, 3), (2, 5, 1), (20, 2, 4, 5)]  # (S, ..., N, D)


def members_and_truth(shape, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape), rng.normal(size=shape[1:])


def equal(actual, expected, tolerance=1e-6):
    assert actual.dtype == torch.float64
    np.testing.assert_allclose(actual.numpy(), expected, rtol=tolerance, atol=tolerance)


def pairwise(points):
    """Distances between the members of a row, `(S, S, ...)`, by the definition."""
    return np.linalg.norm(points[:, None] - points[None], axis=-1)


# scoringrules


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("shape", SHAPES)
def test_energy_score_is_that_of_scoringrules(shape, estimator):
    members, y = members_and_truth(shape)
    expected = sr.es_ensemble(y, members, m_axis=0, estimator=estimator, backend="numpy")
    equal(energy_score(Ensemble(members), y, estimator=estimator), expected)


@pytest.mark.parametrize(("p", "weighted"), [(0.5, False), (0.5, True), (1.0, True), (2.0, False)])
@pytest.mark.parametrize("shape", SHAPES)
def test_variogram_score_is_that_of_scoringrules(shape, p, weighted):
    members, y = members_and_truth(shape)
    dim = shape[-1]
    weights = np.random.default_rng(1).uniform(size=(dim, dim)) if weighted else None
    expected = sr.vs_ensemble(
        y, np.moveaxis(members, 0, -2), weights, p=p, estimator="nrg", backend="numpy"
    )
    equal(variogram_score(Ensemble(members), y, p=p, weights=weights), expected)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("shape", SHAPES)
def test_crps_of_samples_is_that_of_scoringrules(shape, estimator):
    members, y = members_and_truth(shape)
    expected = sr.crps_ensemble(y, members, m_axis=0, estimator=estimator, backend="numpy")
    equal(crps(Ensemble(members), y, estimator=estimator), expected)


@pytest.mark.parametrize("batch", [(6,), (2, 5)])
def test_crps_of_a_mixture_is_that_of_scoringrules(batch):
    dist = gaussian_mixture(*batch)
    y = dist.sample(generator=1)
    scale = (dist.scale_tril @ dist.scale_tril.mT).diagonal(dim1=-2, dim2=-1).sqrt()
    expected = sr.crps_mixnorm(
        y.numpy(),
        dist.loc.mT.numpy(),
        scale.mT.numpy(),
        dist.probs.unsqueeze(-2).expand(*batch, 4, 3).numpy(),
        backend="numpy",
    )
    equal(crps(dist, y), expected)


@pytest.mark.parametrize("make", [multivariate_normal, independent_normal])
def test_crps_of_normals_is_that_of_scoringrules(make):
    dist = make(6)
    y = dist.mean + torch.linspace(-3, 3, 24, dtype=torch.float64).reshape(6, 4)
    expected = sr.crps_normal(y.numpy(), dist.mean.numpy(), dist.stddev.numpy(), backend="numpy")
    equal(crps(dist, y), expected)


def test_energy_score_of_one_target_is_its_crps():
    members, y = members_and_truth((9, 5, 1))
    for estimator in ESTIMATORS:
        left = energy_score(Ensemble(members), y, estimator=estimator)
        right = crps(Ensemble(members), y, estimator=estimator).squeeze(-1)
        torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-12)


# Weights


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("shape", [(7, 6, 3), (3, 5, 1), (20, 2, 4, 5)])
def test_weighted_scores_follow_the_definition(shape, estimator):
    members, y = members_and_truth(shape)
    rng = np.random.default_rng(3)
    weights = rng.uniform(size=shape[:-1])
    weights[0] = 0  # a member without weight must not matter
    dist = Ensemble(members, weights)
    w = weights / weights.sum(0)
    energy = np.zeros(shape[1:-1])
    single = np.zeros(shape[1:])
    pairs = np.zeros(shape[1:-1])
    for s in range(shape[0]):
        energy += w[s] * np.linalg.norm(members[s] - y, axis=-1)
        single += w[s][..., None] * np.abs(members[s] - y)
        for t in range(shape[0]):
            if s != t or estimator == "nrg":
                pairs += w[s] * w[t]
    for s in range(shape[0]):
        for t in range(shape[0]):
            share = w[s] * w[t] / pairs
            energy -= 0.5 * share * np.linalg.norm(members[s] - members[t], axis=-1)
            single -= 0.5 * share[..., None] * np.abs(members[s] - members[t])
    equal(energy_score(dist, y, estimator=estimator), energy, 1e-10)
    equal(crps(dist, y, estimator=estimator), single, 1e-10)


def test_weighted_variogram_score_follows_the_definition():
    members, y = members_and_truth((6, 4, 3))
    weights = np.random.default_rng(3).uniform(size=(6, 4))
    w = weights / weights.sum(0)
    expected = np.zeros(4)
    for n in range(4):
        for i in range(3):
            for j in range(3):
                mean = sum(
                    w[s, n] * abs(members[s, n, i] - members[s, n, j]) ** 0.5 for s in range(6)
                )
                expected[n] += (abs(y[n, i] - y[n, j]) ** 0.5 - mean) ** 2
    equal(variogram_score(Ensemble(members, weights), y), expected, 1e-10)


@pytest.mark.parametrize("score", [energy_score, crps])
def test_fair_needs_two_members_with_weight(score):
    members, y = members_and_truth((3, 6, 2))
    weights = np.ones((3, 6))
    weights[1:, 4] = 0  # one row
    with pytest.raises(InputError, match=r"all mass.*estimator='nrg'"):
        score(Ensemble(members, weights), y)
    alone = score(Ensemble(members, weights), y, estimator="nrg")
    assert torch.isfinite(alone).all()
    # All mass on one member: its distance to y.
    gap = members[0, 4] - y[4]
    expected = np.abs(gap) if score is crps else np.linalg.norm(gap)
    np.testing.assert_allclose(alone[4].numpy(), expected, rtol=1e-12)


SCORES = {
    "energy fair": lambda dist, y: energy_score(dist, y, estimator="fair"),
    "energy nrg": lambda dist, y: energy_score(dist, y, estimator="nrg"),
    "variogram": variogram_score,
    "crps fair": lambda dist, y: crps(dist, y, estimator="fair"),
    "crps nrg": lambda dist, y: crps(dist, y, estimator="nrg"),
}


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
def test_equal_weights_are_no_weights(score):
    members, y = members_and_truth((7, 6, 3))
    weighted = Ensemble(members, np.full(7, 3.0))
    torch.testing.assert_close(score(weighted, y), score(Ensemble(members), y))


# Invariances


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
def test_scores_do_not_depend_on_the_order_of_members_or_the_origin(score):
    members, y = members_and_truth((7, 6, 3))
    expected = score(Ensemble(members), y)
    order = np.random.default_rng(5).permutation(7)
    torch.testing.assert_close(score(Ensemble(members[order]), y), expected)
    shift = np.array([10.0, 10.0, 10.0])  # the same for all targets: the variogram sees gaps
    torch.testing.assert_close(score(Ensemble(members + shift), y + shift), expected)


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
def test_scores_scale_with_the_units(score):
    members, y = members_and_truth((7, 6, 3))
    expected = score(Ensemble(members), y)  # of degree 1: |y|, or (|y|^0.5)^2
    torch.testing.assert_close(score(Ensemble(4 * members), 4 * y), 4 * expected)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_energy_score_does_not_depend_on_the_axes(estimator):
    members, y = members_and_truth((7, 6, 3))
    turn = np.linalg.qr(np.random.default_rng(5).normal(size=(3, 3)))[0]
    shift = np.array([1.0, -2.0, 3.0])
    expected = energy_score(Ensemble(members), y, estimator=estimator)
    moved = energy_score(Ensemble(members @ turn + shift), y @ turn + shift, estimator=estimator)
    torch.testing.assert_close(moved, expected)


def test_a_stack_is_scored_as_its_members():
    stack, y = gaussian_mixture(3, 8), torch.zeros(8, 4, dtype=torch.float64)
    for score in (energy_score, variogram_score):
        together = score(stack, y, generator=7)
        assert together.shape == (3, 8)
        for m in range(3):
            one = GaussianMixture(stack.logits[m], stack.loc[m], stack.scale_tril[m])
            torch.testing.assert_close(together[m], score(one, y, generator=7))
    assert crps(stack, y).shape == (3, 8, 4)


@pytest.mark.parametrize("make", [gaussian_mixture, multivariate_normal, independent_normal])
def test_nll_is_minus_the_log_density(make):
    dist = make(6)
    y = dist.sample()
    torch.testing.assert_close(nll(dist, y), -dist.log_prob(y))
    torch.testing.assert_close(nll(dist, y.numpy()), -dist.log_prob(y))


# Proper: the truth wins

ROWS, DIM = 4000, 4


def covariance(correlation):
    return correlation * torch.ones(DIM, DIM) + (1 - correlation) * torch.eye(DIM)


FORECASTS = {
    "biased": (0.3, 1.0, 0.8),
    "overdispersed": (0.0, 1.4, 0.8),
    "underdispersed": (0.0, 0.7, 0.8),
    "decorrelated": (0.0, 1.0, 0.0),
}
BLIND = {("variogram", "biased"), ("crps", "decorrelated"), ("crps of samples", "decorrelated")}
PROPER = {
    "nll": nll,
    "energy": lambda dist, y: energy_score(dist, y, n_samples=50, generator=2),
    "variogram": lambda dist, y: variogram_score(dist, y, n_samples=100, generator=2),
    "crps": lambda dist, y: crps(dist, y).mean(-1),
    "crps of samples": lambda dist, y: crps(Ensemble(dist.sample((20,))), y, estimator="fair").mean(
        -1
    ),
}


def forecast(loc, spread, correlation):
    factor = spread * torch.linalg.cholesky(covariance(correlation))
    return MultivariateNormal(
        torch.full((ROWS, DIM), loc, dtype=torch.float64), scale_tril=factor.double()
    )


@pytest.mark.parametrize("wrong", FORECASTS)
@pytest.mark.parametrize("score", PROPER)
def test_the_truth_wins_in_expectation(score, wrong):
    truth = forecast(0.0, 1.0, 0.8)
    y = truth.sample()
    loss = PROPER[score](forecast(*FORECASTS[wrong]), y) - PROPER[score](truth, y)
    mean, error = float(loss.mean()), float(loss.std()) / math.sqrt(ROWS)
    if (score, wrong) in BLIND:
        assert abs(mean) < 4 * error + 1e-9
    else:
        assert mean > 5 * error


# Estimators


def test_fair_is_unbiased_for_every_number_of_samples_and_nrg_is_not():
    rows = 8_000
    dist = MultivariateNormal(torch.zeros(rows, 2, dtype=torch.float64), torch.eye(2).double())
    y = dist.sample()

    def score(size, estimator):
        return energy_score(dist, y, estimator=estimator, n_samples=size, generator=size)

    def close(values, expected):  # 4 standard errors
        assert abs(float(values.mean()) - expected) < 4 * float(values.std()) / math.sqrt(rows)

    many = score(40, "fair")
    # E|Y - Y'| = sqrt(pi) for standard normals in the plane; the truth scores half of it.
    close(many, math.sqrt(math.pi) / 2)
    close(score(2, "fair") - many, 0.0)
    close(score(2, "nrg") - many, math.sqrt(math.pi) / 4)  # E|Y - Y'| / (2 S)
    close(score(5, "nrg") - many, math.sqrt(math.pi) / 10)


@pytest.mark.parametrize("score", [energy_score, crps])
def test_nrg_minus_fair_is_known_row_by_row(score):
    members, y = members_and_truth((5, 6, 1))
    gap = score(Ensemble(members), y, estimator="nrg") - score(Ensemble(members), y)
    expected = pairwise(members).sum((0, 1)) / (5 * 4) / (2 * 5)
    np.testing.assert_allclose(gap.squeeze().numpy(), expected, rtol=1e-10)


def test_seeds_make_scores_reproducible():
    dist, y = gaussian_mixture(6), torch.zeros(6, 4, dtype=torch.float64)
    before = torch.get_rng_state()
    for score in (energy_score, variogram_score):
        same = [score(dist, y, generator=3) for _ in range(2)]
        torch.testing.assert_close(*same, rtol=0, atol=0)
        assert not torch.equal(same[0], score(dist, y, generator=4))
    assert torch.equal(before, torch.get_rng_state())


# Gradients


def rowwise(dist_rows, *tensors):
    """The same parameters for every row, as leaves: gradients come out row by row."""
    return [t.double().expand(dist_rows, *t.shape).clone().requires_grad_() for t in tensors]


def agree(gradients, expected, sigmas=4.5):
    """Mean over rows equals the expectation, within standard errors, entry by entry."""
    error = gradients.std(0) / math.sqrt(len(gradients))
    assert (error > 0).all()
    assert ((gradients.mean(0) - expected).abs() < sigmas * error).all()


LOGITS = torch.tensor([0.4, -0.3])


def test_gradient_of_the_energy_score_is_that_of_the_closed_crps():
    loc, scale = torch.tensor([[-1.0], [1.5]]), torch.tensor([[[0.6]], [[1.1]]])
    parameters = rowwise(4000, LOGITS, loc, scale)
    dist = GaussianMixture(*parameters)
    y = torch.full((4000, 1), 0.3, dtype=torch.float64)
    noisy = torch.autograd.grad(energy_score(dist, y, n_samples=20, generator=0).sum(), parameters)
    exact = torch.autograd.grad(crps(GaussianMixture(*parameters), y).sum(), parameters)
    for rows, expected in zip(noisy, exact, strict=True):
        agree(rows, expected[0])


def test_gradient_of_the_closed_crps_is_its_slope():
    logits = LOGITS.double().unsqueeze(0).requires_grad_()
    loc = torch.tensor([[[-1.0, 0.2], [1.5, 0.1]]], dtype=torch.float64, requires_grad=True)
    factor = torch.tensor([[0.6, 0.0], [0.3, 0.9]], dtype=torch.float64)
    scale = factor.expand(1, 2, 2, 2).clone().requires_grad_()
    y = torch.tensor([[0.3, -0.4]], dtype=torch.float64)
    # Entries above the diagonal are checked to be zero, so they cannot be moved.
    assert torch.autograd.gradcheck(
        lambda a, b, c: crps(GaussianMixture(a, b, c.tril(), validate_args=False), y),
        (logits, loc, scale),
    )


def test_gradient_of_the_energy_score_in_the_weights_of_a_mixture():
    loc = torch.tensor([[-1.0, 0.5], [1.0, 0.0]])
    factor = torch.tensor([[[0.7, 0.0], [0.2, 0.8]], [[0.5, 0.0], [-0.3, 1.0]]])
    y = torch.tensor([0.4, -0.2], dtype=torch.float64)
    # ES = a . pi - pi' B pi / 2 with a_k = E|Y_k - y| and B_kl = E|Y_k - Y_l'|.
    eps = torch.randn(2, 2, 200_000, 2, dtype=torch.float64)
    copies = loc.double()[:, None, None] + torch.einsum("kde,kcse->kcsd", factor.double(), eps)
    a = (copies[:, 0] - y).norm(dim=-1).mean(-1)
    b = (copies[:, None, 0] - copies[None, :, 1]).norm(dim=-1).mean(-1)
    b = (b + b.T) / 2
    logits = LOGITS.double().requires_grad_()
    pi = logits.softmax(-1)
    expected = torch.autograd.grad(a @ pi - 0.5 * pi @ b @ pi, logits)[0]
    parameters = rowwise(2000, LOGITS, loc, factor)
    score = energy_score(GaussianMixture(*parameters), y.expand(2000, 2), n_samples=20, generator=1)
    agree(torch.autograd.grad(score.sum(), parameters)[0], expected)


def test_gradient_of_the_energy_score_is_a_difference_with_common_noise():
    dist = gaussian_mixture(1, dim=3)
    y = torch.tensor([0.3, -0.5, 0.8], dtype=torch.float64).expand(2000, 3)
    parameters = rowwise(2000, dist.logits[0], dist.loc[0], dist.scale_tril[0])
    score = energy_score(GaussianMixture(*parameters), y, n_samples=20, generator=1)
    gradients = torch.autograd.grad(score.sum(), parameters)

    def at(loc, factor):
        moved = GaussianMixture(parameters[0], loc, factor)
        return energy_score(moved, y, n_samples=20, generator=1).detach()

    with torch.no_grad():
        step, (_, loc, factor) = 1e-5, parameters
        direction = torch.randn(3, 3, dtype=torch.float64)
        slope = (at(loc + step * direction, factor) - at(loc - step * direction, factor)) / step / 2
        agree((gradients[1] * direction).sum((-1, -2)) - slope, torch.zeros(()))
        direction = torch.randn(3, 3, 3, dtype=torch.float64).tril()
        slope = (at(loc, factor + step * direction) - at(loc, factor - step * direction)) / step / 2
        agree((gradients[2] * direction).sum((-1, -2, -3)) - slope, torch.zeros(()))


STEEP = {
    f"variogram {p}": lambda dist, y, p=p: variogram_score(dist, y, p=p) for p in (0.1, 1.0, 2.0)
}


@pytest.mark.parametrize("score", (SCORES | STEEP).values(), ids=SCORES | STEEP)
def test_gradients_are_finite_where_members_tie(score):
    members = torch.zeros(4, 3, 3, dtype=torch.float64)  # two equal y, and targets are equal
    members[2:] = 1.0
    members.requires_grad_()
    value = score(Ensemble(members), torch.zeros(3, 3))
    (gradient,) = torch.autograd.grad(value.sum(), members)
    assert torch.isfinite(gradient).all()


def test_members_carry_gradients_exactly():
    members, y = members_and_truth((5, 2, 3))
    points = torch.from_numpy(members).requires_grad_()
    for score in SCORES.values():
        assert torch.autograd.gradcheck(lambda x, score=score: score(Ensemble(x), y), points)


def test_no_gradient_where_none_is_wanted():
    dist = student_copula(5)
    assert not energy_score(dist, torch.ones(5, 4), generator=0).requires_grad
    loc = torch.zeros(5, 2, requires_grad=True)
    dist = Independent(Normal(loc, torch.ones(5, 2)), 1)
    assert energy_score(dist, torch.ones(5, 2)).requires_grad
    with torch.no_grad():
        assert not energy_score(dist, torch.ones(5, 2)).requires_grad


# Memory


class LargestTensor(TorchDispatchMode):
    """Remember the largest tensor that any operation returned."""

    def __init__(self):
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.numel = max(self.numel, leaf.numel())
        return result


@pytest.mark.parametrize("chunk", [1, 2**14, 2**16])
def test_chunks_do_not_change_scores(chunk, monkeypatch):
    members, y = members_and_truth((10, 40, 6))
    dist = Ensemble(members, np.random.default_rng(2).uniform(size=10))
    whole = energy_score(dist, y), variogram_score(dist, y)
    monkeypatch.setattr(prerank.scores, "_CHUNK_BYTES", chunk)
    torch.testing.assert_close(energy_score(dist, y), whole[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(variogram_score(dist, y), whole[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("gradient", [False, True])
def test_no_tensor_holds_all_pairs_and_all_targets(gradient, monkeypatch):
    size, rows, dim = 50, 64, 8
    members = torch.randn(size, rows, dim, dtype=torch.float64, requires_grad=gradient)
    y = torch.randn(rows, dim, dtype=torch.float64)

    def largest(score):
        with LargestTensor() as seen:
            value = score(Ensemble(members), y)
            if gradient:
                value.sum().backward()
        return seen.numel

    assert largest(energy_score) == rows * size * size  # one chunk: pairs, but not times targets
    monkeypatch.setattr(prerank.scores, "_CHUNK_BYTES", 2**16)
    assert largest(energy_score) == rows * size * dim  # nothing larger than the samples
    assert largest(variogram_score) == rows * size * dim
    assert largest(crps) == rows * size * dim


def test_crps_far_from_zero():
    members = torch.randn(50, 20, 2, generator=torch.Generator().manual_seed(0))
    y = torch.zeros(20, 2)
    near = crps(Ensemble(members), y)
    far = crps(Ensemble(members + 1e5), y + 1e5)
    # Shifting rounds the members themselves to 1e5 * 2^-24 = 0.006.
    torch.testing.assert_close(far, near, rtol=0, atol=0.02)


# Numbers whose squares overflow in single precision


def scaled(family, factor):
    g = torch.Generator().manual_seed(3)
    loc, spread = (torch.randn(12, 3, generator=g).double() for _ in range(2))
    loc, spread = factor * loc, factor * (0.5 + spread.abs())
    if family == "ensemble":
        return Ensemble((factor * torch.randn(20, 12, 3, generator=g).double()).float())
    if family == "independent":
        return Independent(Normal(loc.float(), spread.float()), 1)
    factors = (torch.diag_embed(spread) + factor * torch.ones(3, 3).tril(-1)).float()
    if family == "normal":
        return MultivariateNormal(loc.float(), scale_tril=factors)
    return GaussianMixture(torch.zeros(12, 1), loc.float().unsqueeze(1), factors.unsqueeze(1))


@pytest.mark.parametrize("factor", [1e15, 1e20, 1e30, 1e36])
@pytest.mark.parametrize("family", ["ensemble", "independent", "normal", "mixture"])
@pytest.mark.parametrize("score", [energy_score, crps], ids=["energy", "crps"])
def test_large_numbers_do_not_overflow(score, family, factor):
    y = torch.randn(12, 3, generator=torch.Generator().manual_seed(4)).double()
    plain = score(scaled(family, 1.0), y, generator=0)
    large = score(scaled(family, factor), factor * y, generator=0)
    assert large.dtype == torch.float32
    # The inputs are rounded to 6e-8, and the two terms of a score cancel in part.
    torch.testing.assert_close(large.double() / factor, plain.double(), rtol=2e-5, atol=2e-6)


def test_large_numbers_keep_gradients():
    gradients = []
    for factor in (1.0, 1e30):
        members = scaled("ensemble", factor).samples.requires_grad_()
        score = energy_score(Ensemble(members), torch.full((12, 3), factor))
        gradients += torch.autograd.grad(score, members, torch.ones(12))
    # A score in the units of its points has a gradient without units.
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


def test_one_large_member_of_no_weight_hides_nothing():
    members = torch.randn(20, 12, 3, generator=torch.Generator().manual_seed(3))
    far = torch.cat([members, torch.full((1, 12, 3), 1e30)])
    weights = torch.cat([torch.ones(20), torch.zeros(1)])
    found, plain = (
        energy_score(Ensemble(*part), torch.ones(12, 3)) for part in ((far, weights), (members,))
    )
    torch.testing.assert_close(found, plain, rtol=1e-5, atol=1e-6)
