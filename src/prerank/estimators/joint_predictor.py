"""Distributions, intervals and diagnoses through pipelines and searches of scikit-learn."""

from typing import Any

import numpy as np
import numpy.typing as npt

from prerank import defaults
from prerank.adapters.pipelines import InnerRegressor, inner_regressor
from prerank.recalibration import predictive_interval, predictive_region
from prerank.recalibration.predictive_regions import PredictiveRegion

__all__ = ["JointPredictor", "joint_predictor"]


class JointPredictor(InnerRegressor):
    """What a regressor predicts from inside a pipeline: `joint_predictor` makes it.

    Besides the methods below: `predict_dist(X)` and `diagnose(X, y)`.
    """

    def predict_interval(
        self,
        X: Any,
        level: float = defaults.REGION_LEVEL,
        *,
        joint: bool = False,
        calibration: tuple[Any, Any] | None = None,
        random_state: int | None = None,
    ) -> npt.NDArray[np.float64]:
        """Prediction intervals, as `predict_interval` of the regressor: `(N, D, 2)`.

        Args:
            X: inputs of the pipeline.
            level: probability of each interval.
            joint: the level is that of all targets together.
            calibration: `(X, y)` of rows that had no part in `fit`, in the units of the pipeline.
            random_state: seed of what is drawn.
        """
        if not self.targets:
            ends: npt.NDArray[np.float64] = self.regressor.predict_interval(
                self.transform(X),
                level,
                joint=joint,
                calibration=self._known(calibration),
                random_state=random_state,
            )
            return ends
        found = predictive_interval(
            self.predict_dist(X),
            level,
            joint=joint,
            calibration=self._forecast(calibration),
            generator=random_state,
        ).numpy()
        return found[:, 0] if self.regressor.flat_target_ else found

    def predict_region(
        self,
        X: Any,
        level: float = defaults.REGION_LEVEL,
        *,
        calibration: tuple[Any, Any] | None = None,
        shape: str = "density",
        random_state: int | None = None,
    ) -> PredictiveRegion:
        """Joint prediction regions, as `predict_region` of the regressor.

        Args:
            X: inputs of the pipeline.
            level: probability of each region.
            calibration: as for `predict_interval`.
            shape: `"density"` or `"box"`.
            random_state: seed of what is drawn.
        """
        options: Any = {"shape": shape}
        if not self.targets:
            options |= {"calibration": self._known(calibration), "random_state": random_state}
            region: PredictiveRegion = self.regressor.predict_region(
                self.transform(X), level, **options
            )
            return region
        options |= {"calibration": self._forecast(calibration), "generator": random_state}
        return predictive_region(self.predict_dist(X), level, **options)

    def _known(self, calibration: tuple[Any, Any] | None) -> Any:
        return calibration and (self.transform(calibration[0]), calibration[1])

    def _forecast(self, calibration: tuple[Any, Any] | None) -> Any:
        if calibration is None:
            return None
        dist = self.predict_dist(calibration[0])
        return dist, np.asarray(calibration[1], dtype=np.float64).reshape(dist.batch_shape[0], -1)


def joint_predictor(estimator: Any) -> JointPredictor:
    """Reach through a pipeline or a search for distributions, intervals and diagnoses.

    Args:
        estimator: a fitted `Pipeline`, `TransformedTargetRegressor` or search
            (`GridSearchCV`) around a regressor of prerank, also in each other.

    Returns:
        An object with `predict_dist(X)`, `predict_interval(X)`, `predict_region(X)` and
        `diagnose(X, y)`, for inputs and targets as the pipeline has them. After transformers of the
        targets other than the scalers of scikit-learn, distributions are samples, and `diagnose`
        judges the transformed targets.

    Example:
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> from prerank import MixtureRegressor
        >>> from prerank.datasets import AR1Regression
        >>> x, y = (part.numpy() for part in AR1Regression(dim=2).sample(100, generator=0))
        >>> model = MixtureRegressor(1, method="none", max_epochs=1, random_state=0)
        >>> pipeline = make_pipeline(StandardScaler(), model).fit(x, y)
        >>> joint_predictor(pipeline).predict_dist(x).event_shape
        torch.Size([2])
    """
    found = inner_regressor(estimator)
    return JointPredictor(found.regressor, found.inputs, found.targets)
