"""Noise of runs: a function of seed, step, stream and position, and no different from chance."""

import numpy as np
import pytest
import torch
from scipy import stats

from prerank.distributions import draw, draw_differentiable
from prerank.distributions.noise import RunNoise, as_noise, row_normal, row_uniform
from prerank.errors import InputTypeError, ShapeError
from truths import gaussian_mixture, multivariate_normal, student_copula

F64 = torch.float64
SEEDS = torch.tensor([0, 1, 2, 41, 2**31 - 1, 2**62, -5])
KINDS = ["uniform", "normal"]


def values(kind, seeds, step, count, *, stream=0, dtype=F64):
    """Value 0..count-1 of one stream: `(M, count)`."""
    noise = RunNoise(torch.as_tensor(seeds), step)
    for _ in range(stream):
        noise.uniform((1,))
    return getattr(noise, kind)((count,), dtype)


# --- what noise depends on -------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(5,), (1, 7), (3, 4), (3, 4, 5)])
def test_a_run_does_not_see_the_others(kind, shape):
    together = getattr(RunNoise(SEEDS, 3), kind)(shape, F64)
    assert together.shape == (len(SEEDS), *shape)
    for m, seed in enumerate(SEEDS):
        alone = getattr(RunNoise(seed[None], 3), kind)(shape, F64)
        assert torch.equal(together[m], alone[0])
    order = torch.tensor([4, 2, 0])
    subset = getattr(RunNoise(SEEDS[order], 3), kind)(shape, F64)
    assert torch.equal(subset, together[order])


def test_equal_seeds_get_equal_noise():
    found = RunNoise(torch.tensor([7, 8, 7]), 0).normal((4, 5))
    assert torch.equal(found[0], found[2])
    assert not torch.equal(found[0], found[1])


@pytest.mark.parametrize("kind", KINDS)
def test_what_other_runs_draw_does_not_matter(kind):
    first = RunNoise(torch.tensor([3]), 5)
    before = getattr(first, kind)((2, 10), F64)
    other = RunNoise(torch.tensor([4]), 5)
    other.normal((100,))
    torch.rand(17)
    again = RunNoise(torch.tensor([3]), 5)
    assert torch.equal(getattr(again, kind)((2, 10), F64), before)


def test_streams_are_numbered_by_calls():
    noise = RunNoise(torch.tensor([3]), 5)
    sizes = [(2,), (30, 2), (1,)]
    one, two, three = (noise.uniform(size, F64) for size in sizes)
    assert torch.equal(values("uniform", [3], 5, 60, stream=1).flatten(), two.flatten())
    assert torch.equal(values("uniform", [3], 5, 1, stream=2).flatten(), three.flatten())
    assert not torch.equal(one.flatten()[:1], three.flatten())


def test_a_longer_stream_begins_like_a_shorter_one():
    assert torch.equal(values("uniform", SEEDS, 0, 1000)[:, :300], values("uniform", SEEDS, 0, 300))


@pytest.mark.parametrize("step", [0, 1, 12345, 2**40])
def test_step_may_be_a_tensor(step):
    number = torch.tensor(step)
    noise = RunNoise(SEEDS, number)
    assert torch.equal(noise.uniform((5,)), RunNoise(SEEDS, step).uniform((5,)))
    number += 1
    assert torch.equal(
        RunNoise(SEEDS, number).uniform((5,)), RunNoise(SEEDS, step + 1).uniform((5,))
    )


@pytest.mark.parametrize("step", [0, 1, 10**6])
def test_dtype_only_rounds(step):
    double, single = (values("uniform", SEEDS, step, 10_000, dtype=t) for t in (F64, torch.float32))
    # Rounding an int32 to 24 bits errs by 2^-26 of its range, the sum by another 2^-25.
    assert (double - single.double()).abs().max() <= 2.0**-24
    assert single.dtype == torch.float32
    normal, rounded = (values("normal", SEEDS, step, 10_000, dtype=t) for t in (F64, torch.float32))
    # Away from the point where the logarithm magnifies the rounding of a uniform near 0 or 1.
    usual = (normal.abs() > 0.01) & (normal.abs() < 4)
    assert (normal - rounded.double())[usual].abs().max() < 1e-3


def test_default_dtype():
    assert RunNoise(SEEDS, 0).uniform((2,)).dtype == torch.get_default_dtype()
    assert RunNoise(SEEDS, 0).normal((2,), F64).dtype == F64


# --- is it noise? ----------------------------------------------------------------------------

COUNT = 200_000
# A p-value below 1e-4 would come up once in some hundred runs of all these tests; seeds are fixed.
ALPHA = 1e-4
SOURCES = [(0, 0, 0), (0, 1, 0), (1, 0, 0), (0, 0, 1), (2**62, 10**9, 3), (-1, 7, 0)]
by_source = pytest.mark.parametrize("source", SOURCES, ids=str)


@by_source
def test_uniform(source):
    seed, step, stream = source
    found = values("uniform", [seed], step, COUNT, stream=stream)[0].numpy()
    assert found.min() > 0
    assert found.max() < 1
    assert stats.kstest(found, "uniform").pvalue > ALPHA
    assert stats.chisquare(np.histogram(found, 1000, (0, 1))[0]).pvalue > ALPHA
    # The last bits too: a multiplicative hash is weakest there.
    low = (found * 2.0**32).astype(np.int64) % 256
    assert stats.chisquare(np.bincount(low, minlength=256)).pvalue > ALPHA


@by_source
def test_serial_pairs(source):
    seed, step, stream = source
    found = values("uniform", [seed], step, COUNT, stream=stream)[0].numpy()
    for lag in (1, 2, 3, 4, 16, 100, 256, 1024, COUNT // 2):
        first, second = found[:-lag], found[lag:]
        pairs = np.histogram2d(first, second, 20, [[0, 1], [0, 1]])[0].ravel()
        # Pairs that overlap are dependent, which hardly moves the statistic of the whole table.
        assert stats.chisquare(pairs).pvalue > ALPHA, lag
        assert abs(np.corrcoef(first, second)[0, 1]) < 5 / len(first) ** 0.5, lag


@by_source
def test_normal(source):
    seed, step, stream = source
    found = values("normal", [seed], step, COUNT, stream=stream)[0].numpy()
    assert stats.kstest(found, "norm").pvalue > ALPHA
    # Moments within 5 standard errors; Var(x^k) = m_{2k} - m_k^2 with m_2, m_4, m_6, m_8 =
    # 1, 3, 15, 105.
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((found**power).mean() - mean) < 5 * (variance / COUNT) ** 0.5
    # The two halves come from the same radii: they must be independent all the same.
    half = COUNT // 2
    for power in (1, 2):
        a, b = found[:half] ** power, found[half:] ** power
        assert abs(np.corrcoef(a, b)[0, 1]) < 5 / half**0.5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("along", ["seeds", "steps", "streams", "far seeds", "seed against step"])
def test_sources_are_independent(kind, along):
    size, count = 60, 10_000
    if along == "seeds":
        found = values(kind, torch.arange(size), 0, count)
    elif along == "far seeds":
        found = values(kind, torch.arange(size) * 2**32, 0, count)
    elif along == "steps":
        found = torch.cat([values(kind, [0], step, count) for step in range(size)])
    elif along == "streams":
        noise = RunNoise(torch.tensor([0]), 0)
        found = torch.cat([getattr(noise, kind)((count,), F64) for _ in range(size)])
    else:
        pairs = [(seed, 59 - seed) for seed in range(size)]
        found = torch.cat([values(kind, [seed], step, count) for seed, step in pairs])
    for power in (1, 2):
        correlation = torch.corrcoef(found**power) - torch.eye(size, dtype=F64)
        # 1770 pairs of n values; 5 standard errors of a correlation.
        assert correlation.abs().max() < 5 / count**0.5
        # Values one and two places apart, across sources.
        for lag in (1, 2):
            moved = torch.corrcoef(torch.cat([found[:, :-lag], found[:, lag:]]) ** power)
            across = moved[:size, size:]
            assert across.abs().max() < 5.5 / count**0.5
    # Rows look alike at one position too: the hash of (seed, step) itself is uniform.
    if kind == "uniform":
        assert stats.kstest(found[:, 0].numpy(), "uniform").pvalue > ALPHA


def test_first_value_over_many_seeds_and_steps():
    seeds = torch.arange(100_000)
    for found in (
        values("uniform", seeds, 0, 1)[:, 0],
        torch.cat([values("uniform", [0], step, 1)[0] for step in range(2_000)]),
    ):
        assert stats.kstest(found.numpy(), "uniform").pvalue > ALPHA
        assert found.unique().numel() > 0.999 * found.numel()


def test_seed_and_step_zero_are_not_degenerate():
    found = values("uniform", [0], 0, 10_000)[0]
    # 10,000 of 2^32 cells: 0.012 collisions expected.
    assert found.unique().numel() == 10_000
    assert abs(found.mean() - 0.5) < 5 * (1 / 12 / 10_000) ** 0.5
    zeros = RunNoise(torch.zeros(1, dtype=torch.int64), 0)
    assert zeros.seed() not in (0, 1)


# Seeds with a value in the lowest or the highest of the cells that float32 cannot tell from 0 or 1
# among their first 2^15: one value in 2^25 lies there.
EXTREME_SEEDS = torch.tensor([204, 431, 658, 7935, 8085, 2254, 2327, 4222, 4435, 4478])


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_extremes_stay_finite(dtype):
    uniform = values("uniform", EXTREME_SEEDS, 0, 2**15, dtype=dtype)
    assert 0 < uniform.min() < 1e-7
    assert 1 - 1e-7 < uniform.max() < 1
    normal = values("normal", EXTREME_SEEDS, 0, 2**16, dtype=dtype)  # radii from the first half
    assert torch.isfinite(normal).all()
    # 2^-33 is the smallest uniform: a radius of at most 6.77.
    assert normal.abs().max() < 6.8


def test_seeds_for_other_generators():
    found = {RunNoise(torch.tensor([s]), t).seed() for s in range(50) for t in range(50)}
    assert len(found) == 2500
    assert all(0 <= seed < 2**62 for seed in found)
    noise = RunNoise(torch.tensor([0]), 0)
    assert noise.seed() != noise.seed()
    with pytest.raises(ShapeError, match="one run at a time, not for 2"):
        RunNoise(torch.tensor([0, 1]), 0).seed()


# --- layouts ---------------------------------------------------------------------------------

LIKE = torch.zeros(1, dtype=F64)


@pytest.mark.parametrize("function", [row_normal, row_uniform])
@pytest.mark.parametrize("tail", [(), (3,), (2, 3)])
def test_layout_of_rows(function, tail):
    seeds = torch.tensor([5, 6])
    own = function(4, torch.Size((2, 10)), tail, like=LIKE, noise=RunNoise(seeds, 0))
    assert own.shape == (4, 2, 10, *tail)
    single = function(4, torch.Size((10,)), tail, like=LIKE, noise=RunNoise(seeds[1:], 0))
    assert single.shape == (4, 10, *tail)
    assert torch.equal(own[:, 1], single)
    shared = function(4, torch.Size((2, 10)), tail, like=LIKE, noise=as_noise(3))
    assert shared.shape == (4, 1, 10, *tail)
    plain = function(4, torch.Size((10,)), tail, like=LIKE, noise=as_noise(3))
    assert torch.equal(shared.squeeze(1), plain)
    for found in (own, shared):
        assert found.dtype == F64
        assert found.unique().numel() == found.numel()
    single = function(4, torch.Size((10,)), tail, like=LIKE.float(), noise=as_noise(3))
    assert single.dtype == torch.float32


@pytest.mark.parametrize("function", [row_normal, row_uniform])
def test_a_stack_of_stacks_is_flat(function):
    seeds = torch.arange(6)
    nested = function(4, torch.Size((2, 3, 10)), (2,), like=LIKE, noise=RunNoise(seeds, 0))
    flat = function(4, torch.Size((6, 10)), (2,), like=LIKE, noise=RunNoise(seeds, 0))
    assert torch.equal(nested.flatten(1, 2), flat)


@pytest.mark.parametrize("function", [row_normal, row_uniform])
@pytest.mark.parametrize("batch", [(3, 10), (10,), (2, 2, 10)])
def test_runs_must_fit_the_stack(function, batch):
    noise = RunNoise(torch.tensor([0, 1]), 0)
    with pytest.raises(ShapeError, match="2 runs"):
        function(4, torch.Size(batch), like=LIKE, noise=noise, tail=())


@pytest.mark.parametrize("function", [row_normal, row_uniform])
def test_without_a_generator_the_global_state_is_used(function):
    found = []
    for _ in range(2):
        torch.manual_seed(3)
        found.append(function(4, torch.Size((10,)), (), like=LIKE, noise=None))
    assert torch.equal(*found)
    assert not torch.equal(function(4, torch.Size((10,)), (), like=LIKE, noise=None), found[0])


def test_as_noise():
    generator, runs = torch.Generator(), RunNoise(torch.tensor([0]), 0)
    assert as_noise(None) is None
    assert as_noise(generator) is generator
    assert as_noise(runs) is runs
    one, two, three = (torch.rand(3, generator=as_noise(seed)) for seed in (0, np.int64(0), 1))
    assert torch.equal(one, two)
    assert not torch.equal(one, three)
    # A seed of ours is not torch's seed: data drawn with it must not meet its own noise again.
    assert not torch.equal(one, torch.rand(3, generator=torch.Generator().manual_seed(0)))
    for wrong in ("0", 0.5, True):
        with pytest.raises(InputTypeError, match="generator must be"):
            as_noise(wrong)


FAMILIES = [gaussian_mixture, multivariate_normal, student_copula]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("function", [draw, draw_differentiable])
def test_draws_take_seeds_and_runs(family, function):
    dist = family(20, dim=3)
    state = torch.get_rng_state()
    for make in (lambda: 5, lambda: RunNoise(torch.tensor([5]), 2)):
        one, two = (function(dist, 6, generator=make()).points for _ in range(2))
        assert torch.equal(one, two)
        assert one.shape == (6, 20, 3)
    assert torch.equal(torch.get_rng_state(), state)
    other = function(dist, 6, generator=6).points
    assert not torch.equal(function(dist, 6, generator=5).points, other)


@pytest.mark.parametrize("family", FAMILIES[:2])
@pytest.mark.parametrize("function", [draw, draw_differentiable])
def test_a_stack_of_runs_draws_like_each_run(family, function):
    dist, seeds = family(3, 20, dim=3), torch.tensor([4, 9, 1])
    together = function(dist, 6, generator=RunNoise(seeds, 2))
    for m in range(3):
        alone = function(_member(dist, m), 6, generator=RunNoise(seeds[m : m + 1], 2))
        torch.testing.assert_close(together.points[:, m], alone.points, rtol=0, atol=1e-12)


def _member(dist, m):
    if hasattr(dist, "logits"):
        return type(dist)(dist.logits[m], dist.loc[m], dist.scale_tril[m])
    return type(dist)(dist.loc[m], scale_tril=dist.scale_tril[m])


def test_streams_stay_what_they_are():
    # Frozen: a run is a function of its seed, and results that were recorded rest on these values.
    noise = RunNoise(torch.tensor([7, -8]), step=3)
    normal = noise.normal((3,), torch.float64)
    uniform = noise.uniform((2,), torch.float64)
    torch.testing.assert_close(
        normal,
        torch.tensor(
            [
                [0.3062605148856529, 0.9203613162538544, 0.4740086626028667],
                [-0.0746796669782427, 1.299716923420558, -0.4245188990301009],
            ],
            dtype=torch.float64,
        ),
    )
    torch.testing.assert_close(
        uniform,
        torch.tensor(
            [[0.7620388407958671, 0.562901712837629], [0.5044860172783956, 0.3469093673629686]],
            dtype=torch.float64,
        ),
    )
    small = RunNoise(torch.tensor([7, -8], dtype=torch.int32), step=torch.tensor(3))
    assert torch.equal(small.normal((3,), torch.float64), normal)
