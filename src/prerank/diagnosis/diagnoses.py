"""Diagnoses of one or several predictors, and of groups of rows, with pictures and pages."""

from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prerank.defaults import BAND_LEVEL
from prerank.diagnosis.diagnosis_page import diagnosis_page
from prerank.diagnosis.findings import Findings
from prerank.diagnosis.verdict import Verdict
from prerank.report import ReliabilityGrid
from prerank.report.html import write_page
from prerank.report.wording import listed

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure, SubFigure

__all__ = ["Diagnosis", "GroupedDiagnosis"]

_NAMED_GROUPS = 3


class Diagnosis(Findings):
    """What `diagnose` returns: findings with a verdict, a table, pictures and a page.

    Its attributes are those of `Findings`. `print` shows the verdict and the table; neither needs
    pandas or matplotlib.
    """

    def plot(
        self, figure: "Figure | SubFigure | None" = None, *, level: float = BAND_LEVEL
    ) -> ReliabilityGrid:
        """Draw the reliability diagrams, a column for each pre-rank, a row for each predictor.

        Args:
            figure: an empty figure; a new one by default, which is `.figure_` of the result.
            level: probability of the bands.
        """
        several = len(self._models) > 1
        rows = {
            f"model {model}" if several else "": self.displays(model=model, level=level)
            for model in self._models
        }
        return ReliabilityGrid(rows).plot(figure)

    def to_html(self, path: str | PathLike[str], **options: Any) -> Path:
        """Write one page that needs nothing else: verdict, table, pictures, settings.

        Args:
            path: of the file.
            options: `title` of the page, and others of
                `prerank.diagnosis.diagnosis_page.diagnosis_page`; a stack of predictors has none.
        """
        return write_page(diagnosis_page(self, **options), path)


@dataclass(frozen=True)
class GroupedDiagnosis:
    """What `diagnose_by` returns.

    Attributes:
        overall: of all rows.
        groups: of the rows of each group, by its name.

    In both, `p_holm` is corrected over all pre-ranks of all groups and of the whole.
    """

    overall: Diagnosis
    groups: dict[str, Diagnosis]

    @cached_property
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

    def verdict(self) -> Verdict:
        """That of all rows, and how many groups are wrong: bad news where any of these is."""
        whole = self.overall.verdict()
        wrong = [name for name, one in self.groups.items() if one.verdict().status == "bad"]
        point = f"Within groups: evidence of miscalibration in {len(wrong)} of {len(self.groups)}."
        verdict = replace(whole, points=(point, *whole.points))
        if not wrong or whole.status == "bad":
            return verdict
        named = listed(wrong) if len(wrong) <= _NAMED_GROUPS else f"{len(wrong)} groups"
        headline = f"Evidence of miscalibration within {named}, though not over all rows."
        return replace(verdict, status="bad", headline=headline)

    def to_html(self, path: str | PathLike[str], **options: Any) -> Path:
        """Write the page of all rows, with a row of a table and a verdict for each group.

        Args:
            path: of the file.
            options: as for `Diagnosis.to_html`.
        """
        page = diagnosis_page(self.overall, verdict=self.verdict(), groups=self.groups, **options)
        return write_page(page, path)
