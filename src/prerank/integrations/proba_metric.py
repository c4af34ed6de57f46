"""The projected calibration error as a metric of skpro."""

from functools import cache
from typing import TYPE_CHECKING, Any

from prerank.adapters import from_skpro
from prerank.calibration import pce
from prerank.defaults import LEVELS, N_SAMPLES, SEED
from prerank.errors import InputError
from prerank.extras import library
from prerank.inputs import as_count
from prerank.pits import pit
from prerank.preranks import PreRankLike, parse

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["skpro_metric"]


def skpro_metric(
    prerank: PreRankLike, *, n_samples: int = N_SAMPLES, levels: int = LEVELS, seed: int = SEED
) -> Any:
    r"""A metric of skpro, for its `evaluate`, `GridSearchCV` and the like: the PCE over all rows.

    .. math:: \frac1J \sum_j \frac1L \sum_l |\alpha_l - \hat F_{Z_j}(\alpha_l)|

    It is joint, one number for all targets, and belongs to all rows together: there is no
    value for each row. Compare it with `prerank.pce_floor(n)`, the error of a calibrated forecast
    of n rows. A forecast that is calibrated need not be sharp: choose models by a score, such as
    skpro's CRPS, beside it.

    Args:
        prerank: as in `pit`.
        n_samples: draws per row where there is no closed form.
        levels: of the PCE.
        seed: of draws and ties.

    Returns:
        A `skpro.metrics.base.BaseDistrMetric`, called with `(y_true, y_pred)`.

    Example:
        >>> import numpy as np, pandas as pd
        >>> from skpro.distributions import Normal
        >>> rng = np.random.default_rng(0)
        >>> y = pd.DataFrame(rng.normal(size=(2000, 2)), columns=["wind", "rain"])
        >>> metric = skpro_metric("marginal")
        >>> for sigma in (1.0, 0.5):
        ...     print(
        ...         f"{metric(y, Normal(mu=0, sigma=sigma, index=y.index, columns=y.columns)):.2f}"
        ...     )
        0.01
        0.10
    """
    return _metric_class()(prerank, n_samples=n_samples, levels=levels, seed=seed)


@cache
def _metric_class() -> type:
    base = library("skpro.metrics.base", "skpro_metric").BaseDistrMetric

    class JointCalibrationError(base):  # type: ignore[misc, valid-type]
        """PCE over all rows; `skpro_metric` makes it."""

        def __init__(
            self,
            prerank: PreRankLike,
            n_samples: int = N_SAMPLES,
            levels: int = LEVELS,
            seed: int = SEED,
        ) -> None:
            parse(prerank)
            self.prerank = prerank
            self.n_samples = as_count(n_samples, "n_samples", minimum=2)
            self.levels = as_count(levels, "levels", minimum=2)
            self.seed = as_count(seed, "seed", minimum=0)
            self.multivariate = True
            super().__init__()

        def evaluate(self, y_true: "pd.DataFrame", y_pred: object, **_: object) -> float:
            """Mean of the PCE over the components."""
            y = self._coerce_inner_df(y_true)
            dist, observed = from_skpro(y_pred, y, n_samples=self.n_samples, generator=self.seed)
            options = {"n_samples": self.n_samples, "generator": self.seed}
            z = pit(dist, observed, self.prerank, **options)
            return float(pce(z, levels=self.levels).mean())

        def evaluate_by_index(self, y_true: object, y_pred: object, **_: object) -> None:
            """A calibration error has no value for each row."""
            raise InputError("a calibration error belongs to all rows together: use evaluate")

    JointCalibrationError.__qualname__ = "JointCalibrationError"  # where pickle finds it
    return JointCalibrationError


def __getattr__(name: str) -> Any:
    """The class, for pickle: skpro is not imported before it is needed."""
    if name == "JointCalibrationError":
        return _metric_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
