"""scikit-learn estimators: they wire the parts together and compute nothing of their own."""

from prerank.extras import needed_by

with needed_by("prerank.estimators"):
    from prerank.estimators.base import JointRegressor
    from prerank.estimators.joint_predictor import JointPredictor, joint_predictor
    from prerank.estimators.predicted_regions import PredictedRegion
    from prerank.estimators.regressors import FlowRegressor, MixtureRegressor, load_model
    from prerank.estimators.scorers import neg_calibration_error, neg_energy_score, neg_nll

__all__ = [
    "FlowRegressor",
    "JointPredictor",
    "JointRegressor",
    "MixtureRegressor",
    "PredictedRegion",
    "joint_predictor",
    "load_model",
    "neg_calibration_error",
    "neg_energy_score",
    "neg_nll",
]
