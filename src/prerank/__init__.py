"""prerank: joint calibration of multi-output probabilistic regression.

Diagnose it:

>>> import prerank, torch
>>> dist = prerank.Ensemble(torch.randn(50, 200, 3))
>>> table = prerank.diagnose(dist, torch.randn(200, 3)).table

Enforce it, with a term for any training loss or with a whole regressor:

>>> penalty = prerank.CalibrationPenalty("marginal+hdr")
>>> model = prerank.MixtureRegressor(preranks="marginal+hdr", strength="auto")
"""

from typing import TYPE_CHECKING, Any

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
from prerank.penalty import CalibrationPenalty
from prerank.pits import pit, smooth_pit
from prerank.scores import crps, energy_score, nll, variogram_score

if TYPE_CHECKING:
    from prerank.estimators import MixtureRegressor, load_model

__version__ = "0.1.0.dev0"

__all__ = [
    "CalibrationPenalty",
    "Diagnosis",
    "Ensemble",
    "GaussianMixture",
    "MixtureRegressor",
    "PrerankError",
    "ProjectedCalibrationError",
    "__version__",
    "crps",
    "diagnose",
    "energy_score",
    "load_model",
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


def __getattr__(name: str) -> Any:
    """Import the estimators when they are first asked for: scikit-learn is slow to load."""
    if name in ("MixtureRegressor", "load_model"):
        from prerank import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'prerank' has no attribute {name!r}")
