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
from importlib.util import find_spec
from pkgutil import iter_modules
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
    from prerank.diagnosis import Diagnosis, Monitor, compare, diagnose, diagnose_where
    from prerank.distributions import Ensemble, GaussianMixture
    from prerank.errors import PrerankError
    from prerank.estimators import FlowRegressor, MixtureRegressor, load_model
    from prerank.penalty import CalibrationPenalty
    from prerank.pits import pit, smooth_pit
    from prerank.recalibration import CalibrationHead, calibrate
    from prerank.scores import crps, energy_score, nll, variogram_score

__version__ = "0.1.0.dev0"
"""Package version."""

__all__ = [
    "CalibrationHead",
    "CalibrationPenalty",
    "Diagnosis",
    "Ensemble",
    "FlowRegressor",
    "GaussianMixture",
    "MixtureRegressor",
    "Monitor",
    "PrerankError",
    "ProjectedCalibrationError",
    "__version__",
    "calibrate",
    "compare",
    "crps",
    "diagnose",
    "diagnose_where",
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

# Where the names above live; the estimators come last: scikit-learn is slow to load.
_HOMES = (
    "errors",
    "distributions",
    "scores",
    "preranks",
    "pits",
    "calibration",
    "penalty",
    "recalibration",
    "diagnosis",
    "estimators",
)


def __getattr__(name: str) -> Any:
    """Import a name, or a package, when it is first used: torch takes seconds to load."""
    from prerank.extras import needed_by

    with needed_by(f"prerank.{name}"):
        for home in _HOMES if name in __all__ else ():
            module = import_module(f"prerank.{home}")
            if name in module.__all__:
                return globals().setdefault(name, getattr(module, name))
        if not name.startswith("_") and find_spec(f"prerank.{name}"):
            return import_module(f"prerank.{name}")
    raise AttributeError(f"module 'prerank' has no attribute {name!r}")


def __dir__() -> list[str]:
    packages = {module.name for module in iter_modules(__path__)}
    return sorted({*__all__, *packages} - {"__main__", "engines", "forecasts", "moved"})
