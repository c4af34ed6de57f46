"""Predictive distributions, and drawing from them."""

from prerank.distributions.affine import affine
from prerank.distributions.draws import Draws, draw, draw_differentiable
from prerank.distributions.ensemble import Ensemble
from prerank.distributions.mixture import GaussianMixture
from prerank.distributions.noise import RunNoise
from prerank.distributions.relaxed import RelaxedMixture

__all__ = [
    "Draws",
    "Ensemble",
    "GaussianMixture",
    "RelaxedMixture",
    "RunNoise",
    "affine",
    "draw",
    "draw_differentiable",
]
