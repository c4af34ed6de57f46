"""Pre-rank functions: from multivariate points to the numbers that are ranked."""

from prerank.preranks.base import Custom, Linear, PreRank, Reference
from prerank.preranks.conditional import Conditional
from prerank.preranks.distances import MinimumSpanningTree, ReferenceDistance
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
from prerank.preranks.sample_density import SampleDensity
from prerank.preranks.variograms import Isotropy, Variogram

__all__ = [
    "CLASSIC",
    "HDR",
    "PAPER",
    "PCA",
    "AverageRank",
    "BandDepth",
    "Conditional",
    "Copula",
    "Custom",
    "Dependency",
    "EnergyScoreRank",
    "Isotropy",
    "Linear",
    "Location",
    "Marginal",
    "MinimumSpanningTree",
    "MultivariateRank",
    "PreRank",
    "PreRankLike",
    "Projection",
    "Reference",
    "ReferenceDistance",
    "SampleDensity",
    "Scale",
    "ThresholdExceedance",
    "Variogram",
    "applicable",
    "is_all",
    "parse",
]
