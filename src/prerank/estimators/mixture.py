"""A multi-output regressor that predicts Gaussian mixtures and is calibrated while it trains."""

import copy
from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data
from torch import Tensor

from prerank.diagnosis import Diagnosis, diagnose
from prerank.distributions import GaussianMixture, affine
from prerank.distributions.quantiles import mixture_quantiles
from prerank.errors import InputError
from prerank.estimators.encoding import check_table, in_order, text_encoder
from prerank.estimators.fitting import fit_network, random_splits
from prerank.inputs import as_device, as_tensor, column_names
from prerank.models import MixtureNetwork
from prerank.preranks import PreRankLike
from prerank.scores import energy_score
from prerank.training import Settings, TrainingData

__all__ = ["MixtureRegressor"]

_MIN_STEPS = 10
_TUNING_RATE = 0.3  # with the penalty, steps as large as before it would lose accuracy


class MixtureRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    r"""Mixture density network trained with a calibration penalty.

    .. math:: \min_\theta \; \frac1N \sum_i -\log f_\theta(y_i \mid x_i)
              + \lambda \, R(\text{preranks})

    Inputs and targets are standardised by the training rows; training, selection, scores and
    diagnosis happen in these units, predictions come back in the original ones. A fifth of the
    rows validates: training stops on the objective there, without the penalty first and then,
    going on from there, with it, which aims at calibration on those rows too. Inputs beyond the
    range of the training rows are taken as its end: a network would go on in a straight line,
    however far.

    Args:
        n_components: number of Gaussians.
        hidden: widths of the hidden layers.
        scale_floor: least scale of a Gaussian, in standard deviations of the targets. Where these
            take few values, one well below the gap between them (.05, say) keeps the densities
            from becoming spikes.
        preranks: what the penalty looks at, such as `"marginal+hdr"`.
        strength: lambda, or `"auto"`: the one with the least calibration error on validation rows
            whose energy score stays within the budget, over three paired splits.
        budget: by how much the energy score may worsen, for `"auto"`.
        max_epochs: upper limit, without the penalty and again with it.
        patience: epochs without improvement after which training stops.
        batch_size: rows per step.
        lr: learning rate; with the penalty, three tenths of it.
        device: such as `"cpu"` or `"cuda"`; the GPU where there is one, by default.
        random_state: seed of splits, initial weights and noise.
        verbose: 1 shows a progress bar.

    Attributes:
        strength_: the strength that was used.
        selection_: the `Selection` of `"auto"`, else None.
        n_outputs_: number of targets.
        target_names_: their names.

    Example:
        >>> from prerank.datasets import AR1Regression
        >>> x, y = AR1Regression(dim=3).sample(400, generator=0)
        >>> model = MixtureRegressor(n_components=1, hidden=(16,), max_epochs=5, random_state=0)
        >>> model.fit(x.numpy(), y.numpy()).predict(x.numpy()).shape
        (400, 3)
    """

    def __init__(
        self,
        n_components: int = 5,
        *,
        hidden: Sequence[int] = (100, 100),
        scale_floor: float = 1e-3,
        preranks: PreRankLike = "marginal+hdr",
        strength: float | str = 10.0,
        budget: float = 0.10,
        max_epochs: int = 1000,
        patience: int = 15,
        batch_size: int = 256,
        lr: float = 1e-3,
        device: str | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
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

    def fit(self, X: Any, y: Any) -> "MixtureRegressor":
        """Train on inputs `(N, L)` and targets `(N, D)` or `(N,)`: arrays or DataFrames."""
        inputs, targets = self._check_training(X, y)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        network = MixtureNetwork(
            inputs.shape[1],
            targets.shape[1],
            self.n_components,
            tuple(self.hidden),
            scale_floor=self.scale_floor,
        )
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
            verbose=bool(self.verbose),
        )
        self.network_ = network
        self.theta_, self.base_theta_ = found.theta, found.base
        self.strength_, self.selection_ = found.strength, found.selection
        self.x_scaler_ = data.x_scaler.member(0)
        self.y_scaler_ = data.y_scaler.member(0)
        return self

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """Predictive means in original units, `(N, D)`, or `(N,)` after a fit to a vector."""
        mean: npt.NDArray[np.float64] = self.predict_dist(X).mean.cpu().numpy()
        return mean[:, 0] if self._flat else mean

    def predict_dist(self, X: Any) -> GaussianMixture:
        """Predictive distributions in original units, in float64."""
        dist = affine(
            self._standard_dist(X), self.y_scaler_.loc.squeeze(0), self.y_scaler_.scale.squeeze(0)
        )
        assert isinstance(dist, GaussianMixture)
        return dist

    def predict_quantiles(
        self, X: Any, quantiles: Sequence[float] = (0.05, 0.5, 0.95)
    ) -> npt.NDArray[np.float64]:
        """Marginal quantiles in original units, `(Q, N, D)`."""
        levels = torch.tensor([float(q) for q in quantiles], dtype=torch.float64)
        margins = self.predict_dist(X).project(torch.eye(self.n_outputs_, dtype=torch.float64))
        found: npt.NDArray[np.float64] = mixture_quantiles(margins, levels).numpy()
        return found[..., 0] if self._flat else found

    def sample(
        self, X: Any, n_samples: int = 100, *, random_state: int | None = None
    ) -> npt.NDArray[np.float64]:
        """Joint samples in original units, `(S, N, D)`."""
        drawn: npt.NDArray[np.float64] = (
            self.predict_dist(X).sample((n_samples,), generator=random_state).numpy()
        )
        return drawn[..., 0] if self._flat else drawn

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

    def without_penalty(self) -> "MixtureRegressor":
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
    def _flat(self) -> bool:
        return bool(self.flat_target_)

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
        self.named_targets_ = hasattr(y, "columns")
        return inputs, targets

    def _encode(self, X: Any, *, reset: bool = False) -> npt.NDArray[np.float64]:
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

    def _standard_dist(self, X: Any) -> GaussianMixture:
        check_is_fitted(self)
        inputs = as_tensor(self._encode(X), "X")
        standard = self.x_scaler_(inputs, clip=True).to(self.theta_.dtype)
        with torch.no_grad():
            dist = self.network_(self.theta_, standard.unsqueeze(0))
        return GaussianMixture(
            dist.logits[0].double(),
            dist.loc[0].double(),
            dist.scale_tril[0].double(),
            validate_args=False,
        )

    def _standard_pair(self, X: Any, y: Any) -> tuple[GaussianMixture, Tensor]:
        dist = self._standard_dist(X)
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
