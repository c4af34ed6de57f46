"""prerank: joint calibration of multi-output probabilistic regression.

Diagnose it:

>>> import prerank, torch
>>> dist = prerank.Ensemble(torch.randn(50, 200, 3))
>>> table = prerank.diagnose(dist, torch.randn(200, 3)).table

Enforce it, with a term for any training loss or with a whole regressor:

>>> penalty = prerank.CalibrationPenalty("marginal+hdr")
>>> model = prerank.MixtureRegressor(preranks="marginal+hdr", strength="auto")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from prerank.estimators import FlowRegressor, MixtureRegressor, load_model
    from prerank.penalty import CalibrationPenalty
    from prerank.pits import pit, smooth_pit
    from prerank.scores import crps, energy_score, nll, variogram_score

__version__ = "0.1.0.dev0"
"""Of the package."""

__all__ = [
    "CalibrationPenalty",
    "Diagnosis",
    "Ensemble",
    "FlowRegressor",
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

# Where the names above live; the estimators come last, for scikit-learn is slow to load.
_ROOMS = (
    "errors",
    "distributions",
    "scores",
    "preranks",
    "pits",
    "calibration",
    "penalty",
    "diagnosis",
    "estimators",
)


def __getattr__(name: str) -> Any:
    """Import a name when it is first asked for: torch takes seconds to load."""
    if name in _ROOMS:
        return import_module(f"prerank.{name}")
    for room in _ROOMS if name in __all__ else ():
        module = import_module(f"prerank.{room}")
        if name in module.__all__:
            globals()[name] = getattr(module, name)
            return globals()[name]
    raise AttributeError(f"module 'prerank' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
