"""Seeds: one number, unrelated streams for unrelated purposes."""

import numpy as np
import pytest
import torch

from prerank.datasets import AR1Regression
from prerank.distributions import draw
from prerank.errors import PrerankError
from prerank.inputs import as_generator, as_tensor
from truths import gaussian_mixture

PURPOSES = ["sample", "draw", "data", "null"]


def numbers(generator, n=20):
    return torch.randn(n, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("seed", [0, 1, -1, 2**64, 2**100])
def test_a_seed_gives_each_purpose_a_stream_of_its_own(seed):
    streams = [numbers(as_generator(seed, purpose)) for purpose in PURPOSES]
    if 0 <= seed < 2**63:
        streams.append(numbers(torch.Generator().manual_seed(seed)))  # torch's own
    distinct = torch.cat(streams).unique()
    assert len(distinct) == 20 * len(streams)
    for purpose, stream in zip(PURPOSES, streams, strict=False):
        assert torch.equal(numbers(as_generator(seed, purpose)), stream)


def test_seeds_differ():
    seeds = [0, 1, 2, -1, -2, 2**32, 2**63, 2**64]
    first = torch.cat([numbers(as_generator(seed, "draw"), 1) for seed in seeds])
    assert len(first.unique()) == len(seeds)
    assert torch.equal(numbers(as_generator(np.int64(7), "draw")), numbers(as_generator(7, "draw")))


def test_generators_pass_through():
    generator = torch.Generator().manual_seed(0)
    for purpose in PURPOSES:
        assert as_generator(generator, purpose) is generator
        assert as_generator(None, purpose) is None


def test_draws_do_not_meet_the_noise_of_the_data():
    dist = gaussian_mixture(50, dim=2)
    y = dist.sample(generator=0)
    assert not bool((draw(dist, 50, generator=0).points == y).any())
    truth = AR1Regression(dim=2)
    x, y = truth.sample(50, generator=0)
    assert not bool((draw(truth.conditional(x), 50, generator=0).points == y).any())
    # With generators of one's own that is one's own business.
    same = [torch.Generator().manual_seed(0) for _ in range(2)]
    assert torch.equal(*(draw(dist, 2, generator=source).points for source in same))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.ma.masked_array(np.zeros((5, 3)), mask=np.eye(5, 3)), "masked"),
        (torch.zeros(5, 3).to_sparse(), "sparse"),
    ],
)
def test_arrays_with_holes_are_refused(value, words):
    with pytest.raises(PrerankError, match=words):
        as_tensor(value, "y")
