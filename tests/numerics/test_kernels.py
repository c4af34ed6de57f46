"""Kernels against their plain forms, and graphs against eager training. Needs a GPU:

python -m pytest --noconftest -m gpu tests/numerics/test_kernels.py
"""

import pytest
import torch

from prerank.distributions import densities, reparameterisation
from prerank.distributions.noise import RunNoise
from prerank.models import MixtureNetwork
from prerank.numerics import comparisons, matrices
from prerank.numerics.matrices import symmetric_eigen
from prerank.penalty import CalibrationPenalty
from prerank.preranks import PAPER, Custom
from prerank.training import Objective, Run, Settings, Trainer, TrainingData

pytestmark = pytest.mark.gpu

# Targets, components, draws, rows: one of each, the usual ones, no powers of two, many draws.
SIZES = [(1, 1, 5, 3), (2, 5, 100, 50), (3, 2, 33, 7), (4, 5, 100, 64), (6, 10, 257, 9)]
# Rounding of sums of a few hundred terms.
ERRORS = {torch.float32: 1e-5, torch.float64: 1e-13}
by_size = pytest.mark.parametrize("size", SIZES, ids=str)
by_dtype = pytest.mark.parametrize("dtype", ERRORS, ids=str)


@pytest.fixture
def normal(dtype):
    generator = torch.Generator("cuda").manual_seed(0)
    return lambda *shape: torch.randn(shape, dtype=dtype, device="cuda", generator=generator)


def factors(normal, *shape):
    """Lower triangular matrices, not far from the identity."""
    matrix = 0.3 * normal(*shape, shape[-1]).tril(-1)
    return matrix + torch.diag_embed(0.3 + normal(*shape).abs())


def with_gradients(function, tensors):
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    found = function(*leaves)
    parts = found if isinstance(found, tuple) else (found,)
    ramps = (torch.linspace(-1, 1, p.numel(), dtype=p.dtype, device="cuda") for p in parts)
    value = sum((part.flatten() * ramp).sum() for part, ramp in zip(parts, ramps, strict=True))
    return *parts, *torch.autograd.grad(value, leaves)


def check(monkeypatch, module, function, tensors):
    monkeypatch.setattr(module, "available", lambda t: True)
    ours = with_gradients(function, tensors)
    monkeypatch.setattr(module, "available", lambda t: False)
    plain = with_gradients(function, tensors)
    error = ERRORS[tensors[0].dtype]
    for a, b in zip(ours, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=error * float(b.detach().abs().max()))


@by_dtype
@by_size
def test_density(monkeypatch, normal, dtype, size):
    dim, components, draws, rows = size
    logits = torch.log_softmax(normal(rows, components), -1)
    tensors = (
        logits,
        normal(rows, components, dim),
        factors(normal, rows, components, dim),
        normal(rows, dim, draws),
    )
    check(monkeypatch, densities, densities.mixture_log_density, tensors)


@by_dtype
@by_size
def test_placement(monkeypatch, normal, dtype, size):
    dim, components, draws, rows = size
    component = torch.randint(components, (rows, draws), device="cuda")
    noise = normal(rows, dim, draws)
    tensors = (
        normal(rows, components, dim),
        factors(normal, rows, components, dim),
        normal(rows, components),
    )

    def function(loc, factor, ratio):
        return reparameterisation.place_columns(loc, factor, ratio, component, noise)

    check(monkeypatch, reparameterisation, function, tensors)


@by_dtype
@by_size
def test_triangular_inverse(monkeypatch, normal, dtype, size):
    tensors = (factors(normal, size[-1], size[1], size[0]),)
    check(monkeypatch, matrices, matrices.triangular_inverse, tensors)


@by_dtype
@by_size
def test_dominance(monkeypatch, normal, dtype, size):
    dim, _, draws, rows = size
    references = 1 + draws // 4
    tensors = (
        5 * normal(draws, rows, dim),
        5 * normal(references, rows, dim),
        normal(references, rows).abs(),
    )
    check(monkeypatch, comparisons, comparisons.soft_dominance, tensors)


@by_dtype
@by_size
def test_ranking(monkeypatch, normal, dtype, size):
    components, _, draws, rows = size
    weights = torch.softmax(normal(draws, rows), 0)
    width = 0.1 + normal(rows, components).abs()

    def function(values, weights):
        return comparisons.smooth_rank(values, weights, width)

    check(monkeypatch, comparisons, function, (normal(draws + 1, rows, components), weights))


@by_dtype
@pytest.mark.parametrize("dim", [1, 2, 3, 4, 6, 14, 16, 32])
def test_eigenvectors(normal, dtype, dim):
    root = normal(500, dim, 2 * dim)
    matrices = torch.cat(
        [
            root @ root.mT,
            torch.eye(dim, dtype=dtype, device="cuda").expand(3, dim, dim),
            torch.zeros(1, dim, dim, dtype=dtype, device="cuda"),
            root[:5, :, :1] @ root[:5, :, :1].mT,  # of rank one
        ]
    )
    values, vectors = symmetric_eigen(matrices)
    assert (values.diff(dim=-1) <= 0).all()
    error = 10 * ERRORS[dtype]
    largest = matrices.abs().amax((-2, -1), keepdim=True).clamp_min(1)
    again = (vectors.mT * values.unsqueeze(-2)) @ vectors
    assert ((again - matrices) / largest).abs().max() < error * dim
    unit = torch.eye(dim, dtype=dtype, device="cuda")
    assert (vectors @ vectors.mT - unit).abs().max() < error


@by_dtype
@pytest.mark.parametrize("kind", ["uniform", "normal"])
@pytest.mark.parametrize("count", [1, 7, 1000, 100_001])
@pytest.mark.parametrize("step", [0, 3, torch.tensor(12_345)], ids=str)
def test_noise_is_that_of_the_cpu(dtype, kind, count, step):
    seeds = torch.tensor([0, 5, 2**40, -3])
    moved = step.cuda() if isinstance(step, torch.Tensor) else step
    host = getattr(RunNoise(seeds, step), kind)((count,), dtype)
    device = getattr(RunNoise(seeds.cuda(), moved), kind)((count,), dtype)
    torch.testing.assert_close(
        device.cpu(), host, rtol=0, atol=3e-6 if dtype.itemsize < 8 else 1e-14
    )


def training(data, form, label, *, graphs):
    waits = Custom(lambda y: y.amax(-1) + 0 * y.sum().item(), "waits")
    penalty = form(waits if label == "waits" else label, n_samples=20)
    trainer = Trainer(
        MixtureNetwork(5, 3, hidden=(16,)),
        data,
        [Run(seed, 0, 3.0) for seed in range(4)],
        objective=Objective(penalty),
        settings=Settings(lr=0.01, patience=2, max_epochs=8, min_steps=9),
        graphs=graphs,
    )
    for _ in range(6):
        trainer.step()
    recorded = trainer.recorded
    while not trainer.done:
        trainer.step()
    return recorded, trainer.result()


@pytest.mark.parametrize("form", [CalibrationPenalty, CalibrationPenalty.published])
@pytest.mark.parametrize("label", [*(p.label for p in PAPER), "pca(0.8)+hdr", "waits"])
def test_graphs_change_nothing(form, label):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(600, 5, generator=generator)
    y = x[:, :3] + torch.randn(600, 3, generator=generator)
    rows = torch.arange(600)
    data = TrainingData.build(x, y, [(rows[:400], rows[400:])], dtype=torch.float64, device="cuda")
    recorded, ours = training(data, form, label, graphs=True)
    assert recorded == (label != "waits")
    eager, theirs = training(data, form, label, graphs=False)
    assert not eager
    assert torch.equal(ours.theta, theirs.theta)
    assert torch.equal(ours.epochs, theirs.epochs)
    assert torch.equal(ours.history.nan_to_num(), theirs.history.nan_to_num())
