"""scikit-learn estimators: they wire the parts together and compute nothing of their own."""

from prerank.estimators.flow import FlowRegressor
from prerank.estimators.mixture import MixtureRegressor
from prerank.estimators.persistence import load_model

__all__ = ["FlowRegressor", "MixtureRegressor", "load_model"]
