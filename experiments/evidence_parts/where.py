"""`diagnose_where`: is a planted region found and named, and how often is there a false alarm?

Eight inputs: six continuous, one of 4 values and one of 12. Forecasts are Gaussian with equal
correlation .5. `auc` is the area under the ROC curve of `WhereDiagnosis.weights`, which are to
separate the rows of the planted region from the others, on the rows that were searched; it counts
every data set, also those without evidence. `right_words` is the share of data sets with evidence
whose first region is given the planted kind of fault, of the right sign, and no other.
"""

from collections.abc import Iterator

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor
from torch.distributions import Chi2, MultivariateNormal

from prerank import diagnose_where
from prerank.diagnosis import WhereDiagnosis

FAULTS = {
    "spread halved": ("spread", 1),
    "spread doubled": ("spread", -1),
    "shift of 1 sd": ("shift", 1),
    "correlation lost": ("dependence", -1),
    "t3 tails": ("tails", 1),
}
PLACES = ("interval of one input", "corner of two inputs", "one of 12 values")
PERMUTATIONS = 99


def lines(data_sets: int = 20) -> Iterator[dict[str, object]]:
    """Power for each fault and place, then false alarms on 20 times as many data sets."""
    for wrong, dim in ((4, 4), (1, 4), (2, 2)):
        for place in PLACES if wrong == 4 else PLACES[:1]:
            for fault in FAULTS:
                if wrong == 1 and fault == "correlation lost":
                    continue
                yield _power(fault, place, wrong, dim, data_sets)
    for truth in (
        "calibrated",
        "calibrated, correlation follows an input",
        "too narrow and biased",
    ):
        yield _false_alarms(truth, 20 * data_sets)
    yield second_region(20 * data_sets)


def _power(fault: str, place: str, wrong: int, dim: int, data_sets: int) -> dict[str, object]:
    areas, found, named = [], 0, 0
    for seed in range(data_sets):
        dist, y, x, planted = planted_data(fault, place, wrong, dim, 2000, seed)
        where = diagnose_where(dist, y, x, n_null=PERMUTATIONS, max_regions=1, generator=seed)
        areas.append(area(where.weights, planted))
        found += where.p_value <= 0.05
        named += where.p_value <= 0.05 and _is_named(where, fault)
    return {
        "scenario": fault,
        "place": place,
        "wrong_targets": f"{wrong} of {dim}",
        "n": 2000,
        "event": "p <= .05",
        "rate": found / data_sets,
        "data_sets": data_sets,
        "auc": np.mean(areas),
        "least_auc": np.min(areas),
        "right_words": named / max(found, 1),
    }


def _is_named(where: WhereDiagnosis, fault: str) -> bool:
    kind, sign = FAULTS[fault]
    faults = where.faults[0]
    return all((one.kind, one.sign, one.elsewhere) == (kind, sign, False) for one in faults)


def planted_data(
    fault: str, place: str, wrong: int, dim: int, n: int, seed: int
) -> tuple[MultivariateNormal, Tensor, Tensor, Tensor]:
    """Forecasts, observations, inputs, and which rows have the fault (10 %, or one in 12)."""
    random = torch.Generator().manual_seed(seed)
    x = inputs(n, random)
    if place == "interval of one input":
        start = 0.9 * torch.rand((), generator=random)
        planted = (x[:, 0] >= start) & (x[:, 0] < start + 0.1)
    elif place == "corner of two inputs":
        planted = (x[:, 0] > 1 - 0.1**0.5) & (x[:, 1] < 0.1**0.5)
    else:
        planted = x[:, 7] == 5
    covariance = 0.5 * torch.eye(dim) + 0.5
    noise = torch.randn(n, dim, generator=random)
    right = noise @ torch.linalg.cholesky(covariance).T
    bad = {
        "spread halved": 2 * right,  # the forecast has half of the true spread
        "spread doubled": right / 2,
        "shift of 1 sd": right + 1,
        "correlation lost": noise,
        "t3 tails": right / _chi(n, seed),
    }[fault]
    bad = torch.cat([bad[:, :wrong], right[:, wrong:]], 1)
    mean = torch.sin(3 * x[:, :1]).expand(n, dim)
    y = mean + torch.where(planted[:, None], bad, right)
    return MultivariateNormal(mean, covariance), y, x, planted


def _chi(n: int, seed: int) -> Tensor:
    """Divisors that turn normal rows into Student t with 3 degrees of freedom, of unit variance."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Chi2(torch.tensor(3.0)).sample((n, 1)).sqrt()  # sqrt(W / 3) * sqrt(3)


def inputs(n: int, random: torch.Generator) -> Tensor:
    """Eight independent inputs, the last two discrete."""
    x = torch.rand(n, 8, generator=random)
    x[:, 6], x[:, 7] = (4 * x[:, 6]).floor(), (12 * x[:, 7]).floor()
    return x


def area(scores: Tensor, members: Tensor) -> float:
    """Area under the ROC curve, ties counting half."""
    ranks, chosen = rankdata(scores.numpy()), members.numpy()
    m, n = int(chosen.sum()), len(chosen)
    return float((ranks[chosen].sum() - m * (m + 1) / 2) / (m * (n - m)))


def _false_alarms(truth: str, data_sets: int, n: int = 500, dim: int = 4) -> dict[str, object]:
    alarms = 0
    for seed in range(data_sets):
        random = torch.Generator().manual_seed(10_000 + seed)
        x = inputs(n, random)
        correlation = torch.full((n, 1, 1), 0.5)
        if truth.endswith("input"):
            correlation = 0.95 * (x[:, :1, None] > 0.5)
        covariance = (1 - correlation) * torch.eye(dim) + correlation
        noise = torch.randn(n, dim, 1, generator=random)
        y = (torch.linalg.cholesky(covariance) @ noise).squeeze(-1)
        if truth.startswith("too narrow"):
            y = 1.5 * y + 0.5
        dist = MultivariateNormal(torch.zeros(n, dim), covariance)
        where = diagnose_where(dist, y, x, n_null=PERMUTATIONS, max_regions=1, generator=seed)
        alarms += where.p_value <= 0.05
    return {
        "scenario": truth,
        "place": "none",
        "wrong_targets": "",
        "n": n,
        "event": "p <= .05",
        "rate": alarms / data_sets,
        "data_sets": data_sets,
    }


def second_region(data_sets: int, n: int = 500, dim: int = 2) -> dict[str, object]:
    """How often a second region is reported where there is one, of an interval with 10 %."""
    seconds = 0
    for seed in range(data_sets):
        dist, y, x, _ = planted_data("spread halved", PLACES[0], dim, dim, n, 20_000 + seed)
        where = diagnose_where(dist, y, x, n_null=PERMUTATIONS, max_regions=2, generator=seed)
        seconds += len(where.search.regions) > 1
    return {
        "scenario": "spread halved",
        "place": PLACES[0],
        "wrong_targets": f"{dim} of {dim}",
        "n": n,
        "event": "a second region",
        "rate": seconds / data_sets,
        "data_sets": data_sets,
    }
