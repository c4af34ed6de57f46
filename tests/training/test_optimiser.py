"""Adam on a matrix of runs is torch's Adam on each of them."""

import pytest
import torch

from prerank.training.state import Adam

F64 = torch.float64
RUNS, SIZE, STEPS = 4, 7, 50


def gradients(dtype=F64):
    """Gradients of very different sizes, `(steps, runs, size)`."""
    g = torch.Generator().manual_seed(0)
    size = 10.0 ** torch.linspace(-4, 4, RUNS, dtype=F64)[:, None]
    drift = torch.randn(RUNS, SIZE, generator=g, dtype=F64)
    return (size * (drift + torch.randn(STEPS, RUNS, SIZE, generator=g, dtype=F64))).to(dtype)


def start(dtype=F64):
    g = torch.Generator().manual_seed(1)
    return torch.randn(RUNS, SIZE, generator=g, dtype=F64).to(dtype)


def torch_adam(theta, sequence, lr, bound):
    """One run through torch.optim.Adam, with the whole gradient clipped by its norm."""
    parameter = torch.nn.Parameter(theta.clone())
    adam = torch.optim.Adam([parameter], lr=lr)
    for gradient in sequence:
        parameter.grad = gradient.clone()
        if bound is not None:
            torch.nn.utils.clip_grad_norm_([parameter], bound)
        adam.step()
    return parameter.detach()


def ours(theta, sequence, lr=0.01, bound=1e30):
    adam = Adam.start(theta.clone())
    for gradient in sequence:
        adam.update(gradient, lr=lr, bound=bound)
    return adam


@pytest.mark.parametrize("lr", [1e-3, 0.1])
def test_equals_torch(lr):
    found = ours(start(), gradients(), lr=lr, bound=1e30).theta
    expected = torch.stack(
        [torch_adam(start()[m], gradients()[:, m], lr, None) for m in range(RUNS)]
    )
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bound", [0.5, 10.0, 1000.0])
def test_clipping_equals_torch(bound):
    found = ours(start(), gradients(), bound=bound).theta
    expected = torch.stack(
        [torch_adam(start()[m], gradients()[:, m], 0.01, bound) for m in range(RUNS)]
    )
    # torch divides by the norm plus 1e-6.
    torch.testing.assert_close(found, expected, rtol=0, atol=0.01 * STEPS * 1e-5 / bound)


def test_the_bound_holds_run_by_run():
    adam = Adam.start(torch.zeros(3, 2, dtype=F64))
    gradient = torch.tensor([[3.0, 4.0], [30.0, 40.0], [0.0, 0.0]], dtype=F64)
    adam.update(gradient, lr=1.0, bound=10.0)
    expected = 0.1 * torch.tensor([[3.0, 4.0], [6.0, 8.0], [0.0, 0.0]], dtype=F64)
    torch.testing.assert_close(adam.first, expected)
    torch.testing.assert_close(adam.second, 0.1 * expected.square(), rtol=1e-12, atol=0)
    # The first step of Adam has the length of the learning rate, where there is a gradient.
    torch.testing.assert_close(adam.theta[:2], -torch.ones(2, 2, dtype=F64), rtol=1e-7, atol=0)
    assert not adam.theta[2].any()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("bound", [1.0, 1e30])
def test_a_gradient_that_is_not_finite_stops_its_own_run_for_a_step(bad, bound):
    clean = gradients()
    spoiled = clean.clone()
    spoiled[10, 1, 3] = bad
    spoiled[0, 2, 0] = bad
    found, reference = ours(start(), spoiled, bound=bound), ours(start(), clean, bound=bound)
    for name in ("theta", "first", "second", "steps"):
        value, expected = getattr(found, name), getattr(reference, name)
        assert torch.isfinite(value).all()
        assert torch.equal(value[[0, 3]], expected[[0, 3]])
    for run, skipped in ((1, 10), (2, 0)):
        kept = [step for step in range(STEPS) if step != skipped]
        alone = ours(start()[run : run + 1], clean[kept][:, run : run + 1], bound=bound)
        assert torch.equal(found.theta[run], alone.theta[0])
        assert found.steps[run] == STEPS - 1


def test_a_run_that_never_has_a_gradient_stays():
    theta = start()
    found = ours(theta, torch.full((3, RUNS, SIZE), torch.nan, dtype=F64))
    assert torch.equal(found.theta, theta)
    assert not found.steps.any()


def test_float32():
    found = ours(start(torch.float32), gradients(torch.float32), bound=10.0)
    assert {getattr(found, name).dtype for name in ("theta", "first", "second")} == {torch.float32}
    exact = ours(start(), gradients(), bound=10.0).theta
    # 50 steps of at most 0.01, each with a relative error of some 2^-22.
    torch.testing.assert_close(found.theta.double(), exact, rtol=0, atol=5e-6)


def test_a_run_does_not_see_the_others():
    together = ours(start(), gradients(), bound=3.0)
    for m in range(RUNS):
        alone = ours(start()[m : m + 1], gradients()[:, m : m + 1], bound=3.0)
        assert torch.equal(together.theta[m], alone.theta[0])


def test_select():
    sequence = gradients()
    rows = torch.tensor([3, 1])
    adam = ours(start(), sequence[:20])
    kept = adam.select(rows)
    before = adam.theta.clone()
    for gradient in sequence[20:]:
        kept.update(gradient[rows], lr=0.01, bound=1e30)
    whole = ours(start(), sequence)
    for name in ("theta", "first", "second", "steps"):
        assert torch.equal(getattr(kept, name), getattr(whole, name)[rows])
    assert torch.equal(adam.theta, before)  # the selection is a copy
