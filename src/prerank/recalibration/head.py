"""The calibration head: one small change that makes a forecast calibrated in every pre-rank."""

import json
from collections.abc import Hashable
from os import PathLike
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.adapters.dimension_matching import Names, named_forecast
from prerank.adapters.named_arguments import refuse_names
from prerank.defaults import CALIBRATION_ROWS
from prerank.distributions import draw
from prerank.distributions.magnitudes import check_resolution, row_factors, sample_spans, spans
from prerank.errors import InputError, NotApplicableError, ShapeError
from prerank.extras import needed_by
from prerank.files import read_tensors, write_tensors
from prerank.inputs import (
    as_count,
    as_positive,
    check_observations,
    column_names,
    full_precision,
    is_named,
)
from prerank.penalty import CalibrationPenalty
from prerank.preranks import Custom, PreRankLike, Projection, applicable, is_all, parse
from prerank.preranks.base import refuse_given_rows
from prerank.recalibration.change import Change, described
from prerank.recalibration.changed_forecasts import changed_forecast, checked_forecast, kind_of
from prerank.recalibration.halves import Halves
from prerank.recalibration.head_fitting import fit_change
from prerank.recalibration.named_members import changed_members
from prerank.recalibration.subjects import subject_of

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["CalibrationHead", "calibrate"]

_FORMATS = ("1", "2")
"""Heads of the first keep no share of the forecast; the last one is written."""


class CalibrationHead:
    r"""A change of predictive distributions that is fitted behind any predictor.

    The head leaves the predictor alone. It changes widths, shifts, correlations and weights of the
    predicted distributions in the same way for all rows, by some 30 to 400 numbers (see
    `prerank.recalibration.change.Change`), and fits them to

    .. math:: \frac1N \sum_i -\log f_i(y_i) + \lambda R(f, y)

    with the penalty R of `prerank.CalibrationPenalty`, on rows that the predictor was not fitted
    to. An `Ensemble` has no density: the energy score takes the place of the likelihood. The
    negative log-likelihood of rows counts by its logarithm from 20 nats above the median on.
    Levels of the change that do not improve the score of held-out rows are left out, so a
    calibrated forecast nearly always comes back unchanged. R counts deviations of PITs only beyond
    one standard error (`prerank.recalibration.head_fitting.fit_change` has the details).

    Args:
        preranks: of the penalty; `"all"` for every pre-rank of the paper that applies.
        strength: lambda; 0 fits the likelihood alone.
        copies: C, the number of copies of each component.
        n_samples: draws per row of the penalty.
        steps: of the fit to likelihood and penalty, which follows that to the likelihood alone.
        batch_size: rows per step of that fit, for Gaussian forecasts and ensembles; R counts
            deviations beyond one standard error of so many rows.
        seed: of halves, batches and draws.

    Attributes:
        change_: what was fitted.
        amounts_: for each level of the change, the part of the way from the levels before it to
            its optimum that held-out rows support; 0 where they do not. A level that they support
            frees those before it as well.
        gains_: for each level, the improvement of the mean score on held-out rows.
        skipped_: pre-ranks of `"all"` that do not apply, with the reason.
        dimensions_: those of the members and of an event, where it was fitted to arrays of xarray.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> y = torch.randn(2000, 2, generator=torch.Generator().manual_seed(0))
        >>> narrow = MultivariateNormal(torch.zeros(2000, 2), 0.25 * torch.eye(2))
        >>> head = CalibrationHead(steps=20).fit(narrow, y)
        >>> print(head.report())
        widths of y0 and y1 by 2
        >>> type(head(narrow)).__name__
        'GaussianMixture'
    """

    dimensions_: tuple[Hashable | None, tuple[Hashable, ...]] | None

    def __init__(
        self,
        preranks: PreRankLike = "all",
        strength: float = 10.0,
        copies: int = 4,
        *,
        n_samples: int = 32,
        steps: int = 40,
        batch_size: int = 2048,
        seed: int = 0,
    ) -> None:
        parse(preranks)  # says now what is wrong with it
        self.preranks = preranks
        self.strength = 0.0 if _is_zero(strength) else as_positive(strength, "strength")
        self.copies = as_count(copies, "copies", minimum=1)
        self.n_samples = as_count(n_samples, "n_samples", minimum=2)
        self.steps = as_count(steps, "steps", minimum=1)
        self.batch_size = as_count(batch_size, "batch_size", minimum=2)
        self.seed = as_count(seed, "seed", minimum=0, maximum=2**63 - 1)

    def fit(
        self,
        dist: "Distribution | xr.DataArray | xr.Dataset",
        y: object,
        *,
        groups: object = None,
        time: object = None,
        member: Hashable | None = None,
        target: Names | None = None,
        rows: Names | None = None,
    ) -> Self:
        """Fit to predictions and observations of rows that the predictor has not seen.

        Args:
            dist: `batch_shape (..., N)`, `event_shape (D,)`: Gaussian mixtures and normals, any
                other distribution with a density, or an `Ensemble`. Each member of a stack gets a
                change of its own.
            y: observations `(..., N, D)`; a DataFrame's columns name the targets.
            groups: name of each row's group, `(N,)`, for rows that are alike, such as those of one
                station or repeated ones: what is fitted to a group is judged on others.
            time: time of each row, `(N,)`: what is fitted to the first half is judged on the
                second, and the other way round.
            member: the dimension of the samples, where `dist` and `y` are of xarray: they are
                matched as by `prerank.adapters.named_forecast`, and `groups` and `time` may be
                names of coordinates.
            target: the dimensions that form one event, likewise.
            rows: the other dimensions, likewise.
        """
        if is_named(dist):
            found = named_forecast(dist, y, member=member, target=target, rows=rows)
            groups, time = found.labels(groups, "groups"), found.labels(time, "time")
            self.fit(found.dist, found.y, groups=groups, time=time)
            self.dimensions_ = (found.samples.member, found.samples.target)
            return self
        refuse_names(member=member, target=target, rows=rows)
        base = checked_forecast(dist)
        observed = check_observations(base, y).detach()
        names = column_names(y, observed.shape[-1])
        if observed.shape[-2] < CALIBRATION_ROWS:
            raise InputError(
                f"y has {observed.shape[-2]} rows: a calibration head needs at least "
                f"{CALIBRATION_ROWS} that the predictor was not fitted to, and some hundreds "
                "to be of use"
            )
        terms, skipped = applicable(self.preranks, base)
        refuse_given_rows(terms, "a head is fitted to batches of rows, and applied to others")
        for term in terms:
            term.check(base)
        size = spans(base) or sample_spans(draw(base, self.n_samples, generator=self.seed).points)
        check_resolution(size, observed)
        factor = row_factors(size, observed).rows
        if factor is not None:  # rows share one change, so they cannot have units of their own
            needed = factor[factor != 1]
            raise InputError(
                f"dist and y are too large or too small for {observed.dtype} in {len(needed)} of "
                f"{factor.numel()} rows: multiply both by a number such as "
                f"{float(needed.log2().median().exp2()):.0e}, here and where the head is applied"
            )
        halves = Halves.draw(observed.shape[-2], seed=self.seed, groups=groups, time=time)
        with torch.inference_mode(mode=False), torch.enable_grad(), full_precision():
            fitted = fit_change(
                subject_of(base, observed),
                CalibrationPenalty(terms, n_samples=self.n_samples) if self.strength else None,
                halves.to(observed.device),
                strength=self.strength,
                copies=self.copies,
                steps=self.steps,
                rows=self.batch_size,
                seed=self.seed,
            )
        self.change_, self.amounts_, self.gains_ = fitted
        self.skipped_ = skipped
        self.target_names_ = tuple(map(str, names))
        self.kind_ = kind_of(base)
        self.dimensions_ = None
        return self

    @overload
    def __call__(self, dist: Distribution) -> Distribution: ...

    @overload
    def __call__(self, dist: "xr.DataArray | xr.Dataset") -> Any: ...

    def __call__(self, dist: Any) -> Any:
        """Calibrate predictions; they come back as they are where nothing was to be changed.

        Args:
            dist: as for `fit`, in the same units, any number of rows.

        Returns:
            Samples of xarray with the dimensions, coordinates and attributes of `dist`. A
            `GaussianMixture` for Gaussian mixtures and normals; for an `Ensemble` one of as many
            members; for other densities a distribution with `log_prob`, `sample` and, where `dist`
            has it, `rsample`. Gradients do not reach the parameters of Gaussian predictions.
        """
        change = self._fitted()
        if is_named(dist):
            return changed_members(
                dist,
                self.__call__,
                of="this head",
                dimensions=self.dimensions_,
                targets=self.target_names_,
            )
        base = checked_forecast(dist)
        stack, targets = change.width.shape, change.widths.shape[-1]
        if base.event_shape[0] != targets:
            raise ShapeError(
                f"dist has event_shape {tuple(base.event_shape)}, but this head was fitted for "
                f"{targets} targets"
            )
        if stack and base.batch_shape[:-1] != stack:
            raise ShapeError(
                f"dist has batch_shape {tuple(base.batch_shape)}, but this head was fitted to a "
                f"stack of shape {tuple(stack)}"
            )
        if (kind := kind_of(base)) != self.kind_:
            raise NotApplicableError(
                f"dist is of kind {kind!r}, but this head was fitted to {self.kind_!r}: the same "
                "numbers mean different changes; fit a head for each kind"
            )
        return changed_forecast(base, change, seed=self.seed)

    def report(self) -> str:
        """What the head changes, in words."""
        change = self._fitted()
        if change.width.dim():
            return f"a stack of {change.width.numel()} changes"
        return described(change, self.target_names_)

    def __repr__(self) -> str:
        """The arguments, and what was fitted."""
        text = self.preranks if isinstance(self.preranks, str) else _spelled(self.preranks)
        call = f"CalibrationHead({text!r}, strength={self.strength:g}, copies={self.copies})"
        return f"<{call}: {self.report() if hasattr(self, 'change_') else 'not fitted'}>"

    @needed_by("CalibrationHead.save")
    def save(self, path: str | PathLike[str]) -> None:
        """Write the head to a file in the safetensors format.

        Example:
            >>> import tempfile
            >>> from torch.distributions import MultivariateNormal
            >>> dist = MultivariateNormal(torch.zeros(50, 2), torch.eye(2))
            >>> head = CalibrationHead(steps=2).fit(dist, torch.zeros(50, 2))
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     head.save(folder + "/head.safetensors")
            ...     again = CalibrationHead.load(folder + "/head.safetensors")
            >>> again.report() == head.report()
            True
        """
        change = self._fitted()
        code = [t.label for t in parse(self.preranks) if isinstance(t, Custom | Projection)]
        if code:
            raise InputError(f"pre-rank {code[0]!r} is code and cannot be saved: use named ones")
        settings = {
            "preranks": "all" if is_all(self.preranks) else _spelled(self.preranks),
            **{name: getattr(self, name) for name in _SETTINGS},
            "target_names": self.target_names_,
            "kind": self.kind_,
            "skipped": self.skipped_,
            "dimensions": self.dimensions_,
        }
        tensors = {f"change.{name}": value for name, value in change._asdict().items()}
        for kind, values in (("amounts", self.amounts_), ("gains", self.gains_)):
            tensors |= {f"{kind}.{level}": value for level, value in values.items()}
        about = {
            "kind": "CalibrationHead",
            "format": _FORMATS[-1],
            "settings": json.dumps(settings),
        }
        write_tensors(path, tensors, about)

    @classmethod
    @needed_by("CalibrationHead.load")
    def load(cls, path: str | PathLike[str]) -> "CalibrationHead":
        """Read a head that `save` wrote."""
        tensors, about = read_tensors(path)
        if about.get("kind") != "CalibrationHead" or about.get("format") not in _FORMATS:
            raise InputError(
                f"{path} is not a calibration head of format {' or '.join(_FORMATS)}: it says "
                f"kind {about.get('kind')!r}, format {about.get('format')!r}"
            )
        try:
            return cls._restored(json.loads(about["settings"]), tensors)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path} is an incomplete calibration head: {error}") from error

    @classmethod
    def _restored(cls, settings: dict[str, Any], tensors: dict[str, Tensor]) -> "CalibrationHead":
        head = cls(settings["preranks"], **{name: settings[name] for name in _SETTINGS})
        parts: dict[str, dict[str, Tensor]] = {"change": {}, "amounts": {}, "gains": {}}
        for name, value in tensors.items():
            kind, _, field = name.partition(".")
            parts[kind][field] = value
        nothing = torch.full_like(parts["change"]["width"], -torch.inf)
        head.change_ = Change(**{"kept": nothing} | parts["change"])
        head.amounts_, head.gains_ = parts["amounts"], parts["gains"]
        head.skipped_ = settings["skipped"]
        head.target_names_ = tuple(settings["target_names"])
        head.kind_ = settings["kind"]
        dimensions = settings.get("dimensions")  # of an older file: none
        head.dimensions_ = (dimensions[0], tuple(dimensions[1])) if dimensions else None
        return head

    def _fitted(self) -> Change:
        if not hasattr(self, "change_"):
            raise InputError("this CalibrationHead is not fitted: call fit(dist, y) first")
        return self.change_


_SETTINGS = ("strength", "copies", "n_samples", "steps", "batch_size", "seed")


def calibrate(
    dist: "Distribution | xr.DataArray | xr.Dataset",
    y: object,
    *,
    groups: object = None,
    time: object = None,
    member: Hashable | None = None,
    target: Names | None = None,
    rows: Names | None = None,
    **options: object,
) -> CalibrationHead:
    """Fit a `CalibrationHead`; call it with new predictions to calibrate them.

    Args:
        dist: predictions of rows that the predictor was not fitted to.
        y: their observations.
        groups: name of each row's group, as for `CalibrationHead.fit`.
        time: time of each row, as for `CalibrationHead.fit`.
        member: the dimension of the samples, as for `CalibrationHead.fit`.
        target: the dimensions that form one event, likewise.
        rows: the other dimensions, likewise.
        options: arguments of `CalibrationHead`.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> y = torch.randn(400, 2, generator=torch.Generator().manual_seed(0))
        >>> wide = MultivariateNormal(torch.zeros(400, 2), 4 * torch.eye(2))
        >>> calibrated = calibrate(wide, y, steps=20)(wide)
        >>> bool((calibrated.variance < 1.3).all())
        True
    """
    head = CalibrationHead(**options)  # type: ignore[arg-type]
    names: dict[str, Any] = {"member": member, "target": target, "rows": rows}
    return head.fit(dist, y, groups=groups, time=time, **names)


def _is_zero(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and value == 0


def _spelled(preranks: PreRankLike) -> str:
    return "+".join(term.label for term in parse(preranks))
