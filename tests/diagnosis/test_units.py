"""Units of the targets: what they are divided by, and that the verdict says so."""

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal

from prerank import Ensemble, diagnose
from prerank.diagnosis import Verdict, sample_spread
from prerank.errors import InputError

N = 80


@pytest.fixture(scope="module")
def members():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(30, N, 3, generator=generator).double() * torch.tensor([1.0, 100.0, 0.0])


def test_the_spread_is_that_of_all_samples(members):
    expected = members.numpy().reshape(-1, 3).std(0)
    expected[2] = 1  # a constant target is left as it is
    np.testing.assert_allclose(sample_spread(Ensemble(members)), expected, rtol=1e-12)
    huge = sample_spread(Ensemble(1e200 * members))
    np.testing.assert_allclose(huge[:2], 1e200 * expected[:2], rtol=1e-12)


def test_the_spread_of_a_distribution_is_that_of_its_draws():
    dist = MultivariateNormal(torch.zeros(500, 2), torch.diag(torch.tensor([1.0, 9.0])))
    spread = sample_spread(dist)
    # 50,000 draws: a relative standard error of 0.3 %, times five.
    np.testing.assert_allclose(spread, [1, 3], rtol=0.016)
    assert torch.equal(spread, sample_spread(dist))


def test_words_and_divisors_agree(members):
    y = torch.zeros(N, 3, dtype=torch.float64)
    dist = Ensemble(members)
    by_word = diagnose(dist, y, scale="samples")
    by_hand = diagnose(dist, y, scale=sample_spread(dist))
    for label, z in by_word.pits.items():
        torch.testing.assert_close(by_hand.pits[label], z, rtol=0, atol=0)
    plain, named = diagnose(dist, y), diagnose(dist, y, scale="none")
    assert str(plain) == str(named)
    assert str(diagnose(dist, y, scale=None)) == str(plain)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "original"),
        ({"scale": "samples"}, "each target divided by the spread of its samples"),
        ({"scale": [1.0, 2.0, 3.0]}, "each target divided by the given scale"),
        ({"units": "metres"}, "metres"),
        (
            {"units": "metres", "scale": "samples"},
            "metres, each target divided by the spread of its samples",
        ),
    ],
)
def test_every_verdict_names_the_units(options, words, members):
    y = torch.zeros(N, 3, dtype=torch.float64)
    diagnosis = diagnose(Ensemble(members), y, preranks="location", **options)
    assert diagnosis.units == words
    assert f"Units: {words}." in diagnosis.verdict().points
    assert f"- Units: {words}." in str(diagnosis).splitlines()


def test_other_words_are_refused(members):
    with pytest.raises(InputError, match="scale must be 'none', 'samples' or divisors, got 'std'"):
        diagnose(Ensemble(members), torch.zeros(N, 3), scale="std")


def test_without_a_seed_there_is_a_default():
    dist = MultivariateNormal(torch.zeros(N, 3), torch.eye(3))
    y = torch.randn(N, 3, generator=torch.Generator().manual_seed(1))
    assert str(diagnose(dist, y)) == str(diagnose(dist, y, generator=0))
    assert str(diagnose(dist, y)) != str(diagnose(dist, y, generator=1))


def test_the_old_name_of_the_status():
    verdict = Verdict("good", "No evidence.", (), ())
    with pytest.warns(DeprecationWarning, match="use status"):
        assert verdict.mood == "good"
