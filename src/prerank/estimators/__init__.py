"""scikit-learn estimators: they wire the parts together and compute nothing of their own."""

from prerank.estimators.flow_regressor import FlowRegressor
from prerank.estimators.mixture_regressor import MixtureRegressor
from prerank.estimators.persistence import load_model

__all__ = ["FlowRegressor", "MixtureRegressor", "load_model"]
