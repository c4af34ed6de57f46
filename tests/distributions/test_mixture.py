"""GaussianMixture: density, moments, samplers, projections, checks."""

import pytest
import torch
from scipy import integrate
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from prerank import GaussianMixture
from prerank.errors import InputError, InputTypeError, PrerankError, ShapeError
from truths import gaussian_mixture, random_factor

BATCHES = [(), (5,), (2, 5)]
SIZES = [(1, 1), (2, 3), (4, 2)]  # D, K


def reference(dist):
    """The same mixture by torch."""
    return MixtureSameFamily(
        Categorical(logits=dist.logits), MultivariateNormal(dist.loc, scale_tril=dist.scale_tril)
    )


def arguments(batch=(3,), dim=2, components=2, dtype=torch.float64):
    """Valid arguments, to spoil one at a time."""
    return {
        "logits": torch.zeros(*batch, components, dtype=dtype),
        "loc": torch.zeros(*batch, components, dim, dtype=dtype),
        "scale_tril": torch.eye(dim, dtype=dtype).repeat(*batch, components, 1, 1),
    }


def assert_close(actual, expected, **tolerances):
    torch.testing.assert_close(actual, expected, **({"rtol": 1e-10, "atol": 1e-10} | tolerances))


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("dim", "components"), SIZES)
def test_moments_agree_with_torch(batch, dim, components):
    dist = gaussian_mixture(*batch, dim=dim, components=components)
    expected = reference(dist)
    assert dist.batch_shape == batch
    assert dist.event_shape == (dim,)
    assert_close(dist.mean, expected.mean)
    assert_close(dist.variance, expected.variance)
    assert_close(dist.covariance_matrix.diagonal(dim1=-2, dim2=-1), expected.variance)
    # torch has no covariance of a mixture: law of total covariance, component by component.
    second = expected.component_distribution.covariance_matrix + torch.einsum(
        "...d,...e->...de", dist.loc, dist.loc
    )
    mixed = torch.einsum("...k,...kde->...de", expected.mixture_distribution.probs, second)
    outer = torch.einsum("...d,...e->...de", expected.mean, expected.mean)
    assert_close(dist.covariance_matrix, mixed - outer)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("sample", [(), (7,), (3, 2)])
@pytest.mark.parametrize(("dim", "components"), SIZES)
def test_log_prob_agrees_with_torch(batch, sample, dim, components):
    dist = gaussian_mixture(*batch, dim=dim, components=components)
    value = 3 * torch.randn(*sample, *batch, dim, dtype=torch.float64)
    expected = reference(dist)
    assert_close(dist.log_prob(value), expected.log_prob(value))


def test_log_prob_broadcasts_one_point_over_rows():
    dist = gaussian_mixture(2, 5, dim=3)
    point = torch.randn(3, dtype=torch.float64)
    assert_close(dist.log_prob(point), reference(dist).log_prob(point))


def test_log_prob_far_out_stays_finite():
    dist = gaussian_mixture(2, dim=3)
    far = torch.full((2, 3), 1e6, dtype=torch.float64)
    value = dist.log_prob(far)
    assert torch.isfinite(value).all()
    assert (value < -1e9).all()


@pytest.mark.parametrize(
    "shapes",
    [((3,), (5, 3, 2), (3, 2, 2)), ((5, 3), (3, 2), (3, 2, 2)), ((2, 1, 3), (5, 3, 2), (3, 2, 2))],
)
def test_parameters_broadcast(shapes):
    g = torch.Generator().manual_seed(1)
    logits, loc = (torch.randn(s, generator=g, dtype=torch.float64) for s in shapes[:2])
    factor = random_factor(*shapes[2][:-1], generator=g)
    dist = GaussianMixture(logits, loc, factor)
    batch = torch.broadcast_shapes(shapes[0][:-1], shapes[1][:-2], shapes[2][:-3])
    assert dist.batch_shape == batch
    full = GaussianMixture(
        logits.expand(*batch, 3), loc.expand(*batch, 3, 2), factor.expand(*batch, 3, 2, 2)
    )
    value = torch.randn(4, *batch, 2, generator=g, dtype=torch.float64)
    assert torch.equal(dist.log_prob(value), full.log_prob(value))
    assert torch.equal(dist.sample((4,), generator=0), full.sample((4,), generator=0))
    assert torch.equal(dist.covariance_matrix, full.covariance_matrix)


@pytest.mark.parametrize("batch", [(5,), (2, 5), (3, 2, 5)])
def test_expand(batch):
    dist = gaussian_mixture(5, dim=3)
    wide = dist.expand(batch)
    value = torch.randn(4, *batch, 3, dtype=torch.float64)
    assert wide.batch_shape == batch
    assert wide.event_shape == (3,)
    assert_close(wide.log_prob(value), dist.log_prob(value))
    assert torch.equal(wide.mean, dist.mean.expand(*batch, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_follows_the_parameters(dtype):
    dist = GaussianMixture(**arguments(dtype=dtype))
    point = torch.zeros(3, 2, dtype=dtype)
    results = (dist.mean, dist.sample(), dist.log_prob(point), *dist.stratified_rsample(4))
    assert {result.dtype for result in results} == {dtype}


def test_mixed_dtypes_promote():
    given = arguments(dtype=torch.float32) | {"logits": torch.zeros(3, 2, dtype=torch.float64)}
    assert GaussianMixture(**given).sample().dtype == torch.float64


@pytest.mark.parametrize(("dim", "components"), SIZES)
@pytest.mark.parametrize("sampler", ["sample", "stratified_rsample"])
def test_sampled_moments(dim, components, sampler):
    dist = gaussian_mixture(2, dim=dim, components=components, seed=3)
    n = 20_000
    if sampler == "sample":
        points = dist.sample((n,), generator=0)
    else:
        points, weights = dist.stratified_rsample(n, generator=0)
        assert_close(weights, torch.full_like(weights, 1 / n))
    centred = points - dist.mean
    outer = torch.einsum("s...d,s...e->s...de", centred, centred)
    # 5 standard errors of an average of n draws (stratification only makes them smaller).
    for draws, exact in ((points, dist.mean), (outer, dist.covariance_matrix)):
        error = draws.std(0) / n**0.5
        assert ((draws.mean(0) - exact).abs() < 5 * error).all()


def test_component_frequencies():
    logits = torch.tensor([[0.0, 1.0, -2.0], [3.0, 0.0, 0.0]], dtype=torch.float64)
    loc = 100.0 * torch.arange(3, dtype=torch.float64).reshape(1, 3, 1).expand(2, 3, 1)
    dist = GaussianMixture(logits, loc, torch.ones(2, 3, 1, 1, dtype=torch.float64))
    n = 20_000
    component = (dist.sample((n,), generator=0).squeeze(-1) / 100).round()
    frequency = torch.stack([(component == k).double().mean(0) for k in range(3)], -1)
    probs = torch.softmax(logits, -1)
    # 5 binomial standard errors.
    assert ((frequency - probs).abs() < 5 * (probs * (1 - probs) / n).sqrt()).all()


def test_sample_follows_the_seed_and_not_the_global_state():
    dist = gaussian_mixture(4)
    before = torch.get_rng_state()
    first = dist.sample((3,), generator=5)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    assert torch.equal(dist.sample((3,), generator=5), first)
    assert not torch.equal(dist.sample((3,), generator=6), first)
    streams = [torch.Generator().manual_seed(5) for _ in range(2)]
    drawn, again = (dist.sample((3,), generator=stream) for stream in streams)
    assert torch.equal(drawn, again)
    assert not torch.equal(dist.sample((3,), generator=streams[0]), drawn)  # the stream runs on


def test_sample_without_generator_follows_the_global_state():
    dist = gaussian_mixture(4)
    torch.manual_seed(1)
    first = dist.sample((3,))
    assert not torch.equal(dist.sample((3,)), first)
    torch.manual_seed(1)
    assert torch.equal(dist.sample((3,)), first)


def test_sample_has_no_gradient():
    given = arguments()
    given["loc"].requires_grad_()
    dist = GaussianMixture(**given)
    assert not dist.sample((2,)).requires_grad
    assert dist.rsample((2,)).requires_grad


def test_samples_are_independent_over_rows_and_stack():
    n = 10_000
    dist = gaussian_mixture(dim=2, components=2).expand((2, 3))  # six equal laws
    centred = dist.sample((n,), generator=0) - dist.mean
    columns = (centred / dist.variance.sqrt()).reshape(n, 6, 2)
    # Under independence a product of two standardised coordinates has mean 0, variance 1.
    cross = torch.einsum("sad,sbe->abde", columns, columns) / n
    different = ~torch.eye(6, dtype=torch.bool)
    assert (cross[different].abs() < 5 / n**0.5).all()


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4)])
def test_projected_cdf_agrees_with_quadrature(shape):
    dist = gaussian_mixture(2, dim=4, components=3)
    g = torch.Generator().manual_seed(2)
    directions = torch.randn(shape, generator=g, dtype=torch.float64)
    law = dist.project(directions)
    assert law.batch_shape == (2, 3)
    every = directions.expand(2, 3, 4)
    at = torch.randn(2, 3, generator=g, dtype=torch.float64)
    cdf = law.cdf(at)
    for n in range(2):
        for j in range(3):
            v = every[n, j]
            loc = dist.loc[n] @ v
            cov = dist.scale_tril[n] @ dist.scale_tril[n].mT
            sd = (v @ cov @ v).sqrt()

            def density(t, loc=loc, sd=sd, probs=dist.probs[n]):
                return (
                    float((probs * torch.exp(-0.5 * ((t - loc) / sd) ** 2) / sd).sum())
                    / (2 * torch.pi) ** 0.5
                )

            expected, _ = integrate.quad(density, -40, float(at[n, j]), epsabs=1e-10, limit=200)
            assert float(cdf[n, j]) == pytest.approx(expected, abs=1e-7)


def test_projected_moments_and_sample_axes():
    dist = gaussian_mixture(2, 5, dim=3)
    directions = torch.randn(2, 5, 4, 3, dtype=torch.float64)
    law = dist.project(directions)
    assert_close(law.mean, torch.einsum("...jd,...d->...j", directions, dist.mean))
    spread = torch.einsum("...jd,...de,...je->...j", directions, dist.covariance_matrix, directions)
    assert_close(law.variance, spread)
    at = torch.randn(7, 2, 5, 4, dtype=torch.float64)
    assert_close(law.cdf(at)[3], law.cdf(at[3]))


@pytest.mark.parametrize("n", [1, 7, 100])
def test_stratified_weights_and_counts(n):
    logits = torch.randn(50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    loc = 100.0 * torch.arange(4, dtype=torch.float64).reshape(4, 1)
    dist = GaussianMixture(logits, loc, torch.ones(4, 1, 1, dtype=torch.float64))
    points, weights = dist.stratified_rsample(n, generator=0)
    assert points.shape == (n, 50, 1)
    assert_close(weights.sum(0), torch.ones(50, dtype=torch.float64))
    component = (points.squeeze(-1) / 100).round()
    counts = torch.stack([(component == k).sum(0) for k in range(4)], -1)
    assert ((counts - n * dist.probs).abs() < 1).all()


@pytest.mark.parametrize("allocation", [None, (0.5, 0.3, 0.2)])
def test_stratified_averages_are_unbiased(allocation):
    rows, n = 20_000, 3
    dist = gaussian_mixture(dim=2, components=3, seed=1).expand((rows,))
    share = None if allocation is None else torch.tensor(allocation, dtype=torch.float64)
    points, weights = dist.stratified_rsample(n, generator=0, allocation=share)
    a = torch.tensor([0.7, -0.4], dtype=torch.float64)
    estimates = torch.stack(
        [
            (weights * points[..., 0]).sum(0),
            (weights * points[..., 0] * points[..., 1]).sum(0),
            (weights * torch.cos(points @ a)).sum(0),
            weights.sum(0),
        ]
    )
    one = gaussian_mixture(dim=2, components=3, seed=1)
    spread = torch.einsum("kde,d->ke", one.scale_tril, a).square().sum(-1)
    exact = torch.stack(
        [
            one.mean[0],
            one.covariance_matrix[0, 1] + one.mean[0] * one.mean[1],
            (one.probs * torch.cos(one.loc @ a) * torch.exp(-0.5 * spread)).sum(),
            torch.tensor(1.0, dtype=torch.float64),
        ]
    )
    # Rows are independent replicates: 5 standard errors of their mean (and rounding, for the
    # sum of the weights where it is exact).
    bound = 5 * estimates.std(-1) / rows**0.5 + 1e-12
    assert ((estimates.mean(-1) - exact).abs() < bound).all()


@pytest.mark.parametrize("which", [0, 1])
def test_stratified_gradients(which):
    dist = gaussian_mixture(2, dim=2, components=3)
    allocation = dist.probs.detach()

    def function(logits, loc, scale_tril):
        moved = GaussianMixture(logits, loc, scale_tril.tril(), validate_args=False)
        return moved.stratified_rsample(5, generator=0, allocation=allocation)[which]

    inputs = [p.clone().requires_grad_() for p in (dist.logits, dist.loc, dist.scale_tril)]
    assert torch.autograd.gradcheck(function, inputs)


def test_default_allocation_is_the_detached_weights():
    dist = gaussian_mixture(3)
    default = dist.stratified_rsample(6, generator=0)
    given = dist.stratified_rsample(6, generator=0, allocation=dist.probs.detach())
    assert torch.equal(default[0], given[0])
    assert torch.equal(default[1], given[1])


def spoiled(name, change):
    given = arguments()
    given[name] = change(given[name])
    return given


def set_entry(*index, value):
    def change(tensor):
        tensor = tensor.clone()
        tensor[index] = value
        return tensor

    return change


BAD = {
    "upper triangle": ("scale_tril", set_entry(0, 0, 0, 1, value=0.5), InputError, "triangular"),
    "zero diagonal": ("scale_tril", set_entry(0, 0, 1, 1, value=0.0), InputError, "positive"),
    "negative diagonal": ("scale_tril", set_entry(0, 0, 1, 1, value=-1.0), InputError, "positive"),
    "components": ("logits", lambda t: t[..., :1], ShapeError, r"\(3, 1\)"),
    "targets": ("loc", lambda t: t[..., :1], ShapeError, r"\(3, 2, 1\)"),
    "rows": ("loc", lambda t: t.repeat(2, 1, 1), ShapeError, "broadcast"),
    "too few axes": ("loc", lambda t: t[0, 0], ShapeError, r"\(2,\)"),
    "nan": ("loc", set_entry(0, 0, 0, value=float("nan")), InputError, "loc holds 1 NaN"),
    "infinity": ("logits", set_entry(0, 0, value=-float("inf")), InputError, "logits holds 1"),
    "integers": ("logits", lambda t: t.long(), InputTypeError, "logits.*int64"),
    "device of logits": ("logits", lambda t: t.to("meta"), InputError, "loc is on cpu.*meta"),
    "device of factors": ("scale_tril", lambda t: t.to("meta"), InputError, "cpu.*meta"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_parameters(case):
    name, change, error, message = BAD[case]
    with pytest.raises(error, match=message):
        GaussianMixture(**spoiled(name, change))


@pytest.mark.parametrize("case", ["upper triangle", "negative diagonal", "nan", "infinity"])
def test_unchecked_parameters(case):
    name, change, *_ = BAD[case]
    given = spoiled(name, change)
    dist = GaussianMixture(**given, validate_args=False)
    assert dist.batch_shape == (3,)
    kept = torch.softmax(given[name], -1) if name == "logits" else given[name]
    stored = dist.probs if name == "logits" else getattr(dist, name)
    assert_close(stored, kept, equal_nan=True)


VALUES = {
    "targets": (torch.zeros(3, 4, dtype=torch.float64), ShapeError, r"\(3, 4\)"),
    "rows": (torch.zeros(5, 2, dtype=torch.float64), ShapeError, r"\(5, 2\).*\(3,\)"),
    "scalar": (torch.tensor(0.0), ShapeError, r"\(\)"),
    "nan": (torch.full((3, 2), float("nan")), InputError, "value holds 6 NaN"),
    "integers": (torch.zeros(3, 2, dtype=torch.long), InputTypeError, "int64"),
    "device": (torch.zeros(3, 2, device="meta"), InputError, "cpu.*meta"),
}


@pytest.mark.parametrize("case", VALUES)
def test_bad_values(case):
    value, error, message = VALUES[case]
    with pytest.raises(error, match=message):
        GaussianMixture(**arguments()).log_prob(value)


@pytest.mark.parametrize("case", VALUES)
def test_expanded_mixtures_keep_the_checks(case):
    value, error, message = VALUES[case]
    wide = GaussianMixture(**arguments(batch=(1,))).expand((3,))
    with pytest.raises(error, match=message):
        wide.log_prob(value)


def test_unchecked_values():
    dist = GaussianMixture(**arguments(), validate_args=False)
    value = torch.full((3, 2), float("nan"), dtype=torch.float64)
    for unchecked in (dist, dist.expand((4, 3))):
        assert unchecked.log_prob(value).isnan().all()


@pytest.mark.parametrize("allocation", [(-0.5, 1.5), (0.0, 0.0), (2.0, 2.0), (0.5, 0.4)])
def test_bad_allocation(allocation):
    dist = GaussianMixture(**arguments())
    with pytest.raises(InputError, match="allocation"):
        dist.stratified_rsample(4, allocation=torch.tensor(allocation, dtype=torch.float64))


@pytest.mark.parametrize(("n", "error"), [(0, InputError), (2.0, InputTypeError)])
def test_bad_number_of_draws(n, error):
    with pytest.raises(error, match="n must be"):
        GaussianMixture(**arguments()).stratified_rsample(n)


@pytest.mark.parametrize("generator", ["0", 1.5, True])
def test_bad_generator(generator):
    with pytest.raises(InputTypeError, match="generator"):
        GaussianMixture(**arguments()).sample(generator=generator)


def test_vmap():
    dist = gaussian_mixture(3, 5, dim=2)
    value = torch.randn(3, 5, 2, dtype=torch.float64)

    def one(logits, loc, scale_tril, y):
        return GaussianMixture(logits, loc, scale_tril, validate_args=False).log_prob(y)

    mapped = torch.func.vmap(one)(dist.logits, dist.loc, dist.scale_tril, value)
    assert_close(mapped, dist.log_prob(value))


def test_samples_of_other_shapes_share_no_noise():
    dist = GaussianMixture(
        torch.zeros(2000, 2),
        torch.tensor([[-5.0], [5.0]]).expand(2000, 2, 1),
        torch.ones(2000, 2, 1, 1),
    )
    one, many = dist.sample(generator=0), dist.sample((4,), generator=0)
    # Signs agree by chance: within 5 standard errors of one half.
    assert (((many > 0) == (one > 0)).double().mean(1) - 0.5).abs().max() < 5 * 0.5 / 2000**0.5


def test_gradients_of_samples_under_vmap():
    def total(logits, loc, factor):
        dist = GaussianMixture(logits, loc, factor, validate_args=False)
        return dist.rsample((4,)).sum()

    factor = torch.eye(2).expand(5, 3, 2, 2)
    gradient = torch.func.vmap(torch.func.grad(total), randomness="different")
    assert torch.isfinite(gradient(torch.randn(5, 3), torch.randn(5, 3, 2), factor)).all()


@pytest.mark.parametrize("allocation", [[[1.0, 0.0]], [[0.3, 0.3, 0.4]], [[2.0, 2.0]]])
def test_allocations_that_miss_a_component_are_refused(allocation):
    dist = GaussianMixture(torch.zeros(1, 2), torch.zeros(1, 2, 1), torch.ones(1, 2, 1, 1))
    with pytest.raises(PrerankError, match="allocation"):
        dist.stratified_rsample(10, allocation=torch.tensor(allocation))


def test_many_points_have_the_digits_of_one():
    # A component far away, and narrow ones whose targets are nearly collinear, in float32.
    far = GaussianMixture(
        torch.tensor([[0.0, -1e4]]),
        torch.tensor([[[0.0, 0.0], [1e8, 1e8]]]),
        torch.eye(2).expand(1, 2, 2, 2),
    )
    factor = 1e-3 * torch.eye(2) + torch.tensor([[0.0, 0.0], [1.0, 0.0]])
    loc = torch.tensor([[[0.0, 0.0], [3.0, 3.0]]])
    narrow = GaussianMixture(torch.zeros(1, 2), loc, factor.expand(1, 2, 2, 2))
    for dist in (far, narrow):
        points = dist.sample((20,), generator=0)
        one_by_one = torch.stack([dist.log_prob(point) for point in points])
        # z has an error of about 1e-7 / 1e-3, and is of order 1.
        assert_close(dist.log_prob(points), one_by_one, rtol=0, atol=5e-3)
