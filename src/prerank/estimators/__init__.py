"""scikit-learn estimators: they wire the parts together and compute nothing of their own."""

from prerank.extras import needed_by

with needed_by("prerank.estimators"):
    from prerank.estimators.base import JointRegressor
    from prerank.estimators.predicted_regions import PredictedRegion
    from prerank.estimators.regressors import FlowRegressor, MixtureRegressor, load_model

__all__ = [
    "FlowRegressor",
    "JointRegressor",
    "MixtureRegressor",
    "PredictedRegion",
    "load_model",
]
