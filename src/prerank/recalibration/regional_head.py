"""A head that depends on the inputs: a change of its own for each region that differs."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch.distributions import Distribution

from prerank.calibration.axes import Condition, InputColumn, input_columns
from prerank.calibration.region_faults import region_faults
from prerank.calibration.regions import FEWEST_ROWS, find_regions
from prerank.defaults import MAX_REGIONS, N_PERMUTATIONS, SIGNIFICANCE
from prerank.distributions.ensemble import check_unweighted
from prerank.errors import InputError, NotApplicableError, ShapeError
from prerank.extras import needed_by
from prerank.files import read_tensors, write_tensors
from prerank.inputs import (
    as_count,
    as_probability,
    check_observations,
    column_labels,
    column_names,
    full_precision,
)
from prerank.recalibration.change import Change, described
from prerank.recalibration.changed_forecasts import changed_forecast, checked_forecast, kind_of
from prerank.recalibration.held_out_trial import HeldOutTrial, change_of_rows

__all__ = ["RegionalChange", "RegionalHead"]

_FORMAT = "1"
# Slopes of the means say little of one region, and tilts need many rows.
_OF_TARGETS = ("common", "targets", "copies", "dependence", "mixing")
_OF_DEPENDENCE = ("common", "dependence", "mixing", "targets", "copies")


@dataclass(frozen=True, eq=False)
class RegionalChange:
    """What is changed in one region.

    Attributes:
        conditions: that the inputs of its rows meet.
        change: of the predictions there.
        gain: mean improvement of the score there, on rows that neither found nor fitted it.
    """

    conditions: tuple[Condition, ...]
    change: Change
    gain: float

    def __str__(self) -> str:
        """The region, in words."""
        return " and ".join(map(str, self.conditions))


class RegionalHead:
    """Calibrate predictions in the regions of the inputs in which they are miscalibrated.

    One half of the rows is searched for regions as by `prerank.diagnose_where`, and a change is
    fitted in each by the likelihood, level by level, as `CalibrationHead` does without its penalty
    (an `Ensemble` by the energy score): targets first, unless the region's fault is that of the
    dependence. The other half judges it: a change is kept if it improves
    the score of the region's rows by two standard errors, and their mean PCE over all pre-ranks
    does not grow. What is kept is fitted again to all rows of its region. Other rows stay as they
    are. What is wrong everywhere alike is the subject of `CalibrationHead`: fit that one first.

    Args:
        alpha: level of the search.
        max_regions: largest number of regions.
        n_null: number of permutations of the search.
        copies: as for `CalibrationHead`.
        seed: of halves, permutations, batches and draws.

    Attributes:
        changes_: a `RegionalChange` for each region.
        p_value_: of the search.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> g = torch.Generator().manual_seed(0)
        >>> humidity = 100 * torch.rand(600, 1, generator=g)
        >>> y = torch.randn(600, 2, generator=g)
        >>> y[humidity[:, 0] > 80] *= 2
        >>> dist = MultivariateNormal(torch.zeros(600, 2), torch.eye(2))
        >>> head = RegionalHead(n_null=99).fit(dist, y, humidity, names=["humidity"])
        >>> head.report()
        'humidity above 79.15: widths of y0 and y1 by 2...'
        >>> head(dist, humidity).variance.sqrt()[humidity[:, 0].argsort()[[0, -1]], 0]
        tensor([1.0..., 2.1...])
    """

    def __init__(
        self,
        *,
        alpha: float = SIGNIFICANCE,
        max_regions: int = MAX_REGIONS,
        n_null: int = N_PERMUTATIONS,
        copies: int = 4,
        seed: int = 0,
    ) -> None:
        self.alpha = as_probability(alpha, "alpha")
        self.max_regions = as_count(max_regions, "max_regions", minimum=1)
        self.n_null = as_count(n_null, "n_null", minimum=1)
        self.copies = as_count(copies, "copies", minimum=1)
        self.seed = as_count(seed, "seed", minimum=0, maximum=2**63 - 1)

    def fit(
        self,
        dist: Distribution,
        y: object,
        X: object,
        *,
        names: Sequence[str] | None = None,
        time: object = None,
        cluster: object = None,
    ) -> Self:
        """Find regions and fit changes, on rows that the predictor has not seen.

        80 rows at least are needed, of which half are searched.

        Args:
            dist: `batch_shape (N,)`, `event_shape (D,)`, of a kind that `CalibrationHead` accepts;
                samples must have equal weights.
            y: observations `(N, D)`; a DataFrame's columns name the targets.
            X: inputs `(N, p)`, as for `prerank.diagnose_where`.
            names: of the inputs; by default those of the DataFrame, or x0, x1, ...
            time: of each row, `(N,)`: the first half is searched, the second judges.
            cluster: label of each row, `(N,)`: halves consist of whole clusters.
        """
        base = checked_forecast(dist)
        check_unweighted(dist, "fit the head to")
        observed = check_observations(base, y).detach()
        if observed.dim() != 2:
            raise ShapeError(f"dist has batch_shape {tuple(base.batch_shape)}: it must be (N,)")
        columns = input_columns(X, names, len(observed))
        with torch.inference_mode(mode=False), torch.enable_grad(), full_precision():
            trial = HeldOutTrial(
                base, observed, copies=self.copies, seed=self.seed, time=time, cluster=cluster
            )
            seen = trial.seen.numpy()
            if len(seen) < FEWEST_ROWS:
                raise InputError(
                    f"{len(observed)} rows are too few: half of them are searched for regions, and "
                    f"{FEWEST_ROWS} are needed for that"
                )
            search = find_regions(
                {label: z[trial.seen] for label, z in trial.pits(base).items()},
                [column.of_rows(seen) for column in columns],
                n_null=self.n_null,
                alpha=self.alpha,
                most=self.max_regions,
                dependence=trial.units,
                generator=torch.Generator().manual_seed(self.seed),
            )
            changes = []
            left = np.ones(len(observed), dtype=bool)
            for region in search.regions:
                if any(condition.is_rest for condition in region.conditions):
                    continue  # which levels these are depends on the rows
                inside = left & _members(region.conditions, columns)
                faults = region_faults(region, search.scores)
                joint = all(fault.kind == "dependence" for fault in faults)
                levels = _OF_DEPENDENCE if joint else _OF_TARGETS
                if (kept := trial.change(torch.from_numpy(inside), levels)) is not None:
                    changes.append(RegionalChange(region.conditions, *kept))
                    left &= ~inside
        self.changes_, self.p_value_ = tuple(changes), search.p_value
        self.input_names_ = tuple(column.name for column in columns)
        self.target_names_ = tuple(map(str, column_names(y, observed.shape[-1])))
        self.kind_ = kind_of(base)
        return self

    def __call__(self, dist: Distribution, X: object) -> Distribution:
        """Calibrate predictions; they come back as they are where no region was kept.

        Args:
            dist: as for `fit`, in the same units, any number of rows.
            X: their inputs, `(N, p)`; of a DataFrame, the columns that bound the regions.
        """
        self._check_fitted()
        base = checked_forecast(dist)
        if (*base.event_shape,) != (len(self.target_names_),) or len(base.batch_shape) != 1:
            raise ShapeError(
                f"dist has batch_shape {tuple(base.batch_shape)} and event_shape "
                f"{tuple(base.event_shape)}: this head takes (N,) and ({len(self.target_names_)},)"
            )
        if kind_of(base) != self.kind_:
            raise NotApplicableError(
                f"dist is of kind {kind_of(base)!r}, but this head was fitted to {self.kind_!r}"
            )
        names = self.input_names_ if column_labels(X) is None else None
        columns = input_columns(X, names, base.batch_shape[0], all_levels=True)
        if not self.changes_:
            return base
        place = np.zeros(base.batch_shape[0], dtype=np.int64)
        for number, one in reversed(list(enumerate(self.changes_, 1))):
            place[_members(one.conditions, columns)] = number
        own = change_of_rows([one.change for one in self.changes_], torch.from_numpy(place))
        return changed_forecast(base, own, seed=self.seed)

    def report(self) -> str:
        """What the head changes and where, in words."""
        self._check_fitted()
        lines = (
            f"{one}: {'; '.join(described(one.change, self.target_names_).splitlines())}"
            for one in self.changes_
        )
        return "\n".join(lines) or "nothing"

    def __repr__(self) -> str:
        """The level of the search, and what was fitted."""
        text = self.report() if hasattr(self, "changes_") else "not fitted"
        return f"<RegionalHead(alpha={self.alpha:g}, max_regions={self.max_regions}): {text}>"

    @needed_by("RegionalHead.save")
    def save(self, path: str | PathLike[str]) -> None:
        """Write the head to a file in the safetensors format."""
        self._check_fitted()
        settings = {
            **{name: getattr(self, name) for name in _SETTINGS + _FITTED},
            "regions": [
                {"conditions": [asdict(one) for one in part.conditions], "gain": part.gain}
                for part in self.changes_
            ],
        }
        tensors = {
            f"{number}.{name}": value
            for number, part in enumerate(self.changes_)
            for name, value in part.change._asdict().items()
        }
        about = {"kind": "RegionalHead", "format": _FORMAT, "settings": json.dumps(settings)}
        write_tensors(path, tensors, about)

    @classmethod
    @needed_by("RegionalHead.load")
    def load(cls, path: str | PathLike[str]) -> "RegionalHead":
        """Read a head that `save` wrote."""
        tensors, about = read_tensors(path)
        if about.get("kind") != "RegionalHead" or about.get("format") != _FORMAT:
            raise InputError(f"{path} is not a regional head of format {_FORMAT}")
        try:
            settings: dict[str, Any] = json.loads(about["settings"])
            head = cls(**{name: settings[name] for name in _SETTINGS})
            head.changes_ = tuple(
                RegionalChange(
                    tuple(Condition(**one) for one in part["conditions"]),
                    Change(**{name: tensors[f"{k}.{name}"] for name in Change._fields}),
                    part["gain"],
                )
                for k, part in enumerate(settings["regions"])
            )
            head.p_value_, head.kind_ = settings["p_value_"], settings["kind_"]
            head.input_names_ = tuple(settings["input_names_"])
            head.target_names_ = tuple(settings["target_names_"])
            _check_changes(head)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise InputError(f"{path} is an incomplete regional head: {error}") from error
        return head

    def _check_fitted(self) -> None:
        if not hasattr(self, "changes_"):
            raise InputError("this RegionalHead is not fitted: call fit(dist, y, X) first")


_SETTINGS = ("alpha", "max_regions", "n_null", "copies", "seed")
_FITTED = ("p_value_", "kind_", "input_names_", "target_names_")


def _check_changes(head: RegionalHead) -> None:
    """Raise where a stored head has conditions or numbers that no fit leaves behind."""
    usual = Change.identity(len(head.target_names_), head.copies, stack=(), like=torch.zeros(()))
    for one in head.changes_:
        for name, value, known in zip(Change._fields, one.change, usual, strict=True):
            if value.shape != known.shape or not value.dtype.is_floating_point:
                raise ValueError(f"{name} has shape {tuple(value.shape)}, not {tuple(known.shape)}")
            if not bool(value.isfinite().all()):
                raise ValueError(f"{name} has values that are not finite")
        bounds = [x for part in one.conditions for x in (part.low, part.high) if x is not None]
        if not one.conditions or not all(
            isinstance(x, float) and not math.isnan(x) for x in bounds
        ):
            raise ValueError("a region has no bounds that are numbers")


def _members(
    conditions: Sequence[Condition], columns: Sequence[InputColumn]
) -> npt.NDArray[np.bool_]:
    """Which rows meet all conditions."""
    named = {column.name: column for column in columns}
    if missing := [one.name for one in conditions if one.name not in named]:
        raise InputError(f"X has no input {missing[0]!r}, which bounds a region of this head")
    if wrong := [one for one in conditions if not named[one.name].suits(one)]:
        raise InputError(
            f"input {wrong[0].name!r} of X holds values of another kind than those that this head "
            f"was fitted to: {wrong[0]}"
        )
    return np.all([named[one.name].meets(one) for one in conditions], 0)
