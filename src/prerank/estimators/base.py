"""What all regressors share: tables in, trained networks, scores and diagnoses out."""

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data
from torch import Tensor
from torch.distributions import Distribution

from prerank import defaults
from prerank.diagnosis import Diagnosis, diagnose
from prerank.distributions import Bounded, GaussianMixture, Rounded, Rounding, affine
from prerank.distributions.draws import forked_state
from prerank.distributions.noise import as_noise
from prerank.errors import InputError
from prerank.estimators.bounds import numbered_bounds
from prerank.estimators.containers import LabelledResults
from prerank.estimators.methods import Method
from prerank.estimators.persistence import save_model
from prerank.estimators.predicted_regions import PredictedRegion
from prerank.estimators.terminal import progress_bar
from prerank.files.encoding import check_table, in_order, table_encoder
from prerank.inputs import (
    as_device,
    as_probability,
    as_tensor,
    column_labels,
    column_names,
    refuse_collections,
)
from prerank.models import FlowDistribution, FlowMixture, FlowNetwork, MixtureNetwork
from prerank.models.members import forecast_each, pooled
from prerank.numerics.folds import copied_rows
from prerank.preranks import PreRankLike
from prerank.recalibration import predictive_interval, predictive_region
from prerank.scores import energy_score
from prerank.training import Progress, Settings, TrainingData

__all__ = ["JointRegressor"]

_UNITS = "standard deviations of the training targets"
_ENDS = ("lower", "upper")
_MIN_STEPS = 10
_SPREADS = 16  # of discrete targets, which take turns in training
_TUNING_RATE = 0.3  # with the penalty, steps as large as before it would lose accuracy


@dataclass(kw_only=True, eq=False, repr=False)
class JointRegressor(LabelledResults, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Networks from inputs to joint distributions of the targets, and their calibration.

    A regressor says which network it trains (`network_class`), and what point and which quantiles
    stand for a prediction. The arguments are those that all have.
    """

    hidden: Sequence[int] = (100, 100)
    scale_floor: float = defaults.SCALE_FLOOR
    method: str = defaults.METHOD
    members: int = 1
    folds: int | None = None
    preranks: PreRankLike | None = None
    strength: float | str = defaults.STRENGTH
    budget: float = defaults.BUDGET
    nll_budget: float | None = defaults.NLL_BUDGET
    discrete: str | bool = defaults.DISCRETE
    bounds: Mapping[str, Any] | None = None
    impute: bool = False
    dates: bool = False
    max_epochs: int = defaults.MAX_EPOCHS
    patience: int = defaults.PATIENCE
    batch_size: int = defaults.BATCH_SIZE
    lr: float = defaults.LEARNING_RATE
    device: str | None = None
    random_state: int | np.random.RandomState | None = None
    verbose: int = 0

    network_: MixtureNetwork | FlowNetwork = field(init=False)

    network_class: ClassVar[type[MixtureNetwork | FlowNetwork]]
    """What is trained."""

    own_parameter: ClassVar[tuple[str, str]]
    """The parameter that the network has besides `hidden`, and what a report calls it."""

    @property
    def _penalty_draws(self) -> int:
        """Draws per row of the penalty."""
        return defaults.TRAINING_SAMPLES

    @abstractmethod
    def _quantiles(self, X: Any, levels: list[float]) -> Tensor:
        """Marginal quantiles before they are rounded, in original units, `(Q, N, D)`."""

    @abstractmethod
    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """Point predictions in original units, `(N, D)`, or `(N,)` after a fit to a vector."""

    def predict_quantiles(
        self, X: Any, quantiles: Sequence[float] = defaults.QUANTILES
    ) -> npt.NDArray[np.float64]:
        """Marginal quantiles in original units, `(Q, N, D)`."""
        levels = [float(q) for q in quantiles]
        values = self._snapped_quantiles(X, levels)
        return self._labelled(values, X, axis=0, level="quantile", labels=levels)

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        groups: Any = None,
        time: Any = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Self:
        """Train on inputs `(N, L)` and targets `(N, D)` or `(N,)`: arrays or DataFrames.

        Args:
            X: inputs.
            y: targets.
            groups: name of each row's group, `(N,)`: rows of a group are trained on together, or
                held out together. Copies of a row are a group by default.
            time: time of each row, `(N,)`: held-out rows are blocks of neighbours in time.
            on_progress: called after each epoch, instead of the bar of `verbose`.
        """
        method = Method.of(self)
        for name, value in {"X": X, "y": y, "groups": groups, "time": time}.items():
            refuse_collections(value, name)
        inputs, targets = self._check_training(X, y)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        if groups is None and time is None:
            groups = copied_rows(inputs, targets)
        network = self.network_class(
            inputs.shape[1],
            targets.shape[1],
            getattr(self, self.own_parameter[0]),
            tuple(self.hidden),
            scale_floor=self.scale_floor,
        )
        partition = method.partition(len(inputs), seed, groups=groups, time=time)
        self.rounding_, y, others = self._spread(targets, seed)
        data = TrainingData.build(
            inputs, y, partition.splits, spreads=others, device=self._device()
        )
        with progress_bar(bool(self.verbose) and on_progress is None) as bar:
            fitted = method.train(
                network,
                data,
                partition,
                seed,
                settings=self._settings(),
                groups=groups,
                time=time,
                on_epoch=on_progress or bar,
            )
        self.network_ = network
        self.theta_, self.base_theta_ = fitted.theta, fitted.base
        self.strength_, self.selection_ = fitted.strength, fitted.selection
        self.head_, self.head_rows_ = fitted.head, fitted.head_rows
        self.folds_ = partition.folds if self.head_ is not None else 0
        if self.head_ is not None:
            self.head_.target_names_ = self.target_names_
        splits = list(dict.fromkeys(partition.runs[member].split for member in partition.members))
        self.x_scaler_, self.y_scaler_ = (s.select(splits) for s in (data.x_scaler, data.y_scaler))
        values = as_tensor(targets, "y")
        treated = torch.tensor(self.rounding_.treated)
        treated &= (values != values[:1]).any(
            0
        )  # a constant has no standard deviation to divide by
        self.target_scales_ = torch.where(treated, values.std(0, correction=0), self._units[1])
        return self

    def predict_dist(self, X: Any) -> Distribution:
        """Predictive distributions in original units, in float64.

        `Rounded` ones where targets are discrete; their `base` is the forecast of spread targets.
        `Bounded` ones where targets have bounds; their `base` is the forecast on the whole line.
        """
        spread = self._spread_dist(X)  # which asks whether the model is fitted
        return self.rounding_(spread)

    def sample(
        self,
        X: Any,
        n_samples: int = defaults.PREDICTED_SAMPLES,
        *,
        random_state: int | None = None,
    ) -> npt.NDArray[np.float64]:
        """Joint samples in original units, `(S, N, D)`."""
        dist = self.predict_dist(X)
        if isinstance(dist, GaussianMixture | FlowDistribution | FlowMixture | Rounded | Bounded):
            return self._shaped(dist.sample((n_samples,), generator=random_state))
        with forked_state(as_noise(random_state)):
            return self._shaped(dist.sample(torch.Size((n_samples,))))

    def predict_interval(
        self,
        X: Any,
        level: float = defaults.REGION_LEVEL,
        *,
        joint: bool = False,
        calibration: tuple[Any, Any] | None = None,
        random_state: int | None = None,
    ) -> npt.NDArray[np.float64]:
        """Prediction intervals of each target in original units.

        Args:
            X: inputs.
            level: probability of each interval, in (0, 1).
            joint: the level is that of all targets together: bands that hold at once.
            calibration: `(X, y)` of rows that had no part in `fit`. They give the intervals at
                least this coverage, whatever the model: see `prerank.recalibration`.
            random_state: seed of what is drawn where `joint` or `calibration` is given.

        Returns:
            Lower and upper ends `(N, D, 2)`, or `(N, 2)` after a fit to a vector.
        """
        if not joint and calibration is None:
            tail = (1 - as_probability(level, "level")) / 2
            values = np.moveaxis(self._snapped_quantiles(X, [tail, 1 - tail]), 0, -1)
            return self._labelled(values, X, axis=-1, level="end", labels=_ENDS)
        ends = predictive_interval(
            self.predict_dist(X),
            level,
            joint=joint,
            calibration=self._calibration_rows(calibration),
            generator=random_state,
        )
        values = np.stack([self._shaped(end) for end in ends.unbind(-1)], -1)
        return self._labelled(values, X, axis=-1, level="end", labels=_ENDS)

    def predict_region(
        self,
        X: Any,
        level: float = defaults.REGION_LEVEL,
        *,
        calibration: tuple[Any, Any] | None = None,
        shape: str = "density",
        random_state: int | None = None,
    ) -> PredictedRegion:
        """Joint prediction regions of all targets, in original units.

        Args:
            X: inputs.
            level: probability of each region, in (0, 1).
            calibration: `(X, y)` of rows that had no part in `fit`. They give the regions at least
                this coverage, whatever the model: see `prerank.recalibration.predictive_region`.
            shape: `"density"` for the smallest regions, `"box"` for intervals that hold together.
            random_state: seed of what is drawn.

        Returns:
            An object with `contains(y)`, `volume()` and `plot(row)`.
        """
        region = predictive_region(
            self.predict_dist(X),
            level,
            calibration=self._calibration_rows(calibration),
            shape=shape,
            generator=random_state,
        )
        return PredictedRegion(region, self.target_names_)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Minus the mean energy score in standardised units: larger is better."""
        dist, observed = self._standard_pair(X, y)
        refuse_collections(sample_weight, "sample_weight")
        scores = energy_score(dist, observed, generator=0).numpy()
        return -float(np.average(scores, weights=sample_weight))

    def diagnose(self, X: Any, y: Any, **options: Any) -> Diagnosis:
        """Calibration on rows that were not used in `fit`, in standardised units.

        Takes the keywords of `prerank.diagnose`.
        """
        dist, observed = self._standard_pair(X, y)
        import pandas as pd

        named = pd.DataFrame(observed.numpy(), columns=list(self.target_names_))
        return diagnose(dist, named, **{"units": _UNITS, **options})

    def without_penalty(self) -> Self:
        """The model before its calibration, of whatever kind that is, to see what it has changed.

        - `method="head"`: the same networks without the head.
        - `method="network"`: the network before its training with the penalty. It is there after
          `fit`, and not saved with the model.
        - `method="none"`, or a strength of 0: the same model.

        Raises:
            InputError: for a loaded model whose network was trained with a penalty.
        """
        check_is_fitted(self)
        model = copy.copy(self)
        if self.head_ is not None:
            model.head_, model.strength_ = None, 0.0
            return model
        if self.strength_ and not hasattr(self, "base_theta_"):
            raise InputError("the model without the penalty is not saved: fit again to have it")
        model.theta_ = getattr(self, "base_theta_", self.theta_)
        model.strength_, model.selection_ = 0.0, None
        return model

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model to a folder; `prerank.load_model` reads it."""
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
        return self.y_scaler_.loc[0, 0], self.y_scaler_.scale[0, 0]

    def _spread(self, targets: Any, seed: int) -> tuple[Rounding, Tensor, list[Tensor]]:
        """What the targets need, those to train on, and other versions of them."""
        if self.discrete not in ("auto", False):
            raise InputError(f"discrete must be 'auto' or False, got {self.discrete!r}")
        rounding = Rounding.of(
            targets,
            bounds=numbered_bounds(self.bounds, self.target_names_),
            names=self.target_names_,
            discrete=bool(self.discrete),
        )
        count = _SPREADS if rounding else 0
        y, *others = (rounding.spread(targets, generator=seed + k) for k in range(1 + count))
        return rounding, y, others

    def _snapped_quantiles(self, X: Any, levels: list[float]) -> npt.NDArray[np.float64]:
        """Marginal quantiles in original units, `(Q, N, D)`."""
        spread = self._quantiles(X, levels)  # which asks whether the model is fitted
        return self._shaped(self.rounding_.snap(spread))

    def _spread_dist(self, X: Any) -> Distribution:
        """Predictive distributions before they are rounded, in original units."""
        return affine(self._distribution(self._standard_inputs(X)), *self._units)

    def _shaped(self, values: Tensor) -> npt.NDArray[np.float64]:
        """Results `(..., D)` as an array, without the last axis after a fit to a vector."""
        array: npt.NDArray[np.float64] = values.cpu().numpy()
        return array[..., 0] if self.flat_target_ else array

    def _distribution(self, x: Tensor) -> Distribution:
        """Calibrated predictions for inputs `(M or 1, N, L)`, in standardised units and float64."""
        dist = self._forecast(x)
        return dist if self.head_ is None else self.head_(dist)

    def _forecast(self, x: Tensor) -> Distribution:
        """Predictions of all members together, before the head."""
        members = len(self.theta_)
        reference = self.y_scaler_.select([0])
        units = (part.expand(members, -1, -1) for part in self.y_scaler_.relative_to(reference))
        return pooled(forecast_each(self.network_, self.theta_, x.expand(members, -1, -1), *units))

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
        if isinstance(self.hidden, int | float):
            raise InputError(f"hidden must list the widths of the layers, got {self.hidden!r}")
        check_table(X, "X")
        check_table(y, "y")
        self.encoder_ = table_encoder(X, impute=self.impute, dates=self.dates)
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
        refuse_collections(X, "X")
        if self.encoder_ is None:
            checked: npt.NDArray[np.float64] = validate_data(self, X, reset=reset, dtype=np.float64)
            return checked
        if not hasattr(X, "iloc"):
            raise InputError(
                "the model was fitted to a table with text columns or missing values: pass a "
                "DataFrame with the same columns"
            )
        validate_data(self, X, reset=reset, skip_check_array=True)
        encoded: npt.NDArray[np.float64] = check_array(self.encoder_(X), dtype=np.float64)
        return encoded

    def _standard_inputs(self, X: Any) -> Tensor:
        check_is_fitted(self)
        return self.x_scaler_(as_tensor(self._encode(X), "X"), clip=True)

    def _calibration_rows(
        self, calibration: tuple[Any, Any] | None
    ) -> tuple[Distribution, Tensor] | None:
        if calibration is None:
            return None
        if not isinstance(calibration, tuple | list) or len(calibration) != 2:
            raise InputError("calibration must be a pair (X, y) of rows that were not used in fit")
        dist = self.predict_dist(calibration[0])
        return dist, self._observed(calibration[1], dist.batch_shape[0])

    def _observed(self, y: Any, rows: int) -> Tensor:
        """Targets of some rows in the order of `fit`, `(N, D)`."""
        refuse_collections(y, "y")
        if self.named_targets_:
            y = in_order(y, self.target_names_)
        targets = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        flat = self.n_outputs_ == 1 and targets.shape == (rows,)
        if not flat and targets.shape != (rows, self.n_outputs_):
            raise InputError(
                f"X has {rows} rows and the model {self.n_outputs_} targets, but y has shape "
                f"{targets.shape}"
            )
        return as_tensor(targets.reshape(rows, -1), "y")

    def _standard_pair(self, X: Any, y: Any) -> tuple[Distribution, Tensor]:
        dist = self._distribution(self._standard_inputs(X))
        observed = self._observed(y, dist.batch_shape[0])
        if not self.rounding_:
            return dist, self.y_scaler_.select([0])(observed)[0]
        # Divided, not centred, forecasts and observations alike: equal values stay equal.
        factor = 1 / self.target_scales_
        values = self.rounding_(affine(dist, *self._units))
        return affine(values, torch.zeros_like(factor), factor), factor * observed

    def _device(self) -> torch.device:
        if self.device is None:
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return as_device(self.device, "device")
