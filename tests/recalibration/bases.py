"""Forecasts to recalibrate: a new one is one more line."""

import torch
from torch.distributions import (
    Categorical,
    Distribution,
    Independent,
    Laplace,
    MixtureSameFamily,
    MultivariateNormal,
)

from prerank import GaussianMixture, null_pce, pce, pit
from truths import (
    gaussian_mixture,
    independent_normal,
    multivariate_normal,
    student_copula,
)


def mixture_same_family(rows: int, dim: int = 2, seed: int = 0) -> Distribution:
    mixture = gaussian_mixture(rows, dim=dim, seed=seed)
    return MixtureSameFamily(
        Categorical(logits=mixture.logits),
        MultivariateNormal(mixture.loc, scale_tril=mixture.scale_tril),
    )


def independent_laplace(rows: int, dim: int = 2, seed: int = 0) -> Distribution:
    normal = independent_normal(rows, dim=dim, seed=seed).base_dist
    return Independent(Laplace(normal.loc, normal.scale), 1)


BASES = {
    "mixture": gaussian_mixture,
    "normal": multivariate_normal,
    "independent normal": independent_normal,
    "mixture same family": mixture_same_family,
    "independent laplace": independent_laplace,
    "student copula": student_copula,
}


def stretched(law: GaussianMixture, factor: float) -> GaussianMixture:
    """The same mixture with wider or narrower components."""
    return GaussianMixture(law.logits, law.loc, factor * law.scale_tril)


def largest_pce(fresh: int, calibration: int, tests: int = 1) -> float:
    r"""A PCE that perfectly recalibrated rows exceed once in a thousand times.

    Uniforms at n fresh rows, seen through the empirical CDF of m calibration rows, deviate from the
    diagonal by two independent Brownian bridges, with variances 1/n and 1/m: as nm / (n + m)
    uniforms do. The level is divided by the number of components that are looked at.
    """
    effective = round(1 / (1 / fresh + 1 / calibration))
    null = null_pce(effective)
    return float(null[round((1 - 0.001 / tests) * len(null)) - 1])


def errors(law: Distribution, y: torch.Tensor, prerank: str) -> torch.Tensor:
    """PCE of each component."""
    return pce(pit(law, y, prerank, generator=7))


def self_check(law: Distribution, reference: Distribution) -> tuple[float, float]:
    r"""Mean and standard error of :math:`r(Y) / f(Y)` for draws Y of a law with density f.

    The mean is one for every density r that vanishes where f does, if the draws follow f and f
    integrates to one.
    """
    y = law.sample((100,))
    density = law.log_prob(y)
    inside = density.isfinite()
    assert float(inside.double().mean()) > 0.999  # rounding carries few draws over the edge
    # The margins of a law may leave the support of r, where torch answers NaN and r is 0.
    wanted = reference.log_prob(y).nan_to_num(nan=-torch.inf)
    ratio = torch.where(inside, (wanted - density).exp(), 0).mean(0)  # rows are independent
    return float(ratio.mean()), float(ratio.std() / len(ratio) ** 0.5)


def float32(law: MultivariateNormal) -> MultivariateNormal:
    return MultivariateNormal(law.loc.float(), scale_tril=law.scale_tril.float())


def rows_of(law: MultivariateNormal, *batch: int) -> Distribution:
    return law.expand(torch.Size(batch))
