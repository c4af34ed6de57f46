"""The ways in which a regressor is calibrated, and what its arguments mean under each."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from prerank import defaults
from prerank.defaults import CALIBRATION_ROWS
from prerank.errors import InputError
from prerank.inputs import as_count
from prerank.models import FlowNetwork, MixtureNetwork
from prerank.numerics.folds import fewer_folds
from prerank.penalty import CalibrationPenalty
from prerank.preranks import PreRankLike, parse
from prerank.recalibration import CalibrationHead
from prerank.training import (
    Partition,
    Progress,
    Selection,
    Settings,
    TrainingData,
    train_calibrated,
)
from prerank.training.calibrated import divergence

__all__ = ["Calibrated", "Method"]

_METHODS = ("head", "network", "none")
_SELECTION_SPLITS = 3
_FOLDS = 5
_FEW_ROWS = 500  # below which cross-fitting pays: see docs/results/crossfit.md


class Calibrated(NamedTuple):
    """What is left of a training: parameters of the members, and their calibration."""

    theta: Tensor
    base: Tensor
    strength: float
    selection: Selection | None
    head: CalibrationHead | None
    head_rows: int


@dataclass(frozen=True)
class Method:
    """A method with its arguments, checked.

    `"head"` trains by likelihood and fits a `CalibrationHead` behind the network, `"network"`
    trains the network itself with the penalty, `"none"` leaves it as the likelihood gives it.
    """

    name: str
    members: int
    folds: int | None
    preranks: PreRankLike
    strength: float | str
    budget: float
    nll_budget: float | None
    draws: int

    @classmethod
    def of(cls, model: Any) -> "Method":
        """The method of a regressor; arguments that mean nothing together are refused."""
        name, strength = model.method, model.strength
        if name not in _METHODS:
            raise InputError(f"method must be one of {_METHODS}, got {name!r}")
        members = as_count(model.members, "members", minimum=1)
        number = isinstance(strength, int | float | np.number)
        known = strength == "auto" if isinstance(strength, str) else number
        if not known or (number and not 0 <= float(strength) < np.inf):
            raise InputError(f"strength must be at least 0 or 'auto', got {strength!r}")
        if not (isinstance(model.budget, int | float | np.number) and model.budget >= 0):
            raise InputError(f"budget must be a number of at least 0, got {model.budget!r}")
        for argument, means, needed in (
            (
                "members",
                members == 1 or name != "network",
                "method 'head' or 'none': a mixture of "
                "networks that are each calibrated is too wide",
            ),
            ("folds", model.folds is None or name == "head", "method 'head'"),
            ("preranks", model.preranks is None or name != "none", "method 'head' or 'network'"),
            (
                "strength",
                name != "none" or strength in (0, defaults.STRENGTH, "auto"),
                "method 'head' or 'network'",
            ),
            (
                "budget",
                model.budget == defaults.BUDGET or (name, strength) == ("network", "auto"),
                "method 'network' with strength 'auto'",
            ),
            (
                "nll_budget",
                model.nll_budget in (None, defaults.NLL_BUDGET)
                or (name, strength) == ("network", "auto"),
                "method 'network' with strength 'auto'",
            ),
        ):
            if not means:
                raise InputError(f"{argument}={getattr(model, argument)!r} needs {needed}")
        folds = model.folds
        if folds is not None and folds != 0:
            folds = as_count(folds, "folds", minimum=3)
            if model.network_class is FlowNetwork:
                raise InputError(
                    f"folds={folds} needs networks that are trained in one stack, and flows are "
                    "not: folds must be 0 or None"
                )
        elif model.network_class is FlowNetwork:
            folds = 0
        usual = defaults.HEAD_PRERANKS if name == "head" else defaults.PENALTY_PRERANKS
        preranks = usual if model.preranks is None else model.preranks
        parse(preranks)
        return cls(
            name,
            members,
            folds,
            preranks,
            strength,
            float(model.budget),
            model.nll_budget,
            model._penalty_draws,
        )

    def partition(self, n: int, seed: int, *, groups: object, time: object) -> Partition:
        """Rows that train, stop and are unseen."""
        options: Any = {"members": self.members, "seed": seed, "groups": groups, "time": time}
        folds = self.folds or 0
        if self.folds is None and self.name == "head" and CALIBRATION_ROWS <= n < _FEW_ROWS:
            folds = fewer_folds(_FOLDS, groups)
        if folds:
            return Partition.crossed(n, folds=folds, apart=False, **options)
        choosing = self.name == "network" and isinstance(self.strength, str)
        return Partition.single(n, splits=_SELECTION_SPLITS if choosing else 1, **options)

    def train(
        self,
        network: MixtureNetwork | FlowNetwork,
        data: TrainingData,
        partition: Partition,
        seed: int,
        *,
        settings: Settings,
        groups: object,
        time: object,
        on_epoch: Callable[[Progress], None] | None,
    ) -> Calibrated:
        """Train all networks of a partition and calibrate them."""
        penalised = self.name == "network" and self.strength != 0
        rows = sum(len(rows) for rows in partition.unseen) // self.members
        training = train_calibrated(
            network,
            data,
            partition.runs,
            penalty=CalibrationPenalty(parse(self.preranks), n_samples=self.draws)
            if penalised
            else None,
            strength=("stages" if self.strength == "auto" else self.strength) if penalised else 0.0,
            budget=self.budget,
            nll_budget=self.nll_budget,
            head=self._head(rows, seed),
            returned=partition.members,
            unseen=partition.unseen,
            groups=groups,
            time=time,
            settings=settings,
            on_epoch=on_epoch,
        )
        selection, head = training.selection, training.head
        chosen, members = training.trained[training.strength], list(partition.members)
        if selection is not None and selection.strength is None:
            warnings.warn(
                f"{selection.reason}: the model is trained without a penalty (strength_ = 0); "
                "selection_.table has the trace",
                stacklevel=3,
            )
        if training.base is None or not bool(chosen.objective[members].isfinite().all()):
            raise divergence(settings)
        return Calibrated(
            chosen.theta[members].cpu().clone(),
            training.base[members].cpu().clone(),
            training.strength if head is None else head.strength,
            selection,
            head,
            0 if head is None else rows,
        )

    def _head(self, rows: int, seed: int) -> CalibrationHead | None:
        """An unfitted head, if there is to be one."""
        if self.name != "head":
            return None
        if rows < CALIBRATION_ROWS:
            warnings.warn(
                f"{rows} rows are too few for a calibration head: the model has none (head_ is "
                f"None). It needs {CALIBRATION_ROWS} rows that the networks are not fitted to",
                stacklevel=4,
            )
            return None
        strength = defaults.STRENGTH if isinstance(self.strength, str) else float(self.strength)
        return CalibrationHead(self.preranks, strength, seed=seed)
