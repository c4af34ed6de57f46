"""Predictive distributions, and drawing from them."""

from prerank.distributions.affine import affine
from prerank.distributions.bounded import Bounded, Link
from prerank.distributions.cells import Atoms, Cells, Levels, find_cells
from prerank.distributions.draws import Draws, draw, draw_differentiable
from prerank.distributions.ensemble import Ensemble
from prerank.distributions.joint import JointDistribution
from prerank.distributions.mixture import GaussianMixture
from prerank.distributions.noise import RunNoise
from prerank.distributions.relaxed import RelaxedMixture
from prerank.distributions.rounded import Rounded, round_to
from prerank.distributions.rounding import Rounding
from prerank.distributions.row_slices import rows_of

__all__ = [
    "Atoms",
    "Bounded",
    "Cells",
    "Draws",
    "Ensemble",
    "GaussianMixture",
    "JointDistribution",
    "Levels",
    "Link",
    "RelaxedMixture",
    "Rounded",
    "Rounding",
    "RunNoise",
    "affine",
    "draw",
    "draw_differentiable",
    "find_cells",
    "round_to",
    "rows_of",
]
