"""Right predictors are rejected as often as the level says, wrong ones nearly always.

The replicates of a study are consecutive groups of rows of one long batch: rows are independent.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator

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


def rejection_rates(
    batch: Callable[[int, int], Batch],
    *,
    n: int,
    replicates: int,
    of_means: int,
    n_samples: int = 100,
) -> dict[str, float]:
    """Rates by label: `"marginal[2]"` for a component, `"marginal"` for the mean over several.

    Args:
        batch: makes a prediction and observations from a number of rows and a seed.
        n: rows of one replicate.
        replicates: of tests of one component, by their universal null.
        of_means: replicates of tests of the mean over components, by stand-ins.
        n_samples: draws per row.
    """
    null = null_pce(n)
    rejected: dict[str, list[bool]] = defaultdict(list)
    for label, z, null_pits in _replicates(batch, n, replicates, of_means, n_samples):
        errors = pce(z)
        for j, error in enumerate(errors.tolist()):
            name = f"{label}[{j}]" if len(errors) > 1 else label
            rejected[name].append(p_value(error, null) <= LEVEL)
        if null_pits is not None:
            means = component_null(z, null_pits, n_null=N_NULL).numpy()
            rejected[label].append(p_value(float(errors.mean()), means) <= LEVEL)
    return {label: sum(hits) / len(hits) for label, hits in sorted(rejected.items())}


def _replicates(
    batch: Callable[[int, int], Batch], n: int, replicates: int, of_means: int, n_samples: int
) -> Iterator[tuple[str, torch.Tensor, torch.Tensor | None]]:
    for start in range(0, replicates, CHUNK):
        dist, y = batch(CHUNK * n, start)
        terms = tuple(p for p in PAPER if not (p.needs_log_prob and isinstance(dist, Ensemble)))
        results = project_pits(
            dist,
            y,
            terms,
            n_samples=n_samples,
            generator=start,
            with_null_pits=start < of_means,
        )
        for result in results:
            null_pits = [None] * CHUNK
            if result.null_pits is not None:
                null_pits = result.null_pits.split(n, 1)
            for z, others in zip(result.z.split(n), null_pits, strict=True):
                yield result.prerank.label, z, others


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


@pytest.mark.parametrize(
    ("batch", "n_samples"),
    [(right_mixture, 50), (right_ensemble, 10), (right_counts, 50)],
    ids=["mixture", "ensemble of 10", "counts with ties"],
)
def test_level_is_kept_at_300_rows(batch, n_samples):
    rates = rejection_rates(batch, n=300, replicates=1200, of_means=400, n_samples=n_samples)
    show(f"rejection rates of {batch.__name__}, D = {DIM}, n = 300, nominal {LEVEL}", rates)
    # Standard errors of a rate of 5 %: 0.63 % of 1,200 replicates, 1.09 % of 400, so the bounds
    # are 2.9 of them.
    of_means = {"marginal", "pca"}
    bounds = {label: (0.018, 0.082) if label in of_means else (0.032, 0.068) for label in rates}
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
    rates = rejection_rates(wrong_batch(predictor), n=500, replicates=100, of_means=100)
    show(f"power of {predictor}, n = 500, level {LEVEL}", rates)
    # With a true power of 0.99 the standard error of 100 replicates is 1 %.
    assert {label: rates[label] for label in sensitive if not rates[label] > 0.95} == {}


def test_margins_do_not_see_that_correlation_was_removed():
    # The margins are right, so each marginal component keeps its level: 5 % with a standard error
    # of 0.69 % of 1,000 replicates; the bounds are 2.9 of them. This is what joint calibration is
    # about, and shows that the power above does not come from a sloppy test.
    predictor = AR1Regression(dim=DIM, correlation=0.0)
    null, hits = null_pce(500), torch.zeros(DIM)
    for seed in range(50):
        dist, y = wrong_batch(predictor)(CHUNK * 500, seed)
        errors = pce(project_pits(dist, y, PAPER[:1])[0].z.reshape(CHUNK, 500, DIM))
        hits += torch.tensor(
            [[p_value(e, null) <= LEVEL for e in row] for row in errors.tolist()]
        ).sum(0)
    rates = hits / (50 * CHUNK)
    assert bool(((rates > 0.03) & (rates < 0.07)).all()), rates
