"""`GaussianMixture.rsample`: the law of `sample`, with the exact gradient."""

import pytest
import torch
from scipy import optimize, special, stats

from prerank import GaussianMixture
from prerank.distributions.reparameterisation import attach_implicit_gradient
from truths import gaussian_mixture, random_factor

# Blocks are independent replicates of the gradient estimate: 200 x 500 = 1e5 draws.
BLOCKS, DRAWS = 200, 500

# Distance of neighbouring components along the first, the middle and the last axes. A draw moves
# from one component to another through the gaps between them, one axis after the other: where
# components are far apart along several axes the gradient is still exact, but it rests on draws
# so rare that 1e5 of them give no standard error.
LAYOUTS = {
    "overlapping": (0.7, 0.7, 0.7),
    "separated first": (3.0, 0.3, 0.3),
    "separated last": (0.3, 0.3, 2.5),
}


def parameters(dim, components, gaps, seed=0):
    """Components in a row, with standard deviations of 0.4 to 1.2."""
    g = torch.Generator().manual_seed(seed)
    logits = 0.5 * torch.randn(components, generator=g, dtype=torch.float64)
    first, middle, last = gaps
    step = torch.tensor([first, *[middle] * (dim - 2), last], dtype=torch.float64)[:dim]
    loc = step * torch.arange(components, dtype=torch.float64).unsqueeze(-1)
    loc = loc + 0.3 * torch.randn(components, dim, generator=g, dtype=torch.float64)
    return logits, loc, 0.8 * random_factor(components, dim, generator=g)


def closed_forms(logits, loc, factor, a):
    """Exact E[y], E[y y'] (lower triangle) and E[cos(a.y)], flattened."""
    probs = torch.softmax(logits, -1)
    second = factor @ factor.mT + loc.unsqueeze(-1) * loc.unsqueeze(-2)
    moments = torch.einsum("k,kde->de", probs, second)
    spread = (factor.mT @ a).square().sum(-1)
    cosine = (probs * torch.cos(loc @ a) * torch.exp(-0.5 * spread)).sum()
    rows, columns = torch.tril_indices(*moments.shape)
    return torch.cat([probs @ loc, moments[rows, columns], cosine.unsqueeze(0)])


def estimates(points, a):
    """The same quantities averaged over draws `(S, blocks, D)`: `(outputs, blocks)`."""
    outer = points.unsqueeze(-1) * points.unsqueeze(-2)
    rows, columns = torch.tril_indices(*outer.shape[-2:])
    values = torch.cat([points, outer[..., rows, columns], torch.cos(points @ a).unsqueeze(-1)], -1)
    return values.mean(0).mT


def lower(gradients):
    """Logits, locations and lower triangles of the factors, flattened behind the lead axes."""
    logits, loc, factor = gradients
    rows, columns = torch.tril_indices(*factor.shape[-2:])
    kept = factor[..., rows, columns]
    return torch.cat([logits, loc.flatten(-2), kept.flatten(-2)], -1)


# One component has no layout, and one target no last axis; four targets are the slowest.
@pytest.mark.parametrize(
    ("dim", "components", "layout"),
    [
        (1, 1, "overlapping"),
        (1, 3, "separated first"),
        *((2, 3, layout) for layout in LAYOUTS),
        (4, 1, "overlapping"),
        (4, 3, "separated last"),
    ],
)
def test_gradients_of_expectations_are_exact(dim, components, layout):
    base = parameters(dim, components, LAYOUTS[layout])
    a = torch.linspace(0.4, -0.6, dim, dtype=torch.float64)
    leaves = [p.clone().requires_grad_() for p in base]
    exact = torch.stack(
        [
            lower(torch.autograd.grad(value, leaves, retain_graph=True, materialize_grads=True))
            for value in closed_forms(*leaves, a)
        ]
    )
    # One copy of the parameters per block, so that each block has its own gradient.
    copies = [p.expand(BLOCKS, *p.shape).clone().requires_grad_() for p in base]
    points = GaussianMixture(*copies).rsample((DRAWS,), generator=11)
    found = torch.stack(
        [
            lower(torch.autograd.grad(value.sum(), copies, retain_graph=True))
            for value in estimates(points, a)
        ]
    )  # (outputs, blocks, parameters)
    error = found.std(1) / BLOCKS**0.5
    gap = (found.mean(1) - exact).abs()
    # 4 standard errors of the mean of 200 blocks: a chance of 6e-5 for each of at most 675
    # entries, once (the seed is fixed). 1e-10 is for entries that do not vary at all.
    assert (gap < 4 * error + 1e-10).all()


@pytest.mark.parametrize(
    ("sample", "batch"), [((), (4,)), ((6,), ()), ((6,), (2, 4)), ((2, 3), (4,)), ((2, 3), (2, 4))]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_are_those_of_sample(sample, batch, dtype):
    dist = gaussian_mixture(*batch, dim=3)
    given = [p.to(dtype).requires_grad_() for p in (dist.logits, dist.loc, dist.scale_tril)]
    dist = GaussianMixture(*given)
    drawn, plain = dist.rsample(sample, generator=3), dist.sample(sample, generator=3)
    assert torch.equal(drawn.detach(), plain)
    assert drawn.requires_grad
    assert all(g is not None for g in torch.autograd.grad(drawn.sum(), given))


def test_no_graph_without_gradients():
    dist = gaussian_mixture(2)
    assert not dist.rsample((2,)).requires_grad
    dist = GaussianMixture(dist.logits, dist.loc.requires_grad_(), dist.scale_tril)
    with torch.no_grad():
        assert not dist.rsample((2,)).requires_grad


def conditional_cdf(logits, loc, factor, prefix, y):
    """F(y | prefix) for the coordinate after `prefix`, by conditioning covariances."""
    d = len(prefix)
    weights, cdfs = [], []
    for k in range(len(logits)):
        cov = factor[k] @ factor[k].T
        mean, var = loc[k, d], cov[d, d]
        weight = logits[k]
        if d:
            inside, across = cov[:d, :d], cov[d, :d]
            residual = prefix - loc[k, :d]
            mean = mean + across @ torch.linalg.solve(inside, residual)
            var = var - across @ torch.linalg.solve(inside, across)
            weight = weight - 0.5 * residual @ torch.linalg.solve(inside, residual)
            weight = weight - 0.5 * torch.logdet(inside)
        weights.append(float(weight))
        cdfs.append(float(special.ndtr(float((y - mean) / var.sqrt()))))
    return float(special.softmax(weights) @ cdfs)


def rosenblatt(base, y):
    """Map a point to the cube, coordinate by coordinate."""
    return [conditional_cdf(*base, y[:d], y[d]) for d in range(len(y))]


def inverse_rosenblatt(base, u, near):
    """Solve for the point whose conditional CDFs are u."""
    y = torch.empty(0, dtype=torch.float64)
    for d, level in enumerate(u):
        root = optimize.brentq(
            lambda t, y=y, level=level: conditional_cdf(*base, y, t) - level,
            float(near[d]) - 1,
            float(near[d]) + 1,
            xtol=1e-14,
            rtol=1e-14,
        )
        y = torch.cat([y, torch.tensor([root], dtype=torch.float64)])
    return y


@pytest.mark.parametrize(("dim", "components"), [(1, 2), (3, 2)])
def test_draws_move_with_the_parameters_at_constant_cdf(dim, components):
    base = parameters(dim, components, (1.5, 1.5, 1.5), seed=4)
    leaves = [p.clone().requires_grad_() for p in base]
    points = GaussianMixture(*leaves).rsample((3,), generator=1)
    step = 1e-5
    for point in points:
        u = rosenblatt(base, point.detach())
        gradients = [torch.autograd.grad(v, leaves, retain_graph=True) for v in point]
        found = torch.stack([lower(g) for g in gradients])
        slopes = []
        for p, parameter in enumerate(base):
            kept = torch.ones_like(parameter).tril() if p == 2 else torch.ones_like(parameter)
            columns = []
            for place in kept.nonzero():
                ends = []
                for sign in (1, -1):
                    moved = [q.clone() for q in base]
                    moved[p][tuple(place)] += sign * step
                    ends.append(inverse_rosenblatt(moved, u, point.detach()))
                columns.append((ends[0] - ends[1]) / (2 * step))
            slopes.append(torch.stack(columns, -1))
        # Central differences: truncation ~ step^2, solver tolerance / step ~ 1e-9.
        torch.testing.assert_close(found, torch.cat(slopes, -1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_conditional_cdfs_of_draws_are_uniform(layout):
    base = parameters(3, 2, LAYOUTS[layout])
    points = GaussianMixture(*base).sample((500,), generator=2)
    u = torch.tensor([rosenblatt(base, y) for y in points])
    for d in range(3):
        assert stats.kstest(u[:, d].numpy(), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("gap", [0.0, 1.0, 10.0, 1e4])
@pytest.mark.parametrize("dim", [1, 2, 4])
def test_float32_gradients_stay_finite(dim, gap):
    g = torch.Generator().manual_seed(0)
    factor = 1e-3 * random_factor(5, 3, dim, generator=g).float()
    diagonal = factor.diagonal(dim1=-2, dim2=-1)
    diagonal[..., -1] = 1e-3  # the last coordinate is nearly determined by the others
    factor = factor + 0.5 * torch.ones(dim, dim).tril(-1)
    loc = gap * torch.arange(3.0).reshape(3, 1).expand(5, 3, dim)
    logits = torch.tensor([0.0, -3.0, -10.0]).expand(5, 3)
    given = [p.clone().requires_grad_() for p in (logits, loc, factor)]
    points = GaussianMixture(*given).rsample((200,), generator=0)
    for gradient in torch.autograd.grad(points.square().sum(), given):
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("gap", [0.5, 3.0, 6.0])
def test_float32_gradients_agree_with_float64(gap):
    base = parameters(3, 2, (gap, gap, gap))
    points = GaussianMixture(*base).sample((50,), generator=0).float()
    found = []
    for dtype in (torch.float32, torch.float64):
        leaves = [p.float().to(dtype).requires_grad_() for p in base]
        logits = torch.log_softmax(leaves[0], -1)
        moved = attach_implicit_gradient(logits, *leaves[1:], points.to(dtype))
        found.append(lower(torch.autograd.grad(torch.cos(moved).sum(), leaves)).double())
    # Relative to the largest entry: 100 roundings of float32.
    assert (found[0] - found[1]).abs().max() < 1e-5 * found[1].abs().max()


@pytest.mark.parametrize("gap", [1.0, 10.0])
def test_float32_gradients_of_narrow_components(gap):
    # Components that agree in the first target, and are narrow and far apart in the second: the
    # density of the second coordinate is huge, and must not wash out that of the first.
    found = []
    for dtype in (torch.float32, torch.float64):
        logits = torch.full((1, 2), 0.5, dtype=dtype).log().requires_grad_()
        loc = torch.tensor([[[0.0, 0.0], [1e-4, gap]]], dtype=dtype, requires_grad=True)
        factor = (1e-3 * torch.eye(2, dtype=dtype)).expand(1, 2, 2, 2).clone().requires_grad_()
        dist = GaussianMixture(logits.float(), loc.float(), factor.float())
        points = dist.sample((20,), generator=3)
        moved = attach_implicit_gradient(logits, loc, factor, points.to(dtype))
        found.append(torch.autograd.grad(moved[..., 1].sum(), loc)[0].double())
    assert (found[0] - found[1]).abs().max() < 1e-3 * found[1].abs().max()
