"""What holds for every recalibrator: a new one is one more line."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Independent, Poisson

from prerank import diagnose, nll
from prerank.errors import InputError, NotApplicableError, ShapeError
from prerank.recalibration import HDRRecalibrator, MarginalRecalibrator
from recalibration.bases import BASES, errors, float32, largest_pce, rows_of, self_check
from truths import multivariate_normal

RECALIBRATORS = {"hdr": HDRRecalibrator, "marginal": MarginalRecalibrator}
CALIBRATION, FRESH = 600, 400

every_recalibrator = pytest.mark.parametrize("prerank", RECALIBRATORS)


def narrow(rows, dim=2, seed=1):
    """A forecast that is half as wide as it should be."""
    guess = multivariate_normal(rows, dim=dim, seed=seed)
    return guess, guess.loc + 2 * (guess.sample() - guess.loc)


# Both with the mixture and the copula that is not Gaussian, one of them with every other base.
PAIRS = [(kind, base) for kind in RECALIBRATORS for base in ("mixture", "student copula")]
PAIRS += [("hdr", "normal"), ("marginal", "independent normal")]
PAIRS += [("hdr", "independent laplace"), ("marginal", "mixture same family")]


@pytest.mark.parametrize(("prerank", "base"), PAIRS)
def test_calibrated_forecasts_stay_so(prerank, base):
    guess = BASES[base](CALIBRATION, dim=2, seed=3)
    torch.manual_seed(0)
    recalibrator = RECALIBRATORS[prerank](generator=0).fit(guess, guess.sample())
    fresh = BASES[base](FRESH, dim=2, seed=4)
    y, law = fresh.sample(), recalibrator(fresh)
    assert float(errors(law, y, prerank).max()) < largest_pce(FRESH, CALIBRATION, 2)
    change = nll(law, y) - nll(fresh, y)
    # k estimated numbers cost k / (2 m) on average, by Wilks' theorem; and four standard errors.
    estimated = sum(len(c.nodes) for c in recalibrator.corrections_ if not c.is_identity)
    cost = estimated / (2 * CALIBRATION)
    assert float(change.mean()) <= 4 * (float(change.std()) / FRESH**0.5 + cost)


@pytest.mark.parametrize(("prerank", "base"), PAIRS)
def test_draws_follow_the_density(prerank, base):
    guess = BASES[base](200, dim=2, seed=5)
    torch.manual_seed(1)
    centre = guess.sample((101,)).median(0).values
    y, other = guess.sample((2,))
    # Too narrow, within the support: of two draws the one of less density, or farther out.
    if prerank == "hdr":
        outer = (guess.log_prob(y) < guess.log_prob(other)).unsqueeze(-1)
    else:
        outer = (y - centre).abs() > (other - centre).abs()
    y = torch.where(outer, y, other)
    law = RECALIBRATORS[prerank](generator=0).fit(guess, y)(guess)
    assert law is not guess
    mean, error = self_check(law, guess)
    assert abs(mean - 1) < 4 * error
    assert error < 0.03


@every_recalibrator
def test_everything_can_be_diagnosed(prerank):
    guess, y = narrow(100, dim=3)
    law = RECALIBRATORS[prerank](generator=0).fit(guess, y)(guess)
    diagnosis = diagnose(law, y, generator=0)
    assert not diagnosis.skipped
    assert {"marginal", "hdr", "copula", "pca"} <= set(diagnosis.table.prerank)


@every_recalibrator
def test_same_seed_same_law(prerank):
    guess, y = narrow(60)
    first, second = (RECALIBRATORS[prerank](generator=3).fit(guess, y)(guess) for _ in range(2))
    assert torch.equal(first.log_prob(y), second.log_prob(y))
    torch.manual_seed(0)
    draws = first.sample((5,))
    torch.manual_seed(0)
    assert torch.equal(draws, second.sample((5,)))
    assert not torch.equal(draws, second.sample((5,)))


@every_recalibrator
@settings(max_examples=5, deadline=None)
@given(dim=st.integers(1, 5), rows=st.integers(1, 30), shape=st.sampled_from([(), (3,), (2, 4)]))
def test_shapes_and_dtype(prerank, dim, rows, shape):
    guess, y = narrow(100, dim)
    recalibrator = RECALIBRATORS[prerank](generator=0, n_samples=60).fit(guess, y.numpy())
    law = recalibrator(float32(multivariate_normal(rows, dim=dim, seed=2)))
    assert law.batch_shape == (rows,)
    assert law.event_shape == (dim,)
    draws = law.sample(shape)
    assert draws.shape == (*shape, rows, dim)
    assert law.log_prob(draws).shape == (*shape, rows)
    assert draws.dtype == law.log_prob(draws).dtype == torch.float32
    assert bool(draws.isfinite().all() & law.log_prob(draws).isfinite().all())


GUESS = multivariate_normal(50, dim=2, seed=1)
Y = GUESS.loc + 1

BAD = {
    "few rows": (multivariate_normal(10, dim=2), Y[:10], InputError, "at least 20"),
    "not finite": (GUESS, torch.where(Y > 1, torch.nan, Y), InputError, "NaN"),
    "one target": (GUESS, Y[:, :1], ShapeError, "y has shape"),
    "stack": (rows_of(GUESS, 3, 50), Y, ShapeError, r"batch_shape \(3, 50\).*one predictor"),
    "no rows": (multivariate_normal(dim=2), Y[0], ShapeError, r"batch_shape \(\)"),
    "counts": (
        Independent(Poisson(torch.ones(50, 2)), 1),
        torch.ones(50, 2),
        NotApplicableError,
        "discrete",
    ),
}


@every_recalibrator
@pytest.mark.parametrize("bad", BAD)
def test_bad_input_is_named(prerank, bad):
    dist, y, error, match = BAD[bad]
    with pytest.raises(error, match=match):
        RECALIBRATORS[prerank]().fit(dist, y)


@every_recalibrator
def test_the_text_says_what_was_found(prerank):
    recalibrator = RECALIBRATORS[prerank](n_samples=100, generator=3)
    name = f"{type(recalibrator).__name__}(n_samples=100, generator=3)"
    assert repr(recalibrator) == f"<{name}, not fitted>"
    guess, y = narrow(200)
    y[:, 1] = guess.sample()[:, 1]  # one target is right
    fitted = recalibrator.fit(guess, y)
    total, changed = len(fitted.corrections_), sum(not c.is_identity for c in fitted.corrections_)
    assert changed == 1
    assert repr(fitted) == f"<{name}, fitted to 2 targets: 1 of {total} PITs corrected>"


@every_recalibrator
def test_bad_use_is_named(prerank):
    kind = RECALIBRATORS[prerank]
    with pytest.raises(InputError, match="not fitted"):
        kind()(GUESS)
    with pytest.raises(InputError, match="n_samples"):
        kind(n_samples=3).fit(GUESS, Y)
    fitted = kind(generator=0).fit(GUESS, Y)
    with pytest.raises(ShapeError, match="fitted for 2 targets"):
        fitted(multivariate_normal(50, dim=3))
    with pytest.raises(ShapeError, match="one predictor"):
        fitted(rows_of(GUESS, 3, 50))
