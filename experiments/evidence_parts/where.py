"""`diagnose_where`: is a planted region found and named, and how often is there a false alarm?

Eight inputs: six continuous, one of 4 values and one of 12. Forecasts are Gaussian with equal
correlation .5. `auc` is the area under the ROC curve of `WhereDiagnosis.weights`, which are to
separate the rows of the planted region from the others, on the rows that were searched; it counts
every data set, also those without evidence. `right_words` is the share of data sets with evidence
whose first region is given the planted kind of fault, of the right sign, and no other.
"""

from collections.abc import Iterator
from typing import Any

import pandas as pd
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


TRUTHS = ("calibrated", "calibrated, correlation follows an input", "too narrow and biased")

CELLS = [
    ({"scenario": fault, "place": place, "wrong_targets": f"{wrong} of {dim}", "n": 2000}, 20)
    for wrong, dim in ((4, 4), (1, 4), (2, 2))
    for place in (PLACES if wrong == 4 else PLACES[:1])
    for fault in FAULTS
    if (wrong, fault) != (1, "correlation lost")
]
CELLS += [
    ({"scenario": truth, "place": "none", "wrong_targets": "", "n": 500}, 400) for truth in TRUTHS
]
CELLS += [
    ({"scenario": "spread halved", "place": PLACES[0], "wrong_targets": "2 of 2", "n": 500}, 400)
]


def outcomes(
    seeds: range, *, scenario: str, place: str, wrong_targets: str, n: int
) -> Iterator[dict[str, float]]:
    """Whether there is evidence; where a fault is planted, whether it is found and named."""
    for seed in seeds:
        if place == "none":
            where = _searched(*unplanted_data(scenario, n, seed), seed)
            yield {"p <= .05": where.p_value <= 0.05}
            continue
        wrong, dim = map(int, wrong_targets.split(" of "))
        *case, planted = planted_data(scenario, place, wrong, dim, n, seed)
        if n < 2000:
            regions = _searched(*case, seed, most=2).search.regions
            yield {"a second region": len(regions) > 1}
            continue
        where = _searched(*case, seed)
        found = where.p_value <= 0.05
        named = {"right_words": _is_named(where, scenario)} if found else {}
        yield {"p <= .05": found, "auc": area(where.weights, planted)} | named


def lines(cell: dict[str, Any], table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """One line for each cell; of those with a planted fault how well it was found, too."""
    means = table.mean()
    for event in means.index.intersection(["p <= .05", "a second region"]):
        line = {**cell, "event": event, "rate": means[event], "data_sets": len(table)}
        if "auc" in means:
            line |= {"auc": means.auc, "least_auc": table.auc.min()}
            line["right_words"] = means.get("right_words", float("nan"))
        yield line


def _searched(
    dist: MultivariateNormal, y: Tensor, x: Tensor, seed: int, *, most: int = 1
) -> WhereDiagnosis:
    return diagnose_where(dist, y, x, n_null=PERMUTATIONS, max_regions=most, generator=seed)


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


def unplanted_data(
    truth: str, n: int, seed: int, dim: int = 4
) -> tuple[MultivariateNormal, Tensor, Tensor]:
    """Forecasts that are calibrated, or wrong in the same way everywhere."""
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
    return MultivariateNormal(torch.zeros(n, dim), covariance), y, x
