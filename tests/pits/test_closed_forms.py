"""Closed-form PITs against samples and integrals; the registry; directions of PCA."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from torch.distributions import (
    Categorical,
    Distribution,
    Independent,
    LowRankMultivariateNormal,
    MixtureSameFamily,
    MultivariateNormal,
    Normal,
    Poisson,
)

from prerank import Ensemble, GaussianMixture, pce, pit, smooth_pit
from prerank.datasets import AR1Regression
from prerank.pits import closed_form, project_pits, register_closed_form
from prerank.pits.closed_forms import _BUILDERS
from prerank.preranks import (
    HDR,
    PCA,
    Copula,
    Linear,
    Location,
    Marginal,
    PreRank,
    Projection,
    Scale,
)
from truths import gaussian_mixture, independent_normal, multivariate_normal


def low_rank_normal(*batch: int, dim: int, seed: int = 0) -> LowRankMultivariateNormal:
    g = torch.Generator().manual_seed(seed)
    return LowRankMultivariateNormal(
        torch.randn(*batch, dim, generator=g, dtype=torch.float64),
        torch.randn(*batch, dim, 2, generator=g, dtype=torch.float64),
        0.2 + torch.rand(*batch, dim, generator=g, dtype=torch.float64),
    )


FAMILIES: dict[str, Callable[..., Distribution]] = {
    "gaussian mixture": gaussian_mixture,
    "multivariate normal": multivariate_normal,
    "low rank normal": low_rank_normal,
    "independent normal": independent_normal,
}


@dataclass
class Reference:
    """A Gaussian mixture in numpy: weights `(N, K)`, means `(N, K, D)`, covariances."""

    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray

    @property
    def covariance(self) -> np.ndarray:
        """Overall covariance, `(N, D, D)`."""
        mean = np.einsum("nk,nkd->nd", self.weights, self.means)
        second = self.covariances + np.einsum("nkd,nke->nkde", self.means, self.means)
        return np.einsum("nk,nkde->nde", self.weights, second) - mean[:, :, None] * mean[:, None]

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Draw `(size, N, D)`: a component for each row and sample, then a normal."""
        _, components, dim = self.means.shape
        rows = []
        for n, weights in enumerate(self.weights):
            counts = rng.multinomial(size, weights)
            rows.append(
                np.concatenate(
                    [
                        rng.multivariate_normal(self.means[n, k], self.covariances[n, k], counts[k])
                        for k in range(components)
                    ]
                ).reshape(size, dim)
            )
        return np.stack(rows, 1)

    def density(self, n: int, points: np.ndarray) -> np.ndarray:
        """Joint density of row n at `(P, D)`."""
        total = np.zeros(len(points))
        for weight, mean, covariance in zip(
            self.weights[n], self.means[n], self.covariances[n], strict=True
        ):
            centred = points - mean
            distance = np.einsum("pd,de,pe->p", centred, np.linalg.inv(covariance), centred)
            total += weight * np.exp(-distance / 2) / np.sqrt(np.linalg.det(2 * np.pi * covariance))
        return total


def reference(dist: Distribution) -> Reference:
    """Read the parameters, and nothing else, from a distribution."""
    if isinstance(dist, GaussianMixture):
        factor = dist.scale_tril.numpy()
        weights = np.exp(dist.logits.numpy())
        weights /= weights.sum(-1, keepdims=True)
        return Reference(weights, dist.loc.numpy(), factor @ factor.swapaxes(-1, -2))
    if isinstance(dist, LowRankMultivariateNormal):
        loc, factor = dist.loc, dist.cov_factor.numpy()
        covariance = (
            factor @ factor.swapaxes(-1, -2)
            + np.eye(loc.shape[-1]) * (dist.cov_diag.numpy()[:, None])
        )
    elif isinstance(dist, MultivariateNormal):
        loc, factor = dist.loc, dist.scale_tril.numpy()
        covariance = factor @ factor.swapaxes(-1, -2)
    else:
        loc, scale = dist.base_dist.loc, dist.base_dist.scale.numpy()
        covariance = np.eye(loc.shape[-1]) * scale[:, None] ** 2
    return Reference(np.ones((len(loc), 1)), loc.numpy()[:, None], covariance[:, None])


VECTORS = torch.tensor([[1.0, -2.0, 0.5], [0.3, 0.3, -1.0]], dtype=torch.float64)
PRERANKS: dict[str, Callable[[int, int], PreRank]] = {
    "marginal": lambda n, dim: Marginal(),
    "location": lambda n, dim: Location(),
    "pca": lambda n, dim: PCA(),
    "pca(1)": lambda n, dim: PCA(1),
    "projection": lambda n, dim: Projection(VECTORS[:, :dim]),
    "projection by row": lambda n, dim: Projection(
        VECTORS[:, :dim] * torch.linspace(0.5, 2, n, dtype=torch.float64).reshape(n, 1, 1)
    ),
}


def directions(name: str, law: Reference) -> np.ndarray:
    """The same directions, `(N, J, D)`, worked out in numpy."""
    n, _, dim = law.means.shape
    if name == "marginal":
        return np.broadcast_to(np.eye(dim), (n, dim, dim))
    if name == "location":
        return np.full((n, 1, dim), 1 / dim)
    if name.startswith("projection"):
        factor = np.linspace(0.5, 2, n) if name.endswith("row") else np.ones(n)
        return factor[:, None, None] * VECTORS.numpy()[None, :, :dim]
    values, vectors = np.linalg.eigh(law.covariance)
    assert np.diff(values).min() > 1e-3  # no ambiguous directions in these examples
    vectors = vectors.swapaxes(-1, -2)[:, ::-1]
    vectors = vectors * np.sign(vectors.sum(-1, keepdims=True))
    return vectors[:, :1] if name == "pca(1)" else vectors


@pytest.mark.parametrize("family", FAMILIES)
def test_closed_forms_agree_with_many_samples(family):
    size, rows = 300_000, 3
    dist = FAMILIES[family](rows, dim=3, seed=3)
    law = reference(dist)
    y = dist.sample()
    samples = law.sample(size, np.random.default_rng(0))
    for name, make in PRERANKS.items():
        [result] = project_pits(dist, y, (make(rows, 3),))
        assert result.method == "closed form"
        z = result.z.numpy()
        for n, vectors in enumerate(directions(name, law)):
            frequency = (samples[:, n] @ vectors.T <= y[n].numpy() @ vectors.T).mean(0)
            # Binomial standard error; about 200 comparisons fail by chance with odds of 1e-4.
            error = np.sqrt(z[n] * (1 - z[n]) / size)
            assert (np.abs(frequency - z[n]) <= 5 * error).all(), (name, n)


@pytest.mark.parametrize("name", PRERANKS)
@pytest.mark.parametrize("family", FAMILIES)
def test_closed_forms_agree_with_numerical_integration(family, name):
    rows = 2
    dist = FAMILIES[family](rows, dim=2, seed=4)
    law = reference(dist)
    y = dist.sample()
    z = pit(dist, y, PRERANKS[name](rows, 2)).numpy()
    # The projected density is the joint density integrated along the line that is orthogonal to
    # the direction. The trapezoidal rule on a fine grid is exact to rounding for Gaussians, and
    # all scales of these examples lie between 0.2 and 4, all means within 4 of the origin.
    line, step = np.linspace(-40, 40, 1001, retstep=True)
    for n, vectors in enumerate(directions(name, law)):
        for j, vector in enumerate(vectors):
            length = np.linalg.norm(vector)
            along = vector / length
            across = np.array([-along[1], along[0]])

            def density(t: float, n=n, along=along, across=across) -> float:
                return step * law.density(n, t * along + line[:, None] * across).sum()

            target = y[n].numpy() @ along
            value, _ = quad(density, -40, target, points=[-5, 0, 5], epsabs=1e-9, limit=200)
            assert abs(value - z[n, j]) < 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_closed_form_pits_do_not_exceed_one(dtype):
    # The weights of a mixture sum to 1 up to rounding, on either side of it.
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(2000, 5, generator=g, dtype=dtype)
    factor = torch.eye(2, dtype=dtype).expand(2000, 5, 2, 2)
    dist = GaussianMixture(logits, torch.zeros(2000, 5, 2, dtype=dtype), factor)
    assert (dist.probs.sum(-1) > 1).any()
    for height, expected in ((50.0, 1.0), (-50.0, 0.0)):
        y = torch.full((2000, 2), height, dtype=dtype)
        for function in (pit, smooth_pit):
            z = function(dist, y, "marginal")
            assert ((z >= 0) & (z <= 1)).all()
            torch.testing.assert_close(z, torch.full_like(z, expected))
            assert (pce(z) > 0.48).all()


@pytest.fixture
def registry() -> Iterator[None]:
    saved = dict(_BUILDERS)
    yield
    _BUILDERS.clear()
    _BUILDERS.update(saved)


class Half(GaussianMixture):
    """A family of one's own."""


class Quarter(Half):
    """A family that inherits from it."""


def of_type(cls: type[GaussianMixture]) -> GaussianMixture:
    law = gaussian_mixture(5, dim=3)
    return cls(law.logits, law.loc, law.scale_tril)


def constant(value: float):
    return lambda dist, prerank: lambda points: torch.full_like(points[..., :1], value)


@pytest.mark.usefixtures("registry")
def test_registration_covers_subclasses_and_the_nearest_type_wins():
    y = of_type(Half).sample(generator=1)
    exact = pit(of_type(GaussianMixture), y, "location")
    # Subclasses inherit the closed form of their parent ...
    assert torch.equal(pit(of_type(Quarter), y, "location"), exact)
    # ... until something nearer is registered, for the subclass and for its own subclasses,
    register_closed_form(Half, Linear)(constant(0.5))
    for cls in (Half, Quarter):
        assert bool((pit(of_type(cls), y, "location") == 0.5).all())
    assert torch.equal(pit(of_type(GaussianMixture), y, "location"), exact)
    # for a nearer distribution,
    register_closed_form(Quarter, Linear)(constant(0.25))
    assert bool((pit(of_type(Quarter), y, "location") == 0.25).all())
    assert bool((pit(of_type(Half), y, "location") == 0.5).all())
    # and for a nearer pre-rank, which leaves the others alone.
    register_closed_form(Quarter, Location)(constant(0.75))
    assert bool((pit(of_type(Quarter), y, "location") == 0.75).all())
    assert bool((pit(of_type(Quarter), y, Projection(VECTORS)) == 0.25).all())
    # A nearer distribution goes before a nearer pre-rank.
    register_closed_form(GaussianMixture, Location)(constant(0.1))
    assert bool((pit(of_type(Half), y, "location") == 0.5).all())
    assert bool((pit(of_type(GaussianMixture), y, "location") == 0.1).all())


@pytest.mark.usefixtures("registry")
def test_new_closed_form_of_a_nonlinear_prerank_is_used():
    dist = independent_normal(200, dim=3)
    y = dist.sample()

    @register_closed_form(Independent, HDR)
    def _(dist, prerank):
        # The density falls with the sum of squares, which is chi-square.
        base = dist.base_dist

        def cdf(points):
            squares = ((points - base.loc) / base.scale).square().sum(-1, keepdim=True)
            return torch.special.gammaincc(torch.full_like(squares, 1.5), squares / 2)

        return cdf

    [exact] = project_pits(dist, y, (HDR(),))
    [ranks] = project_pits(dist, y, (HDR(),), n_samples=10_000, generator=0, closed_forms=False)
    assert (exact.method, ranks.method) == ("closed form", "ranks")
    # Standard error of a rank of 10,000 draws: at most 0.005; five of them.
    torch.testing.assert_close(ranks.z, exact.z, rtol=0, atol=0.025)


@pytest.mark.usefixtures("registry")
def test_builder_that_gives_none_falls_back_on_ranks():
    register_closed_form(Half, Linear)(lambda dist, prerank: None)
    dist = of_type(Half)
    [result] = project_pits(dist, dist.sample(generator=0), (Location(),), generator=0)
    assert result.method == "ranks"


def poisson(*batch: int) -> Independent:
    return Independent(Poisson(torch.full((*batch, 3), 2.0, dtype=torch.float64)), 1)


@pytest.mark.parametrize(
    ("dist", "prerank"),
    [
        (poisson(4), Marginal()),
        (poisson(4), PCA()),
        (Ensemble(torch.randn(5, 4, 3)), Marginal()),
        (
            MixtureSameFamily(
                Categorical(logits=torch.zeros(4, 2)),
                Independent(Normal(torch.zeros(4, 2, 3), 1.0), 1),
            ),
            Location(),
        ),
        (multivariate_normal(4, dim=3), Scale()),
        (multivariate_normal(4, dim=3), HDR()),
        (gaussian_mixture(4, dim=3), Copula()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_no_closed_form(dist, prerank):
    assert closed_form(dist, prerank) is None
    [result] = project_pits(dist, dist.sample(), (prerank,), generator=0)
    assert result.method == "ranks"


@pytest.mark.parametrize("family", FAMILIES)
def test_pca_directions_are_orthonormal_and_ordered(family):
    dist = FAMILIES[family](50, dim=4, seed=5)
    vectors = PCA().directions(dist)
    assert vectors.shape == (50, 4, 4)
    eye = torch.eye(4, dtype=torch.float64).expand(50, 4, 4)
    torch.testing.assert_close(vectors @ vectors.mT, eye, rtol=0, atol=1e-12)
    covariance = torch.from_numpy(reference(dist).covariance)
    projected = vectors @ covariance @ vectors.mT  # diagonal: the components are uncorrelated
    variances = projected.diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(projected, torch.diag_embed(variances), rtol=0, atol=1e-10)
    assert bool((variances.diff(dim=-1) <= 1e-12).all())
    assert bool((vectors.sum(-1) > 0).all())


@pytest.mark.parametrize("seed", range(3))
def test_pca_directions_of_samples_are_those_of_the_pool(seed):
    g = torch.Generator().manual_seed(seed)
    pool = torch.randn(8, 20, 3, generator=g, dtype=torch.float64) * torch.tensor([3.0, 1.0, 0.2])
    vectors = PCA().directions(Ensemble(pool[1:]), pool)
    for n in range(20):
        covariance = np.cov(pool[:, n].numpy().T)
        principal = np.linalg.eigh(covariance)[1].T[::-1]
        np.testing.assert_allclose(
            np.abs(np.sum(principal * vectors[n].numpy(), -1)), 1, rtol=0, atol=1e-9
        )
    assert bool((vectors.sum(-1) > 0).all())


def normal_with_axes(axes: list[list[float]], variances: list[list[float]]) -> MultivariateNormal:
    basis = torch.tensor(axes, dtype=torch.float64)
    basis = basis / torch.linalg.vector_norm(basis, dim=-1, keepdim=True)
    covariance = torch.stack(
        [basis.mT @ torch.diag(torch.tensor(row, dtype=torch.float64)) @ basis for row in variances]
    )
    return MultivariateNormal(
        torch.zeros(len(variances), len(axes), dtype=torch.float64), covariance
    )


def test_pca_direction_of_sum_zero_has_a_positive_largest_entry():
    # Entries of (2, -1, -1) and (-3, 1, 1, 1) sum to zero, so the largest one decides.
    dist = normal_with_axes(
        [[2, -1, -1], [1, 1, 1], [0, 1, -1]], [[s * 4, s, s / 4] for s in (1, 7)]
    )
    first = PCA(1).directions(dist)[:, 0]
    expected = torch.tensor([2.0, -1.0, -1.0], dtype=torch.float64) / 6**0.5
    torch.testing.assert_close(first, expected.expand(2, 3), rtol=0, atol=1e-12)
    dist = normal_with_axes(
        [[-3, 1, 1, 1], [1, 1, 1, 1], [0, 1, -1, 0], [0, 1, 1, -2]], [[8, 4, 2, 1]]
    )
    first = PCA(1).directions(dist)[0, 0]
    expected = torch.tensor([3.0, -1.0, -1.0, -1.0], dtype=torch.float64) / 12**0.5
    torch.testing.assert_close(first, expected, rtol=0, atol=1e-12)


def test_orientation_makes_a_bias_visible():
    # A forecast that is biased upwards in every target, with axes that differ between rows. The
    # raw signs of the eigenvectors are arbitrary: they flip the bias in about half of the rows.
    rows, dim = 4000, 4
    dist = multivariate_normal(rows, dim=dim, seed=6)
    y = dist.sample() - 0.6
    raw = torch.linalg.eigh(dist.covariance_matrix)[1].mT.flip(-2)
    share = float((raw[:, 0].sum(-1) > 0).double().mean())
    assert 0.05 < share < 0.95  # else the raw signs would follow a rule of their own
    oriented = pce(pit(dist, y, "pca(1)"))
    unoriented = pce(pit(dist, y, Projection(raw[:, :1])))
    # The spread of the forecast is right, so a symmetric mixture of both signs hides most of the
    # bias. PCEs of 4,000 uniforms are 0.005 on average, with a standard deviation of 0.002.
    assert float(oriented) > 0.08
    assert float(oriented) > 2 * float(unoriented)


def test_pca_orientation_follows_one_rule_over_all_rows():
    # All rows have the same correlations and differ in scale alone. By symmetry the second
    # component sums to zero, and two of its entries are equally large: rounding must not choose.
    truth = AR1Regression(dim=4)
    x, y = truth.sample(4000, generator=0)
    vectors = PCA().directions(truth.conditional(x))
    positive = (vectors[..., 0] > 0).double().mean(0)
    assert bool(((positive == 0) | (positive == 1)).all()), positive
    torch.testing.assert_close(vectors, vectors[:1].expand_as(vectors), rtol=0, atol=1e-9)
    assert float(vectors[0, 1].sum().abs()) < 1e-9
    # A forecast that is biased along the second component by b: its PITs are too small in every
    # row, and their error is that of their mean, Phi(b / (s sqrt 2)) - 1/2.
    law, bias = truth.conditional(x), 0.8 * vectors[:, 1]
    biased = MultivariateNormal(law.loc + bias, scale_tril=law.scale_tril)
    variance = (vectors[:, 1] * (law.covariance_matrix @ vectors[:, 1, :, None])[..., 0]).sum(-1)
    expected = float(torch.special.ndtr(0.8 / (2 * variance).sqrt()).mean()) - 0.5
    error = pce(pit(biased, y, "pca"))
    assert float(error[1]) == pytest.approx(expected, abs=0.02)
    assert 0.28 < float(error[1]) < 0.34
    assert bool((error[[0, 2, 3]] < 0.02).all())
    # With signs that differ from row to row most of it cancels.
    flip = 2 * torch.randint(2, (4000, 1, 1)) - 1
    assert float(pce(pit(biased, y, Projection(flip * vectors[:, 1:2])))) < 0.15


@pytest.mark.parametrize(
    ("fraction", "count"),
    [(0.3, 1), (0.6, 1), (0.65, 2), (0.85, 2), (0.9, 3), (0.999, 4)],
)
def test_pca_fraction_counts_by_the_mean_over_rows(fraction, count):
    # Cumulative fractions of (0.8, 0.9, 0.95, 1) and (0.4, 0.8, 0.92, 1): mean (0.6, 0.85, ...).
    # 0.6 and 0.85 are not representable, so those two ask for a little less.
    dist = normal_with_axes(
        [[1, 1, 0, 0], [1, -1, 0, 0], [0, 0, 1, 2], [0, 0, 2, -1]],
        [[8, 1, 0.5, 0.5], [40, 40, 12, 8]],
    )
    fraction -= 1e-9
    assert PCA(fraction).directions(dist).shape == (2, count, 4)
    assert pit(dist, torch.zeros(2, 4), PCA(fraction)).shape == (2, count)


def test_pca_fraction_that_is_just_reached_needs_no_more():
    dist = Independent(Normal(torch.zeros(3, 4), torch.ones(3, 4)), 1)
    assert PCA(0.5).directions(dist).shape == (3, 2, 4)
    assert PCA(0.51).directions(dist).shape == (3, 3, 4)


@pytest.mark.parametrize(("centre", "spread", "dim"), [(2000.0, 0.01, 30), (1e4, 0.1, 100)])
@pytest.mark.parametrize("family", ["independent", "multivariate", "mixture"])
def test_far_from_zero_in_float32(centre, spread, dim, family):
    n = 500
    loc = torch.full((n, dim), centre)
    if family == "independent":
        dist = Independent(Normal(loc, spread), 1)
    elif family == "multivariate":
        dist = MultivariateNormal(loc, scale_tril=spread * torch.eye(dim))
    else:
        factor = (spread * torch.eye(dim)).expand(n, 1, dim, dim)
        dist = GaussianMixture(torch.zeros(n, 1), loc.unsqueeze(1), factor)
    y = loc + spread * torch.randn(n, dim, generator=torch.Generator().manual_seed(2))
    exact = torch.special.ndtr((y - loc).double().sum(-1) / (spread * dim**0.5))
    found = pit(dist, y, "location").squeeze(-1)
    torch.testing.assert_close(found, exact.float(), rtol=0, atol=1e-5)
