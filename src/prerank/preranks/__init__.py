"""Pre-rank functions: from multivariate points to the numbers that are ranked."""

from prerank.preranks.base import Custom, Linear, PreRank, Reference
from prerank.preranks.linear import PCA, Location, Marginal, Projection
from prerank.preranks.parsing import CLASSIC, PAPER, PreRankLike, applicable, is_all, parse
from prerank.preranks.pointwise import HDR, Dependency, Scale, ThresholdExceedance
from prerank.preranks.pooled import (
    AverageRank,
    BandDepth,
    Copula,
    EnergyScoreRank,
    MultivariateRank,
)

__all__ = [
    "CLASSIC",
    "HDR",
    "PAPER",
    "PCA",
    "AverageRank",
    "BandDepth",
    "Copula",
    "Custom",
    "Dependency",
    "EnergyScoreRank",
    "Linear",
    "Location",
    "Marginal",
    "MultivariateRank",
    "PreRank",
    "PreRankLike",
    "Projection",
    "Reference",
    "Scale",
    "ThresholdExceedance",
    "applicable",
    "is_all",
    "parse",
]
