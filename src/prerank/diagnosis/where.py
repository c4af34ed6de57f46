"""Where among the inputs is a forecast miscalibrated, without groups that somebody names?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.calibration.axes import InputColumn, input_columns
from prerank.calibration.region_faults import RegionFault, region_faults
from prerank.calibration.regions import Region, RegionSearch, find_regions, pit_scores
from prerank.defaults import (
    MAX_REGIONS,
    N_PERMUTATIONS,
    N_SAMPLES,
    SCALE,
    SEED,
    SIGNIFICANCE,
)
from prerank.diagnosis.measurement import measured_pits
from prerank.errors import InputError, ShapeError
from prerank.extras import needed_by
from prerank.inputs import as_count, as_generator, as_positive
from prerank.preranks import PreRankLike
from prerank.report.region_display import RegionDisplay
from prerank.report.wording import explanation_of, listed, p_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure, SubFigure

__all__ = ["WhereDiagnosis", "diagnose_where", "regions_of_pits"]

_FEWEST_ROWS = 40


def diagnose_where(
    dist: Distribution,
    y: object,
    X: object,
    *,
    preranks: PreRankLike | None = None,
    names: Sequence[str] | None = None,
    n_samples: int = N_SAMPLES,
    scale: object = SCALE,
    n_null: int = N_PERMUTATIONS,
    alpha: float = SIGNIFICANCE,
    max_regions: int = MAX_REGIONS,
    generator: torch.Generator | int | None = SEED,
) -> "WhereDiagnosis":
    """Find regions of the inputs in which calibration differs from that of the other rows.

    Null hypothesis: the PITs are independent of the inputs. A forecast may be miscalibrated in the
    same way everywhere, which is the subject of `diagnose`. The p-value compares the best region
    with the best ones after rows were permuted, so that it accounts for the search. It assumes
    that rows are independent of each other.

    Args:
        dist: `batch_shape (N,)`, `event_shape (D,)`.
        y: observations `(N, D)`; a DataFrame's columns name the targets.
        X: inputs `(N, p)`, not only those that the predictor used: an array, a tensor or a
            DataFrame. Texts and categories are levels; a missing value is a level of its own.
        preranks: which ones; by default all of the paper's that apply.
        names: of the inputs; by default those of the DataFrame, or x0, x1, ...
        n_samples: draws per row for pre-ranks without a closed form.
        scale: divisors of the targets, as in `diagnose`.
        n_null: number of permutations; the smallest p-value is one over n_null + 1.
        alpha: regions are reported up to this p-value.
        max_regions: largest number of regions.
        generator: a generator or seed; None draws from torch's global state.

    Returns:
        A `WhereDiagnosis` with `.p_value`, `.regions`, `.plot()` and `.weights`; `print` shows it
        in words.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> g = torch.Generator().manual_seed(0)
        >>> humidity = 100 * torch.rand(1000, 1, generator=g)
        >>> y = torch.randn(1000, 2, generator=g)
        >>> y[humidity[:, 0] > 80, 1] *= 2
        >>> dist = MultivariateNormal(torch.zeros(1000, 2), torch.eye(2))
        >>> print(diagnose_where(dist, y, humidity, names=["humidity"], n_null=99))
        Calibration differs over the inputs (p = 0.010).
        - humidity above 78.95 (216 rows, 21.6 %): predictions too narrow in y1.
    """
    pits, targets = measured_pits(
        dist, y, preranks=preranks, n_samples=n_samples, scale=scale, generator=generator
    )
    return regions_of_pits(
        pits,
        X,
        targets=targets,
        names=names,
        n_null=n_null,
        alpha=alpha,
        max_regions=max_regions,
        generator=generator,
    )


def regions_of_pits(
    pits: Mapping[str, Tensor],
    X: object,
    *,
    targets: Sequence[str],
    names: Sequence[str] | None = None,
    n_null: int = N_PERMUTATIONS,
    alpha: float = SIGNIFICANCE,
    max_regions: int = MAX_REGIONS,
    generator: torch.Generator | int | None = SEED,
) -> "WhereDiagnosis":
    """`diagnose_where` for PITs `(N, J)` that are already there, such as `Diagnosis.pits`.

    Args:
        pits: by the label of the pre-rank.
        X: inputs `(N, p)`.
        targets: names of the targets.
        names: of the inputs.
        n_null: number of permutations.
        alpha: regions are reported up to this p-value.
        max_regions: largest number of regions.
        generator: a generator or seed.
    """
    shape = next(iter(pits.values())).shape
    if len(shape) != 2:
        raise ShapeError(
            f"regions are of the rows of one predictor, of batch_shape (N,): got "
            f"{tuple(shape[:-1])}"
        )
    columns = input_columns(X, names, shape[0])
    if all(column.is_constant for column in columns):
        raise InputError("X has no input that varies: there is nowhere to look")
    if shape[0] < _FEWEST_ROWS:
        raise InputError(f"{shape[0]} rows are too few for regions: {_FEWEST_ROWS} are needed")
    if as_positive(alpha, "alpha") >= 1:
        raise InputError(f"alpha must be below 1, got {alpha}")
    search = find_regions(
        pits,
        columns,
        n_null=as_count(n_null, "n_null", minimum=1),
        alpha=alpha,
        most=as_count(max_regions, "max_regions", minimum=1),
        generator=as_generator(generator, "permute"),
    )
    return WhereDiagnosis(search, dict(pits), columns, tuple(targets))


@dataclass(frozen=True, eq=False)
class WhereDiagnosis:
    """What `diagnose_where` returns; `print` shows it in words, without pandas or matplotlib.

    Attributes:
        search: the regions as data.
        pits: PITs of each pre-rank by label, `(N, J)`.
        inputs: that were searched.
        targets: names.
    """

    search: RegionSearch
    pits: dict[str, Tensor]
    inputs: tuple[InputColumn, ...]
    targets: tuple[str, ...]

    @property
    def p_value(self) -> float:
        """That PITs are independent of the inputs; exact, the search included."""
        return self.search.p_value

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.inputs[0].members)

    @property
    def weights(self) -> Tensor:
        """How much each row belongs to a region, from 0 to 1, `(N,)`.

        Without evidence, that to the region that stands out most: a number to sort rows by.
        """
        found = [region.weights for region in self._shown]
        return torch.stack(found).amax(0) if found else torch.zeros(self.n, dtype=torch.float64)

    @cached_property
    @needed_by("WhereDiagnosis.regions")
    def regions(self) -> "pd.DataFrame":
        """One row for each region and kind of fault; none where there is no evidence.

        Columns: `region`, `n` (its rows), `share` (of all rows), `fault` in words, `kind` (shift,
        spread, skew, tails, dependence), `prerank`, `component`, `inside` and `outside` (means of
        the score that shows it most: 0 where PITs are uniform), `p_value`.
        """
        import pandas as pd

        return pd.DataFrame(self.records(), columns=list(_COLUMNS))

    def records(self) -> list[dict[str, Any]]:
        """The rows of the table by the names of its columns."""
        rows = []
        for region in self.search.regions:
            for fault in self._faults(region):
                number = self._shown_score(region, fault)
                values = (
                    str(region),
                    len(region.rows),
                    len(region.rows) / self.n,
                    self._fault_words(fault),
                    fault.kind,
                    fault.prerank,
                    listed(self._names(fault)),
                    float(region.inside[number]),
                    float(region.outside[number]),
                    region.p_value,
                )
                rows.append(dict(zip(_COLUMNS, values, strict=True)))
        return rows

    @cached_property
    def faults(self) -> tuple[tuple[RegionFault, ...], ...]:
        """Kinds of fault of each region, as data."""
        return tuple(self._faults(region) for region in self.search.regions)

    @property
    def headline(self) -> str:
        """Whether calibration differs over the inputs, in one sentence."""
        p = p_text(self.p_value)
        p = f"p < {p[1:]}" if p.startswith("<") else f"p = {p}"
        if self.search.candidate is None:
            return "No region of the inputs has enough rows to be judged."
        if not self.search.regions:
            return f"No evidence that calibration differs over the inputs ({p}, {self.n:,} rows)."
        return f"Calibration differs over the inputs ({p})."

    @property
    def points(self) -> tuple[str, ...]:
        """One sentence for each region."""
        return tuple(self._sentence(region) for region in self.search.regions)

    def displays(self) -> list[RegionDisplay]:
        """A picture of each region, not yet drawn; of what stands out most where there is none."""
        _, values = pit_scores(self.pits)
        shown = []
        for region in self._shown:
            fault = self._faults(region)[0]
            number = self._shown_score(region, fault)
            score = self.search.scores[number]
            names = {condition.name for condition in region.conditions}
            label = score.prerank
            if self.pits[label].shape[-1] > 1:
                part = self._component(label, score.component)
                label = part if label == "marginal" else f"{label} {part}"
            caption = self._sentence(region)
            if not self.search.regions:
                caption = f"No evidence; the largest difference is in {caption}"
            columns = [column for column in self.inputs if column.name in names]
            shown.append(RegionDisplay(region, columns, values[:, number], label, score, caption))
        return shown

    @needed_by("WhereDiagnosis.plot")
    def plot(self, figure: "Figure | SubFigure | None" = None) -> list[RegionDisplay]:
        """Draw each region among its inputs, side by side.

        Args:
            figure: an empty figure; a new one by default, which is `.figure_` of each display.
        """
        displays = self.displays()
        if not displays:
            raise InputError("no region of the inputs has enough rows to be drawn")
        if figure is None:
            import matplotlib.pyplot as plt

            width, height = displays[0].size
            figure = plt.figure(figsize=(width * len(displays), height), layout="constrained")
        axes = figure.subplots(1, len(displays), squeeze=False)[0]
        return [display.plot(ax) for display, ax in zip(displays, axes, strict=True)]

    def __str__(self) -> str:
        """The headline, and one line for each region."""
        return "\n".join([self.headline, *(f"- {point}" for point in self.points)])

    @property
    def _shown(self) -> tuple[Region, ...]:
        candidate = self.search.candidate
        return self.search.regions or (() if candidate is None else (candidate,))

    def _faults(self, region: Region) -> tuple[RegionFault, ...]:
        return region_faults(region, self.search.scores)

    def _shown_score(self, region: Region, fault: RegionFault) -> int:
        """Number of the score that shows a fault most."""
        own = [
            number
            for number, score in enumerate(self.search.scores)
            if score.prerank == fault.prerank and score.component in fault.components
        ]
        degree = _DEGREES.get(fault.kind)
        own = [k for k in own if degree in (None, self.search.scores[k].degree)]
        return max(own, key=lambda number: abs(float(region.z[number])))

    def _component(self, label: str, number: int) -> str:
        return self.targets[number] if label == "marginal" else str(number + 1)

    def _names(self, fault: RegionFault) -> list[str]:
        return [self._component(fault.prerank, number) for number in fault.components]

    def _sentence(self, region: Region) -> str:
        share = f"{len(region.rows):,} rows, {100 * len(region.rows) / self.n:.1f} %"
        words = "; ".join(self._fault_words(fault) for fault in self._faults(region))
        return f"{region} ({share}): {words}."

    def _fault_words(self, fault: RegionFault) -> str:
        words = _WORDS.get((fault.kind, fault.sign))
        if words is None:
            meaning = explanation_of(fault.prerank)
            words = {
                ("shift", 1): meaning.large,
                ("shift", -1): meaning.small,
                ("spread", 1): meaning.outer,
                ("spread", -1): meaning.inner,
            }[fault.kind, fault.sign]
        several = self.pits[fault.prerank].shape[-1]
        if several > 1:
            everyone = fault.prerank == "marginal" and len(fault.components) == several
            place = "every target" if everyone else listed(self._names(fault))
            words += f" in {place}" if fault.prerank == "marginal" else f" (component {place})"
        if fault.prerank != "marginal":
            words += "; no target stands out on its own"
        return (
            f"better calibrated than elsewhere, where it is: {words}" if fault.elsewhere else words
        )


_COLUMNS = (
    "region",
    "n",
    "share",
    "fault",
    "kind",
    "prerank",
    "component",
    "inside",
    "outside",
    "p_value",
)
_DEGREES = {"shift": 1, "spread": 2, "skew": 3, "tails": 4}
_WORDS = {
    ("skew", 1): "observed values more skewed to the right than predicted",
    ("skew", -1): "observed values more skewed to the left than predicted",
    ("tails", 1): "tails heavier than predicted",
    ("tails", -1): "tails lighter than predicted",
    ("dependence", 1): "targets move together more than predicted",
    ("dependence", -1): "targets move together less than predicted",
}
