"""Which words a verdict finds for faults that were put in.

`right` is the share of data sets whose headline has all words of the fault, and `wrong` the share
with another one. A headline that names a failing pre-rank only has no word and counts as neither.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import torch
from scipy import stats
from torch import Tensor
from torch.distributions import Distribution, MultivariateNormal

from prerank import Ensemble, diagnose

PHRASES = {
    "bias": ("values higher than", "values lower than"),
    "narrow": ("too narrow",),
    "wide": ("too wide",),
    "heavy": ("heavy tails",),
    "light": ("light tails",),
    "skew": ("skewed",),
    "modes": ("several modes",),
    "shape": ("wrong shape",),
    "dependence": ("dependence",),
    "more": ("they move together more",),
    "less": ("they move together less",),
    "extremes": ("far out in the same rows",),
}

Case = tuple[Distribution, Tensor]
Scenario = tuple[int, int, Callable[[int, int], Case], str]


def equal(d: int, r: float) -> Tensor:
    """Covariance of d targets of unit variance and equal correlation."""
    return (1 - r) * torch.eye(d) + r


def normal(n: int, covariance: Tensor) -> MultivariateNormal:
    """The same normal forecast in n rows."""
    return MultivariateNormal(torch.zeros(n, len(covariance)), covariance)


def spread(ratio: float, r: float = 0.0) -> Callable[[int, int], Case]:
    """Every target predicted with `ratio` times its standard deviation."""
    return lambda n, d: (normal(n, ratio**2 * equal(d, r)), normal(n, equal(d, r)).sample())


def first(change: Callable[[Tensor], Tensor], r: float = 0.0) -> Callable[[int, int], Case]:
    """A change of the first target's observations."""

    def case(n: int, d: int) -> Case:
        y = normal(n, equal(d, r)).sample()
        y[:, 0] = change(y[:, 0])
        return normal(n, equal(d, r)), y

    return case


def every(draw: Callable[[tuple[int, int]], Tensor]) -> Callable[[int, int], Case]:
    """Independent targets that are predicted as standard normal."""
    return lambda n, d: (normal(n, torch.eye(d)), draw((n, d)))


def joint(
    true: Callable[[int], Tensor], guess: Callable[[int], Tensor]
) -> Callable[[int, int], Case]:
    """Right margins, another covariance."""
    return lambda n, d: (normal(n, guess(d)), normal(n, true(d)).sample())


def autoregressive(d: int, r: float = 0.7) -> Tensor:
    """Correlations that fall with the distance of targets."""
    at = torch.arange(d)
    return r ** (at - at[:, None]).abs().float()


def mean_of_autoregressive(d: int) -> Tensor:
    """Equal correlations with the same mean."""
    return equal(d, float((autoregressive(d).sum() - d) / (d * (d - 1))))


def student_copula(n: int, d: int) -> Case:
    """Normal margins with the dependence of a Student t with 3 degrees of freedom."""
    t = (
        normal(n, equal(d, 0.5)).sample()
        / torch.distributions.Chi2(3.0).sample((n, 1)).div(3).sqrt()
    )
    scale = torch.distributions.Chi2(3.0).sample((200_000,)).div(3).sqrt()
    order = torch.sort(torch.randn(200_000) / scale).values
    u = (torch.searchsorted(order, t) + 0.5) / (len(order) + 1)
    return normal(n, equal(d, 0.5)), torch.special.ndtri(u)


def shuffled(n: int, d: int) -> Case:
    """Members that were shuffled within each target, and are too narrow."""
    members = 0.7 * normal(n, equal(d, 0.7)).sample((50,))
    columns = [members[torch.rand(50, n).argsort(0), torch.arange(n), j] for j in range(d)]
    return Ensemble(torch.stack(columns, -1)), normal(n, equal(d, 0.7)).sample()


def members(
    size: int, ratio: float = 1.0, bias: float = 0.0, r: float = 0.5
) -> Callable[[int, int], Case]:
    """Ensembles of a wrong spread, or too high."""
    return lambda n, d: (
        Ensemble(bias + ratio * normal(n, equal(d, r)).sample((size,))),
        normal(n, equal(d, r)).sample(),
    )


def counts(predicted: float, true: float) -> Callable[[int, int], Case]:
    """Fifty members with Poisson counts of the right copula, whose mean is wrong."""

    def drawn(size: tuple[int, ...], d: int, mean: float) -> Tensor:
        u = torch.special.ndtr(MultivariateNormal(torch.zeros(d), equal(d, 0.8)).sample(size))
        return torch.from_numpy(stats.poisson.ppf(u.numpy(), mean)).float()

    return lambda n, d: (Ensemble(drawn((50, n), d, predicted)), drawn((n,), d, true))


def student(size: tuple[int, int]) -> Tensor:
    """Four degrees of freedom, unit variance."""
    return torch.distributions.StudentT(4.0).sample(size) / math.sqrt(2)


def outliers(size: tuple[int, int]) -> Tensor:
    """Three per cent have a standard deviation of 5."""
    return torch.randn(size) * torch.where(torch.rand(size) < 0.03, 5.0, 1.0)


def gamma(size: tuple[int, int]) -> Tensor:
    """Gamma with shape 4, mean 0 and unit variance."""
    return (torch.distributions.Gamma(4.0, 1.0).sample(size) - 4) / 2


def two_modes(size: tuple[int, int]) -> Tensor:
    """Modes at -.9 and .9, unit variance."""
    return 0.9 * (2 * torch.randint(2, size) - 1) + math.sqrt(0.19) * torch.randn(size)


def biased_modes(size: tuple[int, int]) -> Tensor:
    """The same, half a standard deviation higher."""
    return two_modes(size) + 0.5


def flat(size: tuple[int, int]) -> Tensor:
    """Uniform, unit variance."""
    return math.sqrt(12) * (torch.rand(size) - 0.5)


SCENARIOS: dict[str, Scenario] = {
    "calibrated": (500, 4, spread(1.0, 0.5), ""),
    "sd 0.90 in every target": (300, 4, spread(0.90), "narrow"),
    "sd 0.93 in every target": (500, 6, spread(0.93), "narrow"),
    "sd 0.92 in every target": (300, 8, spread(0.92), "narrow"),
    "sd 0.97 in every target": (1000, 16, spread(0.97), "narrow"),
    "sd 0.95 in every target": (300, 30, spread(0.95), "narrow"),
    "sd 1.05 in every target": (300, 30, spread(1.05), "wide"),
    "sd 0.80 in every target, correlated": (500, 3, spread(0.8, 0.6), "narrow"),
    "bias of 0.3 in one target": (500, 4, first(lambda y: y + 0.3), "bias"),
    "sd 0.77 in one target": (500, 4, first(lambda y: 1.3 * y, 0.5), "narrow"),
    "sd 1.3 in one target": (500, 4, first(lambda y: y / 1.3, 0.5), "wide"),
    "Student t4": (1000, 3, every(student), "heavy"),
    "3 % outliers of sd 5": (1000, 3, every(outliers), "heavy"),
    "uniform": (500, 3, every(flat), "light"),
    "gamma of shape 4": (500, 3, every(gamma), "skew"),
    "two modes": (500, 3, every(two_modes), "modes"),
    "correlation 0.5 not predicted": (
        500,
        3,
        joint(lambda d: equal(d, 0.5), torch.eye),
        "dependence more",
    ),
    "correlation 0.8 for 0.5": (
        500,
        3,
        joint(lambda d: equal(d, 0.5), lambda d: equal(d, 0.8)),
        "dependence less",
    ),
    "AR for equal correlations": (
        1000,
        5,
        joint(autoregressive, mean_of_autoregressive),
        "dependence",
    ),
    "Student t3 copula": (1000, 3, student_copula, "dependence extremes"),
    "members shuffled and narrow": (500, 3, shuffled, "narrow dependence more"),
    "20 members of sd 0.75": (500, 4, members(20, 0.75), "narrow"),
    "20 members of sd 1.35": (500, 4, members(20, 1.35), "wide"),
    "3 members of sd 0.7": (1000, 3, members(3, 0.7, r=0.0), "narrow"),
    "5 members with a bias of 0.5": (500, 3, members(5, bias=0.5, r=0.8), "bias"),
    "20 members with a bias of 1.5": (500, 3, members(20, bias=1.5, r=0.8), "bias"),
    "sd 0.3 in two targets of correlation .95": (500, 2, spread(0.3, 0.95), "narrow"),
    "two modes and a bias of 0.5": (
        500,
        3,
        every(biased_modes),
        "bias modes",
    ),
    "counts of mean 0.5 for 1.5": (500, 3, counts(0.5, 1.5), "bias narrow"),
}


def words_of(headline: str) -> set[str]:
    """Faults that a headline names."""
    if " fails, " in headline or headline.startswith(("No ", "Too few")):
        return set()
    headline = headline.replace("the prediction", "")
    return {word for word, all_of in PHRASES.items() if any(one in headline for one in all_of)}


CELLS = [
    ({"scenario": name, "n": n, "D": d, "words": words or "none"}, 200)
    for name, (n, d, _, words) in SCENARIOS.items()
]


def outcomes(
    seeds: range, *, scenario: str, n: int, D: int, words: str
) -> Iterator[dict[str, bool]]:
    """Whether the words are right, and whether one is wrong."""
    wanted = set(words.split()) - {"none"}
    for seed in seeds:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            dist, y = SCENARIOS[scenario][2](n, D)
        found = words_of(diagnose(dist, y, generator=seed).verdict().headline)
        wrong = bool(found - wanted)
        yield {"rate": wanted <= found and not wrong, "wrong": wrong}


def lines(cell: dict[str, Any], table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """One line for each scenario, with the shares of right and wrong words."""
    yield {**cell, "event": "right words", **table.mean(), "data_sets": len(table)}
