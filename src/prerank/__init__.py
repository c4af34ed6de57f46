"""prerank: joint calibration of multi-output probabilistic regression.

Diagnose it:

>>> import prerank, torch
>>> dist = prerank.Ensemble(torch.randn(50, 200, 3))
>>> table = prerank.diagnose(dist, torch.randn(200, 3)).table

Enforce it, with a term for any training loss or with a whole regressor:

>>> penalty = prerank.CalibrationPenalty("marginal+hdr")
>>> model = prerank.MixtureRegressor(preranks="marginal+hdr", strength="auto")
"""

from prerank.lazy_names import names_from

TYPE_CHECKING = False  # as in typing, which takes longer to load than a command may be deaf
if TYPE_CHECKING:
    from typing import Any

    from prerank import preranks
    from prerank.calibration import (
        ProjectedCalibrationError,
        null_pce,
        pce,
        pce_floor,
        pit_histogram,
        reliability_curve,
    )
    from prerank.diagnosis import (
        Diagnoser,
        Diagnosis,
        Monitor,
        compare,
        diagnose,
        diagnose_where,
    )
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
    "Diagnoser",
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

# The estimators come last: scikit-learn is slow to load.
_find = names_from(
    "prerank",
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


def __getattr__(name: str) -> "Any":
    """Import a name, or a package, when it is first used."""
    from importlib import import_module
    from importlib.util import find_spec

    from prerank.extras import needed_by

    with needed_by(f"prerank.{name}"):
        if name in __all__ and name != "preranks":
            return _find(name)
        if not name.startswith("_") and find_spec(f"prerank.{name}"):
            return import_module(f"prerank.{name}")
    raise AttributeError(f"module 'prerank' has no attribute {name!r}")


def __dir__() -> list[str]:
    from pkgutil import iter_modules

    packages = {module.name for module in iter_modules(__path__)}
    internal = {"__main__", "engines", "forecasts", "interrupts", "lazy_names", "moved", "waiting"}
    return sorted({*__all__, *packages} - internal)
