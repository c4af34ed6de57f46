"""Distributions within bounds: the change of variables, against quadrature and known families."""

from math import inf

import numpy as np
import pytest
import torch
from scipy import integrate
from torch.distributions import LogNormal, MultivariateNormal, Normal

from prerank import Ensemble, calibrate, crps, pit
from prerank.distributions import Bounded, Link, Rounding, affine, draw, rows_of
from prerank.distributions.cells import Atoms, Cells
from prerank.distributions.rounded import Rounded
from prerank.errors import InputError, InputTypeError, NotApplicableError, ShapeError
from prerank.recalibration import predictive_region
from truths import gaussian_mixture

F64 = torch.float64
LINKS = {"both": Link(-2.0, 5.0), "lower": Link(1.0, inf, 0.5), "upper": Link(-inf, 3.0, 2.0)}


@pytest.mark.parametrize("link", LINKS.values(), ids=LINKS)
def test_maps_are_inverse_to_each_other_and_slopes_their_derivatives(link):
    z = torch.linspace(-30, 30, 121, dtype=F64, requires_grad=True)
    y = link.values(z)
    assert bool((y.diff() >= 0).all())
    assert bool(((y >= link.lower) & (y <= link.upper)).all())
    near = z.detach().abs() < 12  # farther out the numbers beside a bound are too coarse
    torch.testing.assert_close(
        link.points(y.detach())[near], z.detach()[near], rtol=1e-6, atol=1e-8
    )
    (slope,) = torch.autograd.grad(y.sum(), z)
    torch.testing.assert_close(
        link.log_slope(y.detach())[near], -slope.log()[near], rtol=1e-6, atol=1e-8
    )
    moved, shifted = link.moved(7.0, 3.0), 7 + 3 * y.detach()
    torch.testing.assert_close(moved.values(z.detach()), shifted)
    torch.testing.assert_close(moved.points(shifted)[near], z.detach()[near], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("link", LINKS.values(), ids=LINKS)
def test_the_ends_are_finite(link):
    for dtype in (torch.float32, F64):
        ends = torch.tensor([-1e9, link.lower, link.upper, 1e9], dtype=dtype)
        ends = ends[ends.isfinite()]
        assert bool(link.points(ends).isfinite().all())
        assert bool(link.log_slope(ends).isfinite().all())


def one(link, loc=0.4, scale=1.3):
    base = MultivariateNormal(
        torch.tensor([[loc]], dtype=F64), torch.tensor([[scale**2]], dtype=F64)
    )
    return Bounded(base, [link])


@pytest.mark.parametrize("link", LINKS.values(), ids=LINKS)
@pytest.mark.parametrize("scale", [0.01, 1.3, 40.0])
def test_density_and_moments_are_those_of_integrals(link, scale):
    dist = one(link, scale=scale)

    def expected(power):
        def integrand(t):
            z = torch.tensor(0.4 + scale * t, dtype=F64)
            return float(link.values(z)) ** power * np.exp(-t * t / 2) / (2 * np.pi) ** 0.5

        kink = -0.4 / scale
        points = sorted(p for p in (kink, kink - 4 / scale, kink + 4 / scale) if abs(p) < 9)
        return integrate.quad(integrand, -9, 9, points=points or None, limit=400)[0]

    mean, square = expected(1), expected(2)
    assert float(dist.mean) == pytest.approx(mean, rel=1e-6, abs=1e-8)
    assert float(dist.variance) == pytest.approx(square - mean**2, rel=1e-5, abs=1e-6)
    low, high = (float(link.values(torch.tensor(0.4 + s * scale, dtype=F64))) for s in (-1, 1))
    if scale < 2:
        mass, _ = integrate.quad(
            lambda y: float(dist.log_prob(torch.tensor([[y]], dtype=F64)).exp()), low, high
        )
        assert mass == pytest.approx(0.6826895, abs=1e-5)  # of a normal within one deviation


def test_far_from_a_bound_of_small_scale_it_is_the_log_normal_beside_it():
    # Where y is much smaller than s, s log(1 + e^z) is s e^z.
    link = Link(0.0, inf, 1e6)
    dist, known = one(link, loc=-20.0, scale=0.5), LogNormal(-20 + np.log(1e6), 0.5)
    y = torch.tensor([[1e-3], [2e-3], [4e-3]], dtype=F64)
    torch.testing.assert_close(dist.log_prob(y), known.log_prob(y)[:, 0], rtol=1e-6, atol=1e-6)


def test_pits_of_draws_are_uniform_and_beyond_the_bounds_there_is_no_density():
    base = gaussian_mixture(2000, dim=3)
    dist = Bounded(base, [LINKS["both"], None, LINKS["lower"]])
    y = draw(dist, 2, generator=1).points[0]
    assert bool(dist.support.check(y).all())
    closed = pit(dist, y, "marginal", generator=0)
    inner = pit(base, dist.points(y), "marginal", generator=0)
    torch.testing.assert_close(closed, inner)
    # Kolmogorov-Smirnov at 2,000 rows: 1.95 / sqrt(n) has a level of .001; 5 components.
    for z in (closed, pit(dist, y, "hdr+location", generator=0)):
        grid = torch.arange(1, 2001, dtype=z.dtype).unsqueeze(-1) / 2000
        assert float((z.sort(0).values - grid).abs().max()) < 2.2 / 2000**0.5
    outside = y.clone()
    outside[:, 0] = 5.1
    assert bool((dist.log_prob(outside) == -inf).all())
    assert float(crps(dist, outside)[:, 0].mean()) > float(crps(dist, y)[:, 0].mean())


def test_other_units_and_some_rows():
    dist = Bounded(gaussian_mixture(50, dim=3), [LINKS["both"], None, LINKS["upper"]])
    loc, scale = torch.tensor([1.0, -2.0, 3.0]), torch.tensor([2.0, 0.5, 10.0])
    moved = affine(dist, loc, scale)
    y = draw(dist, 2, generator=0).points[0]
    torch.testing.assert_close(
        moved.log_prob(loc + scale * y), dist.log_prob(y) - scale.log().sum(), rtol=1e-4, atol=1e-3
    )
    torch.testing.assert_close(moved.mean, loc + scale * dist.mean, rtol=1e-4, atol=1e-4)
    part = rows_of(dist, slice(10, 20))
    torch.testing.assert_close(part.log_prob(y[10:20]), dist.log_prob(y)[10:20])
    several = dist.expand((4, 50))
    assert several.sample((2,), generator=0).shape == (2, 4, 50, 3)


def test_gradients_go_through_draws():
    loc = torch.zeros(4, 1, requires_grad=True)
    dist = Bounded(MultivariateNormal(loc, torch.eye(1)), [LINKS["both"]])
    dist.rsample((3,), generator=0).sum().backward()
    assert bool((loc.grad > 0).all())


def test_bad_links_are_refused():
    base = MultivariateNormal(torch.zeros(1, 2), torch.eye(2))
    with pytest.raises(ShapeError, match="links has 1 entries"):
        Bounded(base, [LINKS["both"]])
    with pytest.raises(InputTypeError, match="no Link"):
        Bounded(base, [None, None])
    with pytest.raises(InputTypeError, match="Ensemble"):
        Bounded(Ensemble(torch.randn(3, 4, 1)), [LINKS["both"]])
    for wrong in ((1.0, 1.0), (-inf, inf), (float("nan"), 1.0), (0.0, 1.0, 0.0), (0.0, 1.0, inf)):
        with pytest.raises(InputError):
            Link(*wrong)


# --- found in the targets ----------------------------------------------------------------------


def column(kind):
    """1,000 values of a target with bounds 0 and 1."""
    random = np.random.default_rng(0)
    y = random.beta(2, 2, size=1000)
    if kind == "few at 1":
        y[:20] = 1.0
    if kind == "both ends":
        y[:100], y[100:300] = 0.0, 1.0
    if kind == "atom inside":
        y[:200] = 0.5
    if kind == "rounded":
        y = y.round(2)
        y[:7] = 1.0
        y[7:] = y[7:].clip(0.01, 0.99)
    if kind == "values":
        y = y.round(1)
    return torch.from_numpy(y).unsqueeze(1)


KINDS = {
    "inside": (None, True),
    "few at 1": ([1.0], True),
    "both ends": ([0.0, 1.0], False),
    "atom inside": ([0.5], True),
    "rounded": ([1.0], True),
    "values": (None, False),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_spread_is_what_comes_back(kind):
    y = column(kind)
    rounding = Rounding.of(y, bounds={0: (0.0, 1.0)})
    atoms, linked = KINDS[kind]
    assert (rounding.links[0] is not None) == linked
    if atoms:
        assert isinstance(rounding.cells[0], Atoms)
        assert rounding.cells[0].values.tolist() == atoms
    assert (rounding.cells[0] is None) == (kind == "inside")
    z = rounding.spread(y, generator=0)
    assert bool(z.isfinite().all())
    torch.testing.assert_close(rounding.snap(z), y, rtol=1e-9, atol=1e-9)
    again = Rounding.from_json(rounding.as_json())
    assert (again.links, again.cells) == (rounding.links, rounding.cells)
    # A forecast on the line has the bounds, and its mean is that of its draws.
    base = MultivariateNormal(z.mean(0).expand(5, 1), 9 * z.var(0).reshape(1, 1))
    dist = rounding(base)
    points = draw(dist, 20_000, generator=0).points
    assert (float(points.min()), float(points.max())) >= (0.0, 0.0)
    assert float(points.max()) <= 1
    error = points.std() / 20_000**0.5
    assert bool(((points.mean(0) - dist.mean).abs() < 4.5 * error).all())
    variance = points.var(0, correction=0)
    torch.testing.assert_close(variance, dist.variance, rtol=0.05, atol=1e-3)
    if isinstance(dist, Rounded):
        z = pit(dist, points[0], "marginal", generator=0)
        assert bool(((z >= 0) & (z <= 1)).all())


def test_ensembles_are_kept_within_bounds():
    rounding = Rounding.of(column("few at 1"), bounds={0: (0.0, 1.0)})
    members = rounding(Ensemble(10 * torch.randn(9, 40, 1))).samples
    assert 0 <= float(members.min()) <= float(members.max()) == 1


def test_a_normal_that_is_no_mixture():
    base = Normal(torch.zeros(3, 1), torch.ones(3, 1))
    dist = Bounded(torch.distributions.Independent(base, 1), [Link(0.0, 1.0)])
    torch.testing.assert_close(dist.mean, torch.full((3, 1), 0.5))


@pytest.mark.parametrize("shape", ["density", "box"])
def test_regions_of_the_truth_have_their_level_and_stay_within_bounds(shape):
    dist = Bounded(gaussian_mixture(1000, dim=2), [Link(0.0, 1.0), Link(0.0, 2.0)])
    y = draw(dist, 2, generator=1).points[0]
    region = predictive_region(dist, 0.8, shape=shape, generator=0)
    inside = region.contains(y).double().mean()
    # 1,000 rows: standard error .0126; the levels of single rows come from draws.
    assert abs(float(inside) - 0.8) < 4 * 0.0126 + 0.01
    volume = region.volume(generator=0)
    assert bool((volume > 0).all())
    assert float(volume.max()) < 2 * 1.02  # the whole space; density regions are measured by draws
    assert float(volume.mean()) < 1.6


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("scale", [1e-3, 5.0, 1e6])
def test_at_a_single_bound_the_density_is_a_number(dtype, scale):
    base = MultivariateNormal(torch.zeros(2, 1, dtype=dtype), torch.eye(1, dtype=dtype))
    least = torch.finfo(dtype).smallest_normal
    for y in (0.0, least / 2, least):
        point = torch.full((2, 1), y, dtype=dtype, requires_grad=True)
        density = Bounded(base, [Link(0.0, inf, scale)]).log_prob(point)
        assert bool(density.isfinite().all())
        assert bool(density.le(-10).all())
        mirrored = Bounded(base, [Link(-inf, 0.0, scale)]).log_prob(-point)
        torch.testing.assert_close(mirrored, density)


def test_units_of_single_rows_are_refused_where_rows_share_a_map():
    scale = torch.tensor([[1e-12], [1e-3]])
    base = MultivariateNormal(torch.zeros(2, 1), torch.eye(1))
    for dist in (Bounded(base, [Link(0.0, inf)]), Rounded(base, [Cells.nearest([0.0, 1.0])])):
        assert affine(dist, torch.zeros(1), scale[:1].expand(2, 1)).batch_shape == (2,)
        with pytest.raises(InputError, match="rescale the targets"):
            affine(dist, torch.zeros(1), scale)


def test_a_head_is_not_put_behind_bounds():
    base = MultivariateNormal(torch.zeros(100, 1), torch.eye(1))
    dist = Bounded(base, [Link(0.0, 1.0)])
    y = dist.sample(generator=0)
    with pytest.raises(NotApplicableError, match=r"`dist\.base` and `dist\.points\(y\)`"):
        calibrate(dist, y)
    inside = Bounded(calibrate(dist.base, dist.points(y))(dist.base), dist.links)
    assert bool(inside.support.check(inside.sample((20,), generator=1)).all())
