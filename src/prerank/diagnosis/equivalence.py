"""Is a forecast calibrated to within a tolerance? What no evidence against it does not show."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from prerank.calibration.error_table import ALL, POWERLESS_TIES, Finding
from prerank.defaults import BAND_LEVEL
from prerank.diagnosis.verdict import Verdict
from prerank.errors import InputError
from prerank.report.wording import listed

__all__ = ["Equivalence", "equivalence_of", "with_claim"]


@dataclass(frozen=True)
class Equivalence:
    """Whether every error of the table is at most a tolerance, at 95 %.

    Attributes:
        tolerance: largest true PCE that is accepted.
        shown: whether the upper limits of all rows are within it.
        upper: the largest of them; NaN where there is none.
        worst: pre-rank and component that it belongs to.
        left_out: pre-ranks that cannot tell, since nearly all samples tie with the observation.
    """

    tolerance: float
    shown: bool
    upper: float
    worst: str
    left_out: tuple[str, ...] = ()

    def __str__(self) -> str:
        """One or two sentences."""
        level = f"{BAND_LEVEL:.0%}".replace("%", " %")
        words = f"Not shown to be calibrated to within {self.tolerance:g} at {level}"
        if math.isnan(self.upper):
            return f"{words}: there are no confidence limits."
        reason = f"the error of {self.worst} may be up to {self.upper:.3f}"
        if self.shown:
            words = f"Calibrated to within {self.tolerance:g} at {level}"
            reason = f"every error is at most {self.upper:.3f}, the largest that of {self.worst}"
        left = f" Ties leave {listed(self.left_out)} out." if self.left_out else ""
        return f"{words}: {reason}.{left}"


def equivalence_of(findings: Sequence[Finding], tolerance: float) -> Equivalence:
    """Compare the upper limit of every row of one predictor with a tolerance.

    No correction for many rows is needed: if any true error is above the tolerance, its own limit
    is within it with a probability of 5 % at most.

    Args:
        findings: rows of the table.
        tolerance: largest true PCE that is accepted.
    """
    if not isinstance(tolerance, float | int | np.number) or not 0 < tolerance < 1:
        raise InputError(f"within must be an error between 0 and 1, got {tolerance!r}")
    findings = [row for row in findings if row.n != 0]  # of a group without values
    tested = [row for row in findings if row.ties < POWERLESS_TIES]
    left = {row.prerank: None for row in findings if row not in tested}
    worst = max(tested, key=lambda row: row.upper, default=None)
    if worst is None or any(math.isnan(row.upper) for row in tested):
        return Equivalence(float(tolerance), False, math.nan, "", tuple(left))
    name = worst.prerank if worst.component == ALL else f"{worst.prerank} ({worst.component})"
    shown = worst.upper <= tolerance
    return Equivalence(float(tolerance), shown, worst.upper, name, tuple(left))


def with_claim(verdict: Verdict, claim: Equivalence) -> Verdict:
    """A verdict with what is shown about a tolerance: the headline where nothing is wrong."""
    if claim.shown and verdict.status != "bad":
        points = (verdict.headline, *verdict.points)
        return replace(verdict, status="good", headline=str(claim), points=points)
    return replace(verdict, points=(*verdict.points, str(claim)))
