"""Right predictors are rejected as often as the level says, wrong ones nearly always.

The replicates of a study are consecutive groups of rows of one long batch: rows are independent.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.distributions import Distribution

from prerank import Ensemble, null_pce, pce
from prerank.calibration import component_null, p_value
from prerank.datasets import AR1Regression
from prerank.pits import project_pits
from prerank.preranks import PAPER
from truths import discrete, gaussian_mixture

LEVEL, DIM, CHUNK = 0.05, 4, 20  # CHUNK: replicates at a time
# 0.05 (B + 1) is a whole number, so that the level of the Monte Carlo test is exactly 0.05.
N_NULL = 399

Batch = tuple[Distribution, torch.Tensor]

pytestmark = pytest.mark.slow


def critical_error(n: int) -> float:
    """Smallest PCE of n rows whose p-value does not exceed the level, up to rounding."""
    null = np.sort(null_pce(n))
    return float(null[bisect_left(null, -LEVEL, key=lambda error: -p_value(error, null))]) - 1e-9


def rejection_rates(
    batch: Callable[[int, int], Batch],
    *,
    n: int,
    replicates: int,
    of_means: int,
    n_samples: int,
) -> dict[str, float]:
    """Rates by label: `"marginal[2]"` for a component, `"marginal"` for the mean over several.

    Args:
        batch: makes a prediction and observations from a number of rows and a seed.
        n: rows of one replicate.
        replicates: of tests of one component, by their universal null.
        of_means: replicates of tests of the mean over components, by null PITs.
        n_samples: draws per row.
    """
    critical = critical_error(n)
    rejected: dict[str, list[torch.Tensor]] = defaultdict(list)
    for start in range(0, replicates, CHUNK):
        dist, y = batch(CHUNK * n, start)
        terms = tuple(p for p in PAPER if not (p.needs_log_prob and isinstance(dist, Ensemble)))
        options = {"n_samples": n_samples, "generator": start, "with_null_pits": start < of_means}
        for result in project_pits(dist, y, terms, **options):
            label = result.prerank.label
            z = result.z.unflatten(0, (CHUNK, n))
            errors = pce(z)  # (CHUNK, J)
            components = errors.shape[-1]
            for j in range(components):
                name = f"{label}[{j}]" if components > 1 else label
                rejected[name].append(errors[:, j] >= critical)
            if result.null_pits is not None:
                null_pits = result.null_pits.unflatten(1, (CHUNK, n)).unbind(1)
                means = [
                    component_null(*pair, n_null=N_NULL).numpy()
                    for pair in zip(z, null_pits, strict=True)
                ]
                pairs = zip(errors.mean(-1).tolist(), means, strict=True)
                rejected[label].append(torch.tensor([p_value(*pair) <= LEVEL for pair in pairs]))
    return {label: torch.cat(hits).double().mean().item() for label, hits in rejected.items()}


def show(title: str, rates: dict[str, float]) -> None:
    print(title)
    for label, rate in rates.items():
        print(f"  {label:14} {rate:.4f}")


def right_mixture(rows: int, seed: int) -> Batch:
    law = gaussian_mixture(rows, dim=DIM, seed=seed)
    return law, law.sample()


def right_ensemble(rows: int, seed: int) -> Batch:
    law = gaussian_mixture(rows, dim=DIM, seed=seed)
    return Ensemble(law.sample((10,))), law.sample()


def right_counts(rows: int, seed: int) -> Batch:
    law = discrete(rows, dim=DIM, seed=seed)
    return law, law.sample()


# Ranks among ten draws are as uniform as ranks among hundred, and show a flaw of exchangeability
# best: it is of the order of 1 / (S + 1).
@pytest.mark.parametrize(
    "batch",
    [right_mixture, right_ensemble, right_counts],
    ids=["mixture", "ensemble of 10", "counts with ties"],
)
def test_level_is_kept_at_300_rows(batch):
    rates = rejection_rates(batch, n=300, replicates=4000, of_means=1000, n_samples=10)
    show(f"rejection rates of {batch.__name__}, D = {DIM}, n = 300, nominal {LEVEL}", rates)
    # Standard errors sqrt(0.05 * 0.95 / R) of a rate of 5 %: 0.34 % of 4,000 replicates, 0.69 % of
    # 1,000. The bounds are 2.9 of them.
    of_means = {"marginal", "pca"}
    bounds = {label: (0.03, 0.07) if label in of_means else (0.04, 0.06) for label in rates}
    assert of_means < set(rates)
    wrong = {k: r for k, r in rates.items() if not bounds[k][0] <= r <= bounds[k][1]}
    assert not wrong


TRUTH = AR1Regression(dim=DIM, correlation=0.7)


def wrong_batch(predictor: AR1Regression) -> Callable[[int, int], Batch]:
    def batch(rows: int, seed: int) -> Batch:
        x, y = TRUTH.sample(rows, generator=seed)
        return predictor.conditional(x), y

    return batch


@pytest.mark.parametrize(
    ("predictor", "sensitive"),
    [
        (
            AR1Regression(dim=DIM, correlation=0.7, spread=0.5),
            ["marginal", "location", "scale", "pca", "hdr", "copula"],
        ),
        (
            AR1Regression(dim=DIM, correlation=0.0),
            ["location", "scale", "dependency", "hdr", "copula"],
        ),
    ],
    ids=["spread halved", "correlation removed"],
)
def test_power_at_500_rows(predictor, sensitive):
    options = {"n": 500, "replicates": 200, "of_means": 200, "n_samples": 50}
    rates = rejection_rates(wrong_batch(predictor), **options)
    show(f"power of {predictor}, n = 500, level {LEVEL}", rates)
    # With a true power of 0.99 the standard error of 200 replicates is 0.7 %.
    assert {label: rates[label] for label in sensitive if not rates[label] > 0.95} == {}


def test_margins_do_not_see_that_correlation_was_removed():
    # The margins are right, so each marginal component keeps its level: 5 % with a standard error
    # of 0.69 % of 1,000 replicates; the bounds are 2.9 of them. This is what joint calibration is
    # about, and shows that the power above does not come from a sloppy test.
    dist, y = wrong_batch(AR1Regression(dim=DIM, correlation=0.0))(1000 * 500, 0)
    errors = pce(project_pits(dist, y, PAPER[:1])[0].z.reshape(1000, 500, DIM))
    rates = (errors >= critical_error(500)).double().mean(0)
    assert bool(((rates > 0.03) & (rates < 0.07)).all()), rates
