"""Kernels for CPUs against their plain forms. They need numba: `make test-compiled`."""

import os
import subprocess
import sys
from functools import partial

import pytest
import torch
from torch.distributions import Independent, MultivariateNormal, Normal

from prerank.calibration.curves import level_counts
from prerank.distributions import Draws, GaussianMixture, RunNoise
from prerank.distributions.draws import Sweep, draw_sweep
from prerank.distributions.noise import row_uniform
from prerank.files import versions
from prerank.models import MixtureNetwork
from prerank.numerics.kernels import numba_kernels
from prerank.penalty import CalibrationPenalty
from prerank.pits.compiled_ranks import compiled_rank, kernel_applies
from prerank.pits.row_units import Frame
from prerank.pits.smooth import _smoothed, smooth_pit, smooth_pits
from prerank.preranks import HDR, Scale, parse
from prerank.training import Objective, Run, Settings, Trainer, TrainingData

if "numba" not in os.environ.get("PRERANK_REQUIRED", "").split():
    pytest.importorskip("numba", reason="numba is not installed: make test-compiled")

PRERANKS = ["scale", "hdr", "copula", "dependency", "dependency(2)", "multivariate_rank"]
# Targets, components, draws and the batch: the usual ones, one of each, stacks, few and many.
SIZES = [
    (4, 5, 100, (64,)),
    (3, 1, 2, (5,)),
    (3, 2, 3, (1,)),
    (4, 3, 100, (3, 20)),
    (6, 8, 257, (9,)),
    (16, 5, 100, (2, 7)),
    (5, 12, 1000, (4,)),
    (3, 3, 64, (2, 2, 3)),
]


@pytest.fixture(autouse=True)
def on(monkeypatch):
    monkeypatch.setenv("PRERANK_COMPILED", "1")


def parameters(dim, components, batch, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*batch, components, *shape, generator=generator)

    factor = 0.3 * normal(dim, dim).tril(-1) + torch.diag_embed(0.3 + normal(dim).abs())
    observed = 1.5 * torch.randn(*batch, dim, generator=generator)
    return [normal(), normal(dim), factor], observed


def gradients_of(z, leaves):
    """Of a sum with weights of their own, to all parameters."""
    ramp = torch.linspace(-1, 1, z.numel(), dtype=z.dtype).reshape(z.shape)
    *gradients, factor = torch.autograd.grad((z * ramp).sum(), leaves)
    return [z.detach(), *gradients, factor.tril()]


def ranks(monkeypatch, compiled, leaves, observed, term, n, *, noise=3, dist=GaussianMixture):
    """PITs and gradients, as users get them."""
    monkeypatch.setenv("PRERANK_COMPILED", str(int(compiled)))
    leaves = [tensor.detach().clone().requires_grad_() for tensor in leaves]
    z = smooth_pit(dist(*leaves), observed, term, n_samples=n, generator=noise)
    return gradients_of(z, leaves)


def both(monkeypatch, *arguments, **options):
    return [ranks(monkeypatch, on, *arguments, **options) for on in (True, False)]


def check(ours, plain, error=2e-4):
    """Both are in float32, and comparisons as sharp as 100 multiply what rounding does to T."""
    for a, b in zip(ours, plain, strict=True):
        assert (a - b).abs().max() <= error * b.abs().max()


def three_forms(leaves, observed, name, n):
    """PITs and gradients of the kernel, of the plain form, and of the plain form in float64.

    All from the same noise, with the kernel called by itself.
    """
    [term] = parse(name)
    source = torch.Generator().manual_seed(1)
    sweep = draw_sweep(GaussianMixture(*leaves, validate_args=False), n, source)
    state = source.get_state()

    def form(dtype, compiled):
        tensors = [tensor.detach().to(dtype).requires_grad_() for tensor in leaves]
        dist = GaussianMixture(*tensors, validate_args=False)
        noise = Sweep(*(tensor.to(dtype) for tensor in sweep))
        at = Frame(dist, observed.to(dtype), lambda: Draws(*dist.stratify(*noise)))
        source.set_state(state)
        plain = partial(_smoothed, prerank=term, tau=100.0, widths=None, noise=source)
        if compiled:
            assert kernel_applies(at, term, n)
            return gradients_of(compiled_rank(at, term, noise, source, 100.0, plain), tensors)
        ties = row_uniform(n - (n + 3) // 4 + 1, dist.batch_shape, like=leaves[0], noise=source)
        return gradients_of(plain(at, ties=ties.to(dtype)), tensors)

    return form(torch.float32, True), form(torch.float32, False), form(torch.float64, False)


def check_forms(ours, plain, exact):
    """Comparisons are as sharp as 100, so rounding T moves ranks and slopes in any form."""
    for a, b, c in zip(ours, plain, exact, strict=True):
        size = c.abs().max()
        assert (a - c).abs().max() <= 8 * (b - c).abs().max() + 5e-5 * size


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("term", PRERANKS)
def test_values_and_gradients(term, size):
    dim, components, draws, batch = size
    check_forms(*three_forms(*parameters(dim, components, batch), term, draws))


def test_users_get_the_kernel(monkeypatch):
    leaves, observed = parameters(4, 5, (64,))
    for term in PRERANKS:
        ours, plain = both(monkeypatch, leaves, observed, term, 100)
        check(ours, plain)
        assert not torch.equal(ours[1], plain[1])


def test_one_target():
    leaves, observed = parameters(1, 3, (40,))
    for term in ("hdr", "copula"):
        check_forms(*three_forms(leaves, observed, term, 100))


@pytest.mark.parametrize("term", PRERANKS)
@pytest.mark.parametrize("case", ["lopsided", "unused", "far", "narrow", "unequal", "together"])
def test_extremes(term, case):
    (logits, loc, factor), observed = parameters(4, 3, (50,))
    if case == "lopsided":
        logits = 30 * logits
    elif case == "unused":
        logits[:, 0] = -200.0
    elif case == "far":
        observed = observed + 1e3
    elif case == "narrow":
        factor = 1e-3 * factor
    elif case == "unequal":
        factor = factor * torch.tensor([1e-2, 1.0, 1e2])[:, None, None]
    else:
        loc = loc[:, :1].expand_as(loc).clone()
    leaves = [logits, loc, factor]
    check_forms(*three_forms(leaves, observed, term, 100))


@pytest.mark.parametrize("term", PRERANKS)
@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12, 1e30])
def test_units(monkeypatch, term, scale):
    (logits, loc, factor), observed = parameters(3, 3, (50,))
    leaves = [logits, scale * loc, scale * factor]
    # Log-densities of hundreds have fewer digits behind the point.
    check(*both(monkeypatch, leaves, scale * observed, term, 100), error=1e-3)


@pytest.mark.parametrize("term", ["scale", "dependency", "copula"])
@pytest.mark.parametrize("offset", [0.0, 1e-3])
def test_equal_samples(term, offset):
    (logits, loc, factor), observed = parameters(3, 2, (20,))
    point = torch.ones_like(loc)  # to which all draws are rounded
    ours, plain, _ = three_forms(
        [logits, point, 1e-12 * factor], point[:, 0] + offset * observed, term, 100
    )
    check(ours[:1], plain[:1])
    for z, *gradients in (ours, plain):
        assert ((z >= 0) & (z <= 1)).all()
        assert all(torch.isfinite(g).all() for g in gradients)


@pytest.mark.parametrize("term", ["scale", "hdr", "copula"])
def test_what_is_not_a_number_stays_so(term):
    leaves, observed = parameters(3, 2, (6,))
    leaves[1][2, 0, 1] = torch.nan
    for z, to_logits, to_loc, to_factor in three_forms(leaves, observed, term, 100):
        assert z.isnan().flatten().tolist() == [row == 2 for row in range(6)]
        assert to_loc[2].isnan().any()
        others = [0, 1, 3, 4, 5]
        assert all(torch.isfinite(g[others]).all() for g in (to_logits, to_loc, to_factor))


@pytest.mark.parametrize("term", PRERANKS)
def test_without_gradients_the_values_are_the_same(monkeypatch, term):
    leaves, observed = parameters(4, 3, (30,))
    z = ranks(monkeypatch, True, leaves, observed, term, 100)[0]
    with torch.no_grad():
        again = smooth_pit(GaussianMixture(*leaves), observed, term, n_samples=100, generator=3)
    assert torch.equal(z, again)


@pytest.mark.parametrize("term", PRERANKS)
def test_a_run_is_the_same_in_every_stack(monkeypatch, term):
    leaves, observed = parameters(4, 3, (3, 30))
    seeds = torch.tensor([5, 6, 7])
    monkeypatch.setenv("PRERANK_COMPILED", "1")

    def pits(member):
        dist = GaussianMixture(*(tensor[member] for tensor in leaves))
        noise = RunNoise(seeds[member], step=2)
        return smooth_pit(dist, observed[member], term, generator=noise)

    together = pits(slice(0, 3))
    for member in range(3):
        assert torch.equal(pits(slice(member, member + 1))[0], together[member])


def test_one_set_of_draws_serves_every_kind_of_term(monkeypatch):
    leaves, observed = parameters(3, 3, (40,))
    median = parse(lambda y: y.median(-1).values)[0]
    alone = ranks(monkeypatch, True, leaves, observed, [HDR()], 100)[0]
    for terms in ([median, HDR(), Scale()], [HDR(), Scale(), median]):
        ours, plain = both(monkeypatch, leaves, observed, terms, 100)
        check(ours, plain)
        assert torch.equal(ours[0][..., terms.index(HDR())], alone[..., 0])


class Other(GaussianMixture):
    """A mixture that is not quite one: its methods may mean something else."""


class OtherScale(Scale):
    """A pre-rank that is derived from one that has a kernel."""


def test_the_plain_form_where_the_kernel_does_not_apply(monkeypatch):
    leaves, observed = parameters(3, 3, (40,))
    double = [tensor.double() for tensor in leaves]
    cases = [
        (double, observed.double(), "scale", 100, {}),
        (leaves, observed, "scale", 1100, {}),
        (leaves, observed, "scale", 100, {"dist": Other}),
        (leaves, observed, OtherScale(), 100, {}),
        (leaves, observed.clone().requires_grad_(), "scale", 100, {}),
    ]
    for tensors, points, term, draws, options in cases:
        ours, plain = both(monkeypatch, tensors, points, term, draws, **options)
        assert torch.equal(ours[1], plain[1])


def test_a_mapped_function_takes_the_plain_form(monkeypatch):
    leaves, observed = parameters(3, 2, (2, 20))

    def pits(*tensors):
        *tensors, points = tensors
        dist = GaussianMixture(*tensors, validate_args=False)
        return smooth_pit(dist, points, "scale", generator=1)[..., 0]

    def mean(*tensors):
        *tensors, points = tensors
        dist = GaussianMixture(*tensors, validate_args=False)
        [part] = smooth_pits(dist, points, parse("scale"), generator=1)
        return part.z.mean()

    mapped = torch.func.grad(mean)(*leaves, observed)
    leaves[0].requires_grad_()
    wanted = torch.autograd.grad(pits(*leaves, observed).mean(), leaves[0])[0]
    check([mapped], [wanted])


@pytest.mark.parametrize("term", ["scale", "hdr", "copula"])
def test_gradients_of_gradients(monkeypatch, term):
    leaves, observed = parameters(3, 2, (10,))
    found = []
    for on in (True, False):
        monkeypatch.setenv("PRERANK_COMPILED", str(int(on)))
        tensors = [tensor.clone().requires_grad_() for tensor in leaves]
        z = smooth_pit(GaussianMixture(*tensors), observed, term, tau=3.0, generator=1)
        slopes = torch.autograd.grad(z.sum(), tensors[:2], create_graph=True)
        found.append(torch.autograd.grad(sum(s.square().sum() for s in slopes), tensors[:2]))
    check(*found)


@pytest.mark.parametrize("family", ["normal", "multivariate"])
def test_other_families_are_not_touched(monkeypatch, family):
    loc, observed = torch.randn(20, 3), torch.randn(20, 3)
    normal = Independent(Normal(loc, 1.0), 1)
    dist = normal if family == "normal" else MultivariateNormal(loc, torch.eye(3))
    found = []
    for on in "10":
        monkeypatch.setenv("PRERANK_COMPILED", on)
        found.append(smooth_pit(dist, observed, "scale+copula", generator=0))
    assert torch.equal(*found)


@pytest.mark.parametrize("shape", [(256, 1), (3, 50, 4), (2, 9000, 1)], ids=str)
def test_counts_by_level(monkeypatch, shape):
    z = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    found = []
    for on in "10":
        monkeypatch.setenv("PRERANK_COMPILED", on)
        leaf = z.clone().requires_grad_()
        counts = level_counts(leaf, 100, 100.0)
        ramp = torch.linspace(-1, 1, counts.numel()).reshape(counts.shape)
        found.append([counts.detach(), *torch.autograd.grad((counts * ramp).sum(), leaf)])
    check(*found, error=2e-6)


@pytest.mark.parametrize("count", [1, 2, 1001, 100_000])
@pytest.mark.parametrize("step", [0, 7, 2**40])
def test_noise_is_the_same_bit_for_bit(monkeypatch, count, step):
    found = []
    for on in "10":
        monkeypatch.setenv("PRERANK_COMPILED", on)
        noise = RunNoise(torch.tensor([-3, 12342, 2**62]), step)
        found.append(torch.cat([noise.uniform((count,)), noise.normal((count,))]))
    assert torch.equal(*found)


@pytest.mark.parametrize("term", ["scale", "marginal+hdr", "copula"])
def test_first_steps_of_a_training(monkeypatch, term):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(200, 5, generator=generator), torch.randn(200, 3, generator=generator)
    data = TrainingData.build(x, y, [(torch.arange(128), torch.arange(128, 200))])
    found = []
    for on in "10":
        monkeypatch.setenv("PRERANK_COMPILED", on)
        trainer = Trainer(
            MixtureNetwork(5, 3, 2, hidden=(8,)),
            data,
            [Run(seed=seed, strength=5.0) for seed in (1, 2)],
            objective=Objective(CalibrationPenalty(term, n_samples=50)),
            settings=Settings(batch_size=64, min_steps=10**9),
        )
        for _ in range(3):
            trainer.step()
        found.append(trainer.theta.clone())
    # Later on the training itself multiplies the last digits, in whatever form.
    assert (found[0] - found[1]).abs().max() < 1e-5


def test_the_kernels_can_be_switched_off_and_results_say_that_they_were_used(monkeypatch):
    assert numba_kernels() is not None
    assert "numba" in versions()
    monkeypatch.setenv("PRERANK_COMPILED", "0")
    assert numba_kernels() is None


def test_settings_in_the_current_folder_switch_the_kernels_off(tmp_path):
    """They may name a folder of pickled machine code."""
    look = "from prerank.numerics.kernels import numba_kernels; print(numba_kernels() is None)"
    for name, off in (("other.yaml", "False"), (".numba_config.yaml", "True")):
        (tmp_path / name).write_text("cache_dir: theirs\n")
        done = subprocess.run(
            [sys.executable, "-c", look], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == off
