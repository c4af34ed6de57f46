"""Scorers for `cross_val_score` and `GridSearchCV` of scikit-learn: larger is better."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.defaults import SEED
from prerank.distributions import affine
from prerank.errors import ShapeError
from prerank.estimators.joint_predictor import JointPredictor, joint_predictor
from prerank.files.encoding import in_order
from prerank.inputs import as_tensor
from prerank.preranks import PreRankLike
from prerank.scores import energy_score, nll

__all__ = ["neg_calibration_error", "neg_energy_score", "neg_nll"]


def neg_energy_score(estimator: Any, X: Any, y: Any) -> float:
    r"""Minus the mean energy score, each target divided by its standard deviation in y.

    The divisors depend on the rows alone, so that models with other transformations of the targets
    are compared in one unit; a target that is constant in y is not divided. So all folds should
    have many rows.

    Args:
        estimator: what `joint_predictor` takes.
        X: inputs.
        y: targets.

    Example:
        >>> from sklearn.model_selection import cross_val_score
        >>> from prerank import MixtureRegressor
        >>> from prerank.datasets import AR1Regression
        >>> x, y = (part.numpy() for part in AR1Regression(dim=2).sample(100, generator=0))
        >>> model = MixtureRegressor(1, method="none", max_epochs=1, random_state=0)
        >>> cross_val_score(model, x, y, scoring=neg_energy_score, cv=2).shape
        (2,)
    """
    dist, observed = _pair(joint_predictor(estimator), X, y)
    spread = observed.std(0, correction=0)
    factor = 1 / torch.where(spread > 0, spread, 1)
    scaled = affine(dist, torch.zeros_like(factor), factor)
    return -float(energy_score(scaled, factor * observed, generator=SEED).mean())


def neg_nll(estimator: Any, X: Any, y: Any) -> float:
    """Minus the mean negative log-likelihood, in nats and in the units of y.

    Args:
        estimator: what `joint_predictor` takes; its forecasts need a density.
        X: inputs.
        y: targets.

    Raises:
        NotApplicableError: where forecasts have no density: of discrete targets, and after
            transformers of the targets that are no scalers.
    """
    return -float(nll(*_pair(joint_predictor(estimator), X, y)).mean())


def neg_calibration_error(
    estimator: Any, X: Any, y: Any, *, preranks: PreRankLike | None = None
) -> float:
    """Minus the mean excess of the PCE over all pre-ranks, in the units of `diagnose`.

    Calibration alone does not make a good forecast: choose by a score, and look at this one beside
    it.

    Args:
        estimator: what `joint_predictor` takes.
        X: inputs.
        y: targets.
        preranks: which ones, by `functools.partial`; by default all that apply.
    """
    # Errors need no p-values, of which one replicate is the fewest.
    found = joint_predictor(estimator).diagnose(X, y, preranks=preranks, n_null=1)
    return -float(np.mean([finding.excess for finding in found.by_prerank.values()]))


def _pair(predictor: JointPredictor, X: Any, y: Any) -> tuple[Distribution, Tensor]:
    dist = predictor.predict_dist(X)
    regressor = predictor.regressor
    ordered = in_order(y, regressor.target_names_) if regressor.named_targets_ else y
    observed = as_tensor(ordered, "y").double()
    shape = dist.batch_shape + dist.event_shape
    if observed.dim() == 1 and shape[1] == 1:
        observed = observed.unsqueeze(-1)
    if observed.shape != shape:
        raise ShapeError(f"y must be {tuple(shape)} for these X, got {tuple(observed.shape)}")
    return dist, observed
