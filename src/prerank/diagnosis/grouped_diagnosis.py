"""Diagnoses of the rows of each group beside that of all rows."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prerank.calibration import default_bins
from prerank.calibration.gaps import fewest_pits
from prerank.coordinates import quoted
from prerank.defaults import BAND_LEVEL
from prerank.diagnosis.diagnoses import Diagnosis, label_among
from prerank.diagnosis.diagnosis_page import diagnosis_page
from prerank.diagnosis.equivalence import Equivalence, equivalence_of, with_claim
from prerank.diagnosis.verdict import Verdict
from prerank.errors import InputError
from prerank.extras import needed_by
from prerank.report import HistogramGrid, PITHistogramDisplay
from prerank.report.html import write_page
from prerank.report.wording import listed

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure, SubFigure

__all__ = ["GroupedDiagnosis"]

_NAMED_GROUPS = 3


@dataclass(frozen=True)
class GroupedDiagnosis:
    """What `diagnose_by` returns.

    Attributes:
        overall: of all rows.
        groups: of the rows of each group, by its name.
        labels: of each group, one for each grouping, by its name.
        by: names of the groupings, where they have any.

    In both, `p_holm` is corrected over all pre-ranks of all groups and of the whole.
    """

    overall: Diagnosis
    groups: dict[str, Diagnosis]
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    by: tuple[str, ...] = ()

    @cached_property
    @needed_by("GroupedDiagnosis.table")
    def table(self) -> "pd.DataFrame":
        """The tables of the groups, with a first column `group` and a second `n`, their rows."""
        import pandas as pd

        return pd.DataFrame(
            [
                {"group": name, "n": group.n, **record}
                for name, group in self.groups.items()
                for record in group.records()
            ]
        )

    def within(self, tolerance: float) -> Equivalence:
        """Whether the true error of all rows, and of those of every group, is at most a tolerance.

        Args:
            tolerance: such as 0.03.
        """
        every = (self.overall, *self.groups.values())
        return equivalence_of([f for one in every for f in one.findings], tolerance)

    def verdict(self, *, within: float | None = None) -> Verdict:
        """That of all rows, and how many groups are wrong: bad news where any of these is.

        Args:
            within: say also whether all groups are calibrated to within this error.
        """
        verdict = self._verdict()
        return verdict if within is None else with_claim(verdict, self.within(within))

    def _verdict(self) -> Verdict:
        whole = self.overall.verdict()
        wrong = [name for name, one in self.groups.items() if one.verdict().status == "bad"]
        point = f"Within groups: evidence of miscalibration in {len(wrong)} of {len(self.groups)}"
        few = sum(one.verdict().status == "unclear" for one in self.groups.values())
        point += f"; too few rows to tell in {few}." if few else "."
        verdict = replace(whole, points=(point, *whole.points))
        if not wrong or whole.status == "bad":
            return verdict
        named = listed(wrong) if len(wrong) <= _NAMED_GROUPS else f"{len(wrong)} groups"
        headline = f"Evidence of miscalibration within {named}, though not over all rows."
        return replace(verdict, status="bad", headline=headline)

    @needed_by("GroupedDiagnosis.plot")
    def plot(
        self,
        figure: "Figure | SubFigure | None" = None,
        *,
        prerank: str | None = None,
        component: str | None = None,
        level: float = BAND_LEVEL,
        bins: int | None = None,
    ) -> HistogramGrid:
        """Draw PIT histograms with bands as small multiples, one for each group.

        Groups by two coordinates have a row for each place of the first and a column for each of
        the second. Groups by one have a column each, and a row for each component of the pre-rank.

        Args:
            figure: an empty figure; a new one by default, which is `.figure_` of the result.
            prerank: its label; by default the first one.
            component: name of one component; all by default, for groups by one coordinate.
            level: probability of each band.
            bins: number of bins; by default as many as the smallest group has by itself. A group
                without values of a component has no panel for it.
        """
        return self.histograms(prerank, component, level=level, bins=bins).plot(figure)

    def histograms(
        self,
        prerank: str | None = None,
        component: str | None = None,
        *,
        level: float = BAND_LEVEL,
        bins: int | None = None,
    ) -> HistogramGrid:
        """What `plot` draws, not yet drawn; arguments are those of `plot`."""
        label = label_among(self.overall.pits, prerank)
        count = bins or default_bins(fewest_pits(one.pits[label] for one in self.groups.values()))
        shown = {
            name: next(d for d in one.histograms(level=level, bins=count) if d.label == label)
            for name, one in self.groups.items()
        }
        names = next(iter(shown.values())).names
        if component is not None and component not in names:
            raise InputError(
                f"component {component!r} is none of {label}, which has {quoted(names)}"
            )
        chosen = names if component is None else (component,)
        several = any(len(labels) > 1 for labels in self.labels.values())
        if several and len(chosen) > 1:
            raise InputError(
                f"{label} has {len(names)} components, and groups have rows and columns already: "
                f"name one with component=, such as {names[0]!r}"
            )
        rows: dict[str, dict[str, PITHistogramDisplay | None]] = {}
        for name, display in shown.items():
            labels = self.labels.get(name, (name,))
            for part in chosen:
                one = display.of_component(names.index(part))
                row = labels[0] if several else part if len(chosen) > 1 else ""
                column = "/".join(labels[1:]) if several else name
                rows.setdefault(row, {})[column] = None if one.is_empty else one
        if not any(one for row in rows.values() for one in row.values()):
            raise InputError(f"{label} has no PITs of {quoted(chosen)}: values are missing")
        title = label if len(chosen) > 1 or chosen[0] == label else f"{label} of {chosen[0]}"
        places = [*self.by[:1], "/".join(self.by[1:])] if several else self.by
        kinds = ("rows", "columns") if several else ("columns",)
        words = [
            f"{by} ({kind})" if several else by for by, kind in zip(places, kinds, strict=False)
        ]
        return HistogramGrid(rows, label=f"{title} by {' and '.join(words)}" if words else title)

    @needed_by("GroupedDiagnosis.to_html")
    def to_html(
        self, path: str | PathLike[str], *, within: float | None = None, **options: Any
    ) -> Path:
        """Write the page of all rows, with a row of a table and a verdict for each group.

        Args:
            path: of the file.
            within: as for `verdict`.
            options: as for `Diagnosis.to_html`.
        """
        verdict = self.verdict(within=within)
        page = diagnosis_page(self.overall, verdict=verdict, groups=self.groups, **options)
        return write_page(page, path)
