"""prerank: joint calibration of multi-output probabilistic regression.

Diagnose it:

>>> import prerank, torch
>>> dist = prerank.Ensemble(torch.randn(50, 200, 3))
>>> table = prerank.diagnose(dist, torch.randn(200, 3)).table
"""

from prerank import preranks
from prerank.calibration import (
    ProjectedCalibrationError,
    null_pce,
    pce,
    pce_floor,
    pit_histogram,
    reliability_curve,
)
from prerank.diagnosis import Diagnosis, diagnose
from prerank.distributions import Ensemble, GaussianMixture
from prerank.errors import PrerankError
from prerank.pits import pit, smooth_pit
from prerank.scores import crps, energy_score, nll, variogram_score

__version__ = "0.1.0.dev0"

__all__ = [
    "Diagnosis",
    "Ensemble",
    "GaussianMixture",
    "PrerankError",
    "ProjectedCalibrationError",
    "__version__",
    "crps",
    "diagnose",
    "energy_score",
    "nll",
    "null_pce",
    "pce",
    "pce_floor",
    "pit",
    "pit_histogram",
    "preranks",
    "reliability_curve",
    "smooth_pit",
    "variogram_score",
]
