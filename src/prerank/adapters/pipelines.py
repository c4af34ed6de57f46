"""Regressors inside pipelines, searches and transformers of targets of scikit-learn."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.defaults import SEED
from prerank.distributions import Ensemble, affine, draw
from prerank.errors import InputError, InputTypeError
from prerank.extras import needed_by
from prerank.inputs import column_labels

__all__ = ["InnerRegressor", "inner_regressor"]

_DRAWS = 1000


@dataclass(frozen=True)
class InnerRegressor:
    """A fitted regressor, and what happens to inputs and targets around it.

    Attributes:
        regressor: what predicts distributions.
        inputs: transformers of X, in the order in which they are applied.
        targets: transformers of y, likewise.
    """

    regressor: Any
    inputs: tuple[Any, ...] = ()
    targets: tuple[Any, ...] = ()

    def transform(self, X: Any) -> Any:
        """Inputs as the regressor has them."""
        for transformer in self.inputs:
            X = transformer.transform(X)
        return X

    def predict_dist(self, X: Any, *, random_state: int = SEED) -> Distribution:
        """Predictive distributions in the units of y.

        Scalers of scikit-learn keep the family of the distribution. After any other transformer
        the forecast is an `Ensemble` of 1,000 draws that are transformed back.
        """
        dist: Distribution = self.regressor.predict_dist(self.transform(X))
        for transformer in reversed(self.targets):
            unit = _unit_of(transformer, dist.event_shape[0])
            dist = (
                _restored(dist, transformer, random_state) if unit is None else affine(dist, *unit)
            )
        return dist

    def diagnose(self, X: Any, y: Any, **options: Any) -> Any:
        """Calibration in the units in which the regressor diagnoses, of the transformed targets."""
        if not self.targets:
            return self.regressor.diagnose(self.transform(X), y, **options)
        values = np.asarray(y, dtype=np.float64)
        labels, flat = column_labels(y), values.ndim == 1
        values = values.reshape(len(values), -1)
        for transformer in self.targets:
            labels = labels if _keeps_targets(transformer) else None
            values = transformer.transform(values)
        if labels is not None:
            options = {"names": [str(label) for label in labels], **options}
        options = {"units": "standard deviations of the transformed training targets", **options}
        values = values[:, 0] if flat and values.shape[1] == 1 else values
        return self.regressor.diagnose(self.transform(X), values, **options)


@needed_by("inner_regressor")
def inner_regressor(estimator: Any) -> InnerRegressor:
    """Find the regressor with a `predict_dist` in a fitted estimator of scikit-learn.

    Args:
        estimator: a `Pipeline`, a `TransformedTargetRegressor`, a search with `best_estimator_`,
            these in each other, or the regressor itself.
    """
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.pipeline import Pipeline
    from sklearn.utils.validation import check_is_fitted

    if hasattr(estimator, "predict_dist"):
        return InnerRegressor(estimator)
    if isinstance(estimator, Pipeline):
        inner = inner_regressor(estimator[-1])
        before = tuple(step for _, step in estimator.steps[:-1] if _acts(step))
        return replace(inner, inputs=before + inner.inputs)
    if isinstance(estimator, TransformedTargetRegressor):
        check_is_fitted(estimator)
        inner = inner_regressor(estimator.regressor_)
        return replace(inner, targets=(estimator.transformer_, *inner.targets))
    if hasattr(estimator, "best_estimator_"):
        return inner_regressor(estimator.best_estimator_)
    if hasattr(estimator, "cv_results_") or hasattr(estimator, "param_grid"):
        raise InputError("the search has no best_estimator_: fit it with refit=True")
    raise InputTypeError(
        "estimator must be a regressor with predict_dist, or a Pipeline, "
        f"TransformedTargetRegressor or fitted search around one, got {type(estimator).__name__}"
    )


def _acts(step: Any) -> bool:
    return step is not None and not isinstance(step, str)  # "passthrough"


def _unit_of(transformer: Any, size: int) -> tuple[Tensor, Tensor] | None:
    """Position and scale of y where `y = loc + scale * z` for transformed z, `(D,)` each."""
    from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

    kind = type(transformer)
    if kind is StandardScaler:
        loc = transformer.mean_ if transformer.with_mean else None
        scale = transformer.scale_
    elif kind is RobustScaler:
        loc, scale = transformer.center_, transformer.scale_
    elif kind is MaxAbsScaler:
        loc, scale = None, transformer.scale_
    elif kind is MinMaxScaler:
        scale = 1 / transformer.scale_
        loc = -transformer.min_ * scale
    else:
        return None
    start = np.zeros(size) if loc is None else loc
    width = np.ones(size) if scale is None else scale
    return torch.from_numpy(start.astype(np.float64)), torch.from_numpy(width.astype(np.float64))


def _keeps_targets(transformer: Any) -> bool:
    """Whether transformed target d is a function of target d."""
    from sklearn.base import OneToOneFeatureMixin
    from sklearn.preprocessing import FunctionTransformer

    return isinstance(transformer, OneToOneFeatureMixin | FunctionTransformer)


def _restored(dist: Distribution, transformer: Any, seed: int) -> Ensemble:
    """Draws that are transformed back."""
    points = draw(dist, _DRAWS, generator=seed).points
    flat = points.reshape(-1, points.shape[-1]).numpy()
    back = np.asarray(transformer.inverse_transform(flat), dtype=np.float64)
    if not np.isfinite(back).all():
        raise InputError(
            f"{type(transformer).__name__}.inverse_transform gives values that are not finite for "
            "draws of the forecast: choose a transformer that is defined on the whole line"
        )
    return Ensemble(back.reshape(*points.shape[:-1], -1))
