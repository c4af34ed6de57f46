"""Targets between 1e-12 and 1e12: nothing that is free of units changes, and the rest scales."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Independent, MultivariateNormal, Normal

from prerank import (
    CalibrationPenalty,
    Ensemble,
    GaussianMixture,
    MixtureRegressor,
    crps,
    diagnose,
    energy_score,
    nll,
    pit,
    smooth_pit,
    variogram_score,
)
from prerank.errors import InputError
from properties.cases import SIZES, UNITS, mixture, observations, same

ROWS = 8
SAMPLES = 100

# The fewest targets that a pre-rank takes. Principal components of samples need more samples than
# targets, or rounding chooses the last of them.
FEWEST = {
    "marginal": 1,
    "location": 1,
    "scale": 2,
    "dependency": 3,
    "pca": 1,
    "pca(0.8)": 1,
    "hdr": 1,
    "copula": 1,
    "multivariate_rank": 1,
    "average_rank": 1,
    "band_depth": 1,
    "energy_score": 1,
}
# Every pre-rank with few targets in both precisions, and with many in the one that overflows first.
CASES = [
    (size, prerank, dtype)
    for prerank, fewest in FEWEST.items()
    for size, dtype in (
        (SIZES[fewest - 1], torch.float32),
        ((3, 50), torch.float64),
        ((64, 2), torch.float32),
    )
]
SAMPLED = [case for case in CASES if case[1] != "hdr"]  # samples have no density
SMOOTH = [case for case in CASES if case[1] not in ("average_rank", "band_depth")]


def in_units_in_the_last_place(prerank):
    """How far rounding may carry a PIT that is not a rank, in multiples of eps.

    A solver rescales its matrices: eigenvectors turn by rounding over the gaps between eigenvalues,
    which are some 1e-4 among 64 of them. Log-densities are shifted by D log c, up to 2e3, and tau
    multiplies differences by 100. Nothing else rounds.
    """
    return {"pca": 1e5, "pca(0.8)": 1e5, "hdr": 1e5}.get(prerank, 0)


@pytest.mark.parametrize(("size", "prerank", "dtype"), CASES)
def test_exact_pits(size, prerank, dtype):
    y = observations(ROWS, size, dtype)
    expected = pit(mixture(ROWS, size, dtype), y, prerank, n_samples=SAMPLES, generator=0)
    # Rounding may exchange neighbours among log-densities.
    error = in_units_in_the_last_place(prerank) * torch.finfo(dtype).eps
    error = 1.01 / (SAMPLES + 1) if prerank == "hdr" else error
    for unit in UNITS:
        law = mixture(ROWS, size, dtype, unit)
        same(pit(law, unit * y, prerank, n_samples=SAMPLES, generator=0), expected, error)


@pytest.mark.parametrize(("size", "prerank", "dtype"), SAMPLED)
def test_exact_pits_of_samples(size, prerank, dtype):
    y = observations(ROWS, size, dtype)
    members = mixture(ROWS, size).sample((SAMPLES,), generator=3).to(dtype)
    expected = pit(Ensemble(members), y, prerank, generator=0)
    for unit in UNITS:
        found = pit(Ensemble(unit * members), unit * y, prerank, generator=0)
        # The least of 64 components turn by enough to exchange some neighbours.
        same(found, expected, 4.01 / (SAMPLES + 1) if prerank.startswith("pca") else 0)


@pytest.mark.parametrize(("size", "prerank", "dtype"), SMOOTH)
def test_penalties_and_their_gradients(size, prerank, dtype):
    y = observations(ROWS, size, dtype)
    penalty = CalibrationPenalty(prerank, n_samples=40)

    def measured(unit):
        law = mixture(ROWS, size, dtype, unit)
        parameters = [
            tensor.detach().clone().requires_grad_()
            for tensor in (law.logits, law.loc, law.scale_tril)
        ]
        value = penalty(GaussianMixture(*parameters), unit * y, generator=0)
        logits, loc, factor = torch.autograd.grad(value, parameters, materialize_grads=True)
        return value.detach(), logits, unit * loc, unit * factor

    expected = measured(1.0)
    # A gradient adds up terms that cancel: ten times the error of the PITs. Terms that underflow
    # in some units and not in others are far below the last digit.
    error = 1e-15 + 10 * in_units_in_the_last_place(prerank) * torch.finfo(dtype).eps
    for unit in UNITS:
        for found, wanted in zip(measured(unit), expected, strict=True):
            same(found, wanted, error)


# Each with the power of the units that it has.
SCORES = {
    "energy": (lambda law, y: energy_score(law, y, n_samples=40, generator=0), 1),
    "energy nrg": (lambda law, y: energy_score(law, y, estimator="nrg", generator=0), 1),
    "crps": (crps, 1),
    "variogram": (lambda law, y: variogram_score(law, y, generator=0), 1),
    "variogram p=1": (lambda law, y: variogram_score(law, y, p=1, generator=0), 2),
}


# Every size once, and the precision that overflows first with few and with many targets.
PLACES = [((1, 1), torch.float64), ((2, 3), torch.float32), ((3, 50), torch.float64)]
PLACES += [((16, 5), torch.float64), ((64, 2), torch.float32)]
everywhere = pytest.mark.parametrize(("size", "dtype"), PLACES)


@everywhere
@pytest.mark.parametrize("name", SCORES)
def test_scores(name, size, dtype):
    score, power = SCORES[name]
    y = observations(ROWS, size, dtype)
    expected = score(mixture(ROWS, size, dtype), y)
    for unit in UNITS:
        same(score(mixture(ROWS, size, dtype, unit), unit * y) / unit**power, expected, 0)


@everywhere
def test_log_densities(size, dtype):
    y = observations(ROWS, size, dtype)
    expected = nll(mixture(ROWS, size, dtype), y)
    for unit in UNITS:
        shift = size[0] * math.log(unit)
        found = nll(mixture(ROWS, size, dtype, unit), unit * y)
        # Sums of D logarithms, of up to 28 each.
        error = 8 * torch.finfo(dtype).eps * (abs(shift) + float(expected.abs().max()))
        torch.testing.assert_close(found - shift, expected, rtol=0, atol=error)


@everywhere
def test_diagnosis(size, dtype):
    y = observations(ROWS, size, dtype)
    members = mixture(ROWS, size).sample((SAMPLES,), generator=3).to(dtype)
    # The law in the largest units and the samples in the smallest.
    forecasts = {
        1e12: (mixture(ROWS, size, dtype), mixture(ROWS, size, dtype, 1e12)),
        1e-12: (Ensemble(members), Ensemble(1e-12 * members)),
    }
    for unit, (before, after) in forecasts.items():
        expected = diagnose(before, y, n_null=50, generator=0)
        found = diagnose(after, unit * y, n_null=50, generator=0)
        assert found.skipped == expected.skipped
        assert found.table.prerank.tolist() == expected.table.prerank.tolist()
        # Units that are no power of two round all numbers: ranks among SAMPLES may change by one
        # in each row, and so the PCE.
        gap = (found.table.pce - expected.table.pce).abs().max()
        assert gap <= 1.01 / (SAMPLES + 1)
        assert np.isfinite(found.table[["pce", "floor", "excess", "p_value"]].to_numpy()).all()


def cubed(y):
    return ((y - y.mean(-1, keepdim=True)) ** 3).mean(-1)


@pytest.mark.parametrize("unit", [2.0**20, 2.0**36])
def test_smooth_pits_of_values_whose_squares_overflow(unit):
    y = observations(ROWS, (3, 2), torch.float32)
    members = mixture(ROWS, (3, 2)).sample((SAMPLES,), generator=3).float()
    weights = torch.linspace(1, 2, SAMPLES)
    for share in (None, weights):
        expected = smooth_pit(Ensemble(members, share), y, cubed)
        same(smooth_pit(Ensemble(unit * members, share), unit * y, cubed), expected, 0)


# Of a law at 1e-12 that knows its first target to 1e-12 of that, in float32.
NARROW = {
    "marginal": lambda law, y, unit: pit(law, y, "marginal"),
    "smooth": lambda law, y, unit: smooth_pit(law, y, "marginal"),
    "crps": lambda law, y, unit: crps(law, y) / unit,
}


@pytest.mark.parametrize("name", NARROW)
def test_spreads_whose_squares_underflow(name):
    y, law = observations(ROWS, (3, 2), torch.float32), mixture(ROWS, (3, 2), torch.float32)

    def found(unit):
        narrow = GaussianMixture(law.logits, unit * law.loc, unit[:, None] * law.scale_tril)
        return NARROW[name](narrow, unit * y, unit)

    same(found(torch.tensor([2.0**-80, 2.0**-40, 2.0**-40])), found(torch.ones(3)), 0)


# The same for other laws, whose reference is the standard normal.
NORMALS = {
    "normal": lambda scale: MultivariateNormal(
        torch.zeros(ROWS, 2), scale_tril=torch.diag(scale), validate_args=False
    ),
    "independent": lambda scale: Independent(Normal(torch.zeros(ROWS, 2), scale), 1),
    "mixture": lambda scale: GaussianMixture(
        torch.zeros(ROWS, 2), torch.zeros(ROWS, 2, 2), torch.diag(scale).expand(ROWS, 2, 2, 2)
    ),
}


@pytest.mark.parametrize("name", NORMALS)
def test_normals_whose_variance_underflows(name):
    scale = torch.tensor([2.0**-80, 2.0**-40])
    y = observations(ROWS, (2, 3), torch.float32)
    # Rounding of the normal CDF, and of the sum over components.
    same(pit(NORMALS[name](scale), scale * y, "marginal"), torch.special.ndtr(y), 4e-7)


def test_a_score_without_a_number():
    law, y = mixture(ROWS, (3, 2), torch.float32, 2.0**40), observations(ROWS, (3, 2)).float()
    with pytest.raises(InputError, match=r"variogram score .* lower p"):
        variogram_score(law, 2.0**40 * y, p=2)  # 1e12 to the fourth power
    assert variogram_score(mixture(ROWS, (3, 2), unit=2.0**40), 2.0**40 * y, p=2).isfinite().all()


@pytest.mark.parametrize(("targets", "units"), [(1, UNITS[:1]), (2, UNITS[1:3]), (16, UNITS[3:])])
def test_estimators(targets, units):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    y = x[:, :1] * np.linspace(-1, 1, targets) + rng.normal(size=(40, targets))

    def fitted(x, y):
        model = MixtureRegressor(
            3,
            method="network",
            hidden=(8,),
            max_epochs=1,
            strength=1.0,
            preranks="marginal+hdr",
            random_state=0,
        ).fit(x, y)
        return model.predict(x), model.score(x, y), model.diagnose(x, y).table.pce.to_numpy()

    expected = fitted(x, y)
    for unit in units:
        found = fitted(x / unit, unit * y)
        np.testing.assert_array_equal(found[0] / unit, expected[0])
        assert found[1] == expected[1]
        np.testing.assert_array_equal(found[2], expected[2])
