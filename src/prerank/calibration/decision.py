"""What counts as a failure, where it lies and how large it is, decided from the evidence."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from prerank.calibration.causes import Causes
from prerank.calibration.error import pce_floor
from prerank.calibration.evidence import Evidence
from prerank.calibration.nulls import null_pce
from prerank.defaults import SIGNIFICANCE

__all__ = [
    "DEGREES",
    "STRONG_EVIDENCE",
    "Decision",
    "Degree",
    "Fault",
    "Status",
    "decide",
    "detectable_excess",
    "is_blunt",
]

Status = Literal["good", "bad", "unclear"]
Place = Literal["margins", "dependence", "elsewhere"]
Degree = Literal["slight", "moderate", "strong"]

DEGREES: dict[Degree, float] = {"slight": 0.0, "moderate": 0.01, "strong": 0.03}
"""Least PCE, at 95 % confidence, from which an error has this degree: a bias of a tenth of the
spread makes .03."""

STRONG_EVIDENCE = 0.01
"""Corrected p-values below it are more than some evidence."""

_BLUNT = DEGREES["strong"]  # an excess that should not go unseen


@dataclass(frozen=True)
class Fault:
    """Where a forecast is wrong, and how.

    Attributes:
        place: `"margins"` where targets are wrong, `"dependence"` where only that is, else
            `"elsewhere"`.
        witnesses: the pre-ranks that show it.
        causes: what was found out about it; None without the pre-rank `marginal`.
        worst: of the witnesses and of all that fail, the one whose error is certainly the largest.
        degree: by the least error of that one, see `DEGREES`.
        certain: whether the evidence is strong.
    """

    place: Place
    witnesses: tuple[Evidence, ...]
    causes: Causes | None
    worst: Evidence
    degree: Degree
    certain: bool

    @property
    def least(self) -> float:
        """Lower limit of the true error of the worst."""
        return self.worst.least


@dataclass(frozen=True)
class Decision:
    """Which pre-ranks fail, and what that means.

    Attributes:
        status: `"bad"` where one fails, `"good"` where none does and a relevant error would have
            been seen, else `"unclear"`.
        tested: pre-ranks with a p-value.
        failing: those with evidence against them.
        fault: None where nothing fails.
        detectable: excess that is detected with a power of about 50 %; NaN unless nothing fails.
    """

    status: Status
    tested: tuple[Evidence, ...] = ()
    failing: tuple[Evidence, ...] = ()
    fault: Fault | None = None
    detectable: float = math.nan


def decide(
    evidence: Sequence[Evidence],
    *,
    n: int,
    tests: int | None = None,
    causes: Causes | None = None,
    degrees: int | None = None,
) -> Decision:
    """Decide what fails.

    A pre-rank fails where its p-value, corrected over all of them, is below .05: a calibrated
    forecast has a failing pre-rank in at most 5 % of cases. Then the causes decide where the fault
    is: in the margins where a target stands out or targets share a fault, in the dependence where
    that is wrong given the margins, or in both.

    Args:
        evidence: on each pre-rank.
        n: number of rows.
        tests: over how many p-values of pre-ranks the correction went, where these rows are one of
            several groups; those of `evidence` by default.
        causes: see `prerank.calibration.causes.causes_of`.
        degrees: of freedom of the p-values, where rows depend on each other.

    Example:
        >>> from prerank.calibration import DeviationShape
        >>> from prerank.calibration.evidence import Part
        >>> narrow, fine = DeviationShape(True, 0, 1), DeviationShape(False, 0, 0)
        >>> parts = Part("rain", 0.14, 1e-4, narrow), Part("wind", 0.01, 0.6, fine)
        >>> evidence = [Evidence("marginal", 0.08, 0.01, 0.0002, parts, least=0.1)]
        >>> causes = Causes({"rain": ("narrow",)}, (), ("rain", "wind"), None)
        >>> fault = decide(evidence, n=900, causes=causes).fault
        >>> fault.place, fault.degree
        ('margins', 'strong')
    """
    tested = tuple(one for one in evidence if not math.isnan(one.p_holm))
    if all(one.powerless for one in tested):  # or none is tested
        return Decision("unclear", tested)
    failing = tuple(one for one in tested if one.p_holm < SIGNIFICANCE)
    if failing:
        return Decision("bad", tested, failing, _fault(tested, failing, causes))
    seen = detectable_excess(n, tests or len(tested), degrees)
    return Decision("unclear" if is_blunt(seen) else "good", tested, detectable=seen)


def detectable_excess(n: int, tests: int, degrees: int | None = None) -> float:
    """Excess of one component that is detected with a power of about 50 %.

    Args:
        n: number of rows.
        tests: over how many p-values the correction goes.
        degrees: of freedom of the p-values, where rows depend on each other.

    Example:
        >>> round(detectable_excess(120, 7), 3), round(detectable_excess(1000, 7), 3)
        (0.043, 0.015)
    """
    return _critical_error(n, SIGNIFICANCE / tests, degrees) - pce_floor(n)


def is_blunt(detectable: float) -> bool:
    """Whether rows are too few to tell: not even a strong error would be detected half the time."""
    return detectable >= _BLUNT


def _critical_error(n: int, level: float, degrees: int | None) -> float:
    """PCE from which a p-value of one component is below a level."""
    null = null_pce(n)
    critical = float(null[min(len(null) - 1, math.ceil((1 - level) * len(null)))])
    if degrees is None:
        return critical
    from scipy.special import ndtri, stdtrit  # few degrees of freedom need larger errors

    return critical * float(stdtrit(degrees, 1 - level / 2) / ndtri(1 - level / 2))


def _fault(
    tested: Sequence[Evidence],
    failing: Sequence[Evidence],
    causes: Causes | None,
) -> Fault:
    place: Place = "elsewhere"
    witnesses: Sequence[Evidence] = [max(failing, key=lambda one: one.error)]
    joint = [one for one in failing if one.kind != "marginal"]
    if causes is not None and (causes.targets or causes.shared):
        place, witnesses = "margins", [one for one in tested if one.kind == "marginal"]
    elif causes is not None and causes.dependent is not None:
        place, witnesses = "dependence", joint or failing
    worst = max((*witnesses, *failing), key=lambda one: one.least)
    return Fault(
        place=place,
        witnesses=tuple(witnesses),
        causes=causes,
        worst=worst,
        degree=max(
            (name for name in DEGREES if worst.least >= DEGREES[name]), key=DEGREES.__getitem__
        ),
        certain=any(one.p_holm < STRONG_EVIDENCE for one in failing),
    )
