"""What all regressors share: tables in, a trained network, scores and diagnoses out."""

import copy
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data
from torch import Tensor

from prerank.diagnosis import Diagnosis, diagnose
from prerank.distributions import GaussianMixture, affine
from prerank.errors import InputError
from prerank.estimators.fitting import fit_network, random_splits
from prerank.files.encoding import check_table, in_order, text_encoder
from prerank.inputs import as_device, as_tensor, column_labels, column_names, refuse_dataset
from prerank.models import FlowLaw, FlowNetwork, MixtureNetwork
from prerank.preranks import PreRankLike
from prerank.scores import energy_score
from prerank.training import Settings, TrainingData

__all__ = ["JointRegressor"]

Law = GaussianMixture | FlowLaw

_MIN_STEPS = 10
_TUNING_RATE = 0.3  # with the penalty, steps as large as before it would lose accuracy


class JointRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A network from inputs to joint distributions of the targets, trained with a penalty.

    A regressor says which network it trains (`_build`), what that predicts in standardised units
    (`_law`), and what point and which quantiles stand for that. The arguments are those that all
    have.
    """

    network_: MixtureNetwork | FlowNetwork

    def __init__(
        self,
        *,
        hidden: Sequence[int],
        scale_floor: float,
        preranks: PreRankLike,
        strength: float | str,
        budget: float,
        max_epochs: int,
        patience: int,
        batch_size: int,
        lr: float,
        device: str | None,
        random_state: int | np.random.RandomState | None,
        verbose: int,
    ) -> None:
        self.hidden = hidden
        self.scale_floor = scale_floor
        self.preranks = preranks
        self.strength = strength
        self.budget = budget
        self.max_epochs = max_epochs
        self.patience = patience
        self.batch_size = batch_size
        self.lr = lr
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @property
    def _penalty_draws(self) -> int:
        """Draws per row of the penalty."""
        return 100

    @property
    @abstractmethod
    def _particulars(self) -> Mapping[str, str]:
        """What is particular to this kind of regressor, for a report."""

    @abstractmethod
    def _build(self, n_inputs: int, n_targets: int) -> MixtureNetwork | FlowNetwork:
        """The network to train."""

    @abstractmethod
    def _law(self, x: Tensor) -> Law:
        """Predictions for standardised inputs `(N, L)`: standardised too, in float64."""

    @abstractmethod
    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """Point predictions in original units, `(N, D)`, or `(N,)` after a fit to a vector."""

    @abstractmethod
    def predict_quantiles(
        self, X: Any, quantiles: Sequence[float] = (0.05, 0.5, 0.95)
    ) -> npt.NDArray[np.float64]:
        """Marginal quantiles in original units, `(Q, N, D)`."""

    def fit(self, X: Any, y: Any) -> Self:
        """Train on inputs `(N, L)` and targets `(N, D)` or `(N,)`: arrays or DataFrames."""
        inputs, targets = self._check_training(X, y)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        network = self._build(inputs.shape[1], targets.shape[1])
        splits = random_splits(len(inputs), seed, self.strength)
        data = TrainingData.build(inputs, targets, splits, device=self._device())
        found = fit_network(
            network,
            data,
            seed=seed,
            preranks=self.preranks,
            strength=self.strength,
            budget=self.budget,
            settings=self._settings(),
            n_samples=self._penalty_draws,
            verbose=bool(self.verbose),
        )
        self.network_ = network
        self.theta_, self.base_theta_ = found.theta, found.base
        self.strength_, self.selection_ = found.strength, found.selection
        self.x_scaler_ = data.x_scaler.member(0)
        self.y_scaler_ = data.y_scaler.member(0)
        return self

    def predict_dist(self, X: Any) -> Law:
        """Predictive distributions in original units, in float64."""
        dist = affine(self._law(self._standard_inputs(X)), *self._units)
        assert isinstance(dist, Law)
        return dist

    def sample(
        self, X: Any, n_samples: int = 100, *, random_state: int | None = None
    ) -> npt.NDArray[np.float64]:
        """Joint samples in original units, `(S, N, D)`."""
        return self._shaped(self.predict_dist(X).sample((n_samples,), generator=random_state))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Minus the mean energy score in standardised units: larger is better."""
        dist, observed = self._standard_pair(X, y)
        scores = energy_score(dist, observed, generator=0).numpy()
        return -float(np.average(scores, weights=sample_weight))

    def diagnose(self, X: Any, y: Any, **options: Any) -> Diagnosis:
        """Calibration on rows that were not used in `fit`, in standardised units.

        Takes the keywords of `prerank.diagnose`.
        """
        dist, observed = self._standard_pair(X, y)
        import pandas as pd

        named = pd.DataFrame(observed.numpy(), columns=list(self.target_names_))
        return diagnose(dist, named, **{"generator": 0, **options})

    def without_penalty(self) -> Self:
        """The model as it was before the penalty came in, to see what that has changed.

        It is there after `fit`, and not saved with the model.
        """
        check_is_fitted(self)
        if not hasattr(self, "base_theta_"):
            raise InputError("the model without the penalty is not saved: fit again to have it")
        model = copy.copy(self)
        model.theta_, model.strength_, model.selection_ = self.base_theta_, 0.0, None
        return model

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model to a folder; `prerank.load_model` reads it."""
        from prerank.estimators.persistence import save_model

        save_model(self, path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        tags.regressor_tags.poor_score = True  # the score is no R^2
        tags.non_deterministic = False
        tags.input_tags.string = False
        return tags

    @property
    def _units(self) -> tuple[Tensor, Tensor]:
        """Means and standard deviations of the targets, `(D,)` each."""
        return self.y_scaler_.loc.squeeze(0), self.y_scaler_.scale.squeeze(0)

    def _shaped(self, found: Tensor) -> npt.NDArray[np.float64]:
        """Results `(..., D)` as an array, without the last axis after a fit to a vector."""
        array: npt.NDArray[np.float64] = found.cpu().numpy()
        return array[..., 0] if self.flat_target_ else array

    def _settings(self) -> Settings:
        return Settings(
            lr=self.lr,
            batch_size=self.batch_size,
            min_steps=_MIN_STEPS,
            max_epochs=self.max_epochs,
            patience=self.patience,
            tuning_patience=1,
            tuning_rate=_TUNING_RATE,
        )

    def _check_training(
        self, X: Any, y: Any
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        if y is None:
            raise InputError("this regressor requires y to be passed, but the target y is None")
        number = isinstance(self.strength, int | float | np.number)
        if self.strength != "auto" and not (number and 0 <= float(self.strength) < np.inf):
            raise InputError(f"strength must be at least 0 or 'auto', got {self.strength!r}")
        if not self.budget >= 0:
            raise InputError(f"budget must not be negative, got {self.budget!r}")
        if isinstance(self.hidden, int | float):
            raise InputError(f"hidden must list the widths of the layers, got {self.hidden!r}")
        refuse_dataset(y, "y")
        check_table(X, "X")
        check_table(y, "y")
        self.encoder_ = text_encoder(X)
        inputs = self._encode(X, reset=True)
        targets = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        if targets.ndim > 2 or len(targets) != len(inputs):
            raise InputError(
                f"X has {len(inputs)} rows and y has shape {targets.shape}: y must be "
                f"({len(inputs)}, D) or ({len(inputs)},)"
            )
        if len(inputs) < 10:
            raise InputError(
                f"n_samples={len(inputs)} is too few: at least 10 rows are needed to train and "
                "validate"
            )
        self.flat_target_ = targets.ndim == 1
        targets = targets.reshape(len(targets), -1)
        self.n_outputs_ = targets.shape[1]
        self.target_names_ = tuple(column_names(y, self.n_outputs_))
        self.named_targets_ = column_labels(y) is not None
        return inputs, targets

    def _encode(self, X: Any, *, reset: bool = False) -> npt.NDArray[np.float64]:
        refuse_dataset(X, "X")
        if self.encoder_ is None:
            checked: npt.NDArray[np.float64] = validate_data(self, X, reset=reset, dtype=np.float64)
            return checked
        if not hasattr(X, "iloc"):
            raise InputError(
                "the model was fitted to a table with text columns: pass a DataFrame with the same "
                "columns"
            )
        validate_data(self, X, reset=reset, skip_check_array=True)
        encoded: npt.NDArray[np.float64] = check_array(self.encoder_(X), dtype=np.float64)
        return encoded

    def _standard_inputs(self, X: Any) -> Tensor:
        check_is_fitted(self)
        return self.x_scaler_(as_tensor(self._encode(X), "X"), clip=True)

    def _standard_pair(self, X: Any, y: Any) -> tuple[Law, Tensor]:
        dist = self._law(self._standard_inputs(X))
        refuse_dataset(y, "y")
        if self.named_targets_:
            y = in_order(y, self.target_names_)
        targets = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        rows = dist.batch_shape[0]
        flat = self.n_outputs_ == 1 and targets.shape == (rows,)
        if not flat and targets.shape != (rows, self.n_outputs_):
            raise InputError(
                f"X has {rows} rows and the model {self.n_outputs_} targets, but y has shape "
                f"{targets.shape}"
            )
        observed = as_tensor(targets.reshape(rows, -1), "y")
        return dist, self.y_scaler_(observed)

    def _device(self) -> torch.device:
        if self.device is None:
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return as_device(self.device, "device")
