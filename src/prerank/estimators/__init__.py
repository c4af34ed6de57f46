"""scikit-learn estimators: they wire the parts together and compute nothing of their own."""

from prerank.estimators.regressors import FlowRegressor, MixtureRegressor, load_model

__all__ = ["FlowRegressor", "MixtureRegressor", "load_model"]
