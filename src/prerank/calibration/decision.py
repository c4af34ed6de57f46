"""What counts as a failure, of which kind and degree, decided from the evidence."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from prerank.calibration.error import pce_floor
from prerank.calibration.evidence import Evidence
from prerank.calibration.nulls import holm, null_pce
from prerank.defaults import SIGNIFICANCE

__all__ = ["Decision", "Fault", "Status", "decide"]

Status = Literal["good", "bad", "unclear"]
Place = Literal["margins", "all margins", "dependence", "elsewhere"]
Degree = Literal["slight", "moderate", "strong"]

_SMALL, _LARGE = 0.01, 0.03  # degrees of excess: a bias of a tenth of the spread makes .03
_STRONG = 0.01  # corrected p-values below it are more than some evidence
_BLUNT = 0.05  # an excess that should not go unseen
# Part of the shape that tells of dependence: where targets move together more than predicted, their
# mean varies more (spread), and they lie closer to each other (shift of scale).
_TOGETHER = {
    "location": "spread",
    "average_rank": "spread",
    "copula": "spread",
    "multivariate_rank": "spread",
    "scale": "shift",
}
_JOINT = (*_TOGETHER, "dependency", "pca")


@dataclass(frozen=True)
class Fault:
    """Where a forecast is wrong, and how.

    Attributes:
        place: `"margins"` where targets fail on their own, `"all margins"` where only their mean
            does, `"dependence"` where pre-ranks of several targets do, else `"elsewhere"`.
        witnesses: the pre-ranks that show it.
        kinds: of wrong margins: `"bias"`, `"narrow"`, `"wide"`, `"shape"`.
        together: 1 where targets move together more than predicted, -1 less, 0 where not clear.
        degree: by the largest excess of the witnesses.
        certain: whether the evidence is strong.
    """

    place: Place
    witnesses: tuple[Evidence, ...]
    kinds: tuple[str, ...]
    together: int
    degree: Degree
    certain: bool


@dataclass(frozen=True)
class Decision:
    """Which pre-ranks fail, and what that means.

    Attributes:
        status: `"bad"` where one fails, `"good"` where none does and a relevant error would have
            been seen, else `"unclear"`.
        tested: pre-ranks with a p-value.
        failing: those with evidence against them.
        components: best component with strong evidence of its own and its corrected p-value, by the
            label of the pre-rank.
        fault: None where nothing fails.
        detectable: excess that is detected with a power of about 50 %; NaN unless nothing fails.
    """

    status: Status
    tested: tuple[Evidence, ...] = ()
    failing: tuple[Evidence, ...] = ()
    components: dict[str, tuple[str, float]] = field(default_factory=dict)
    fault: Fault | None = None
    detectable: float = math.nan


def decide(evidence: Sequence[Evidence], *, n: int, tests: int | None = None) -> Decision:
    """Decide what fails.

    A pre-rank fails where its corrected p-value is below .05 or, since one wrong component is
    diluted in the mean over many, where that of a component, corrected over all components of all
    pre-ranks and groups, is below .01. Where a target fails on its own, the margins are wrong; with
    wrong margins no other pre-rank can tell whether the dependence is wrong too. Where none does
    and a pre-rank that looks at several targets at once fails, the dependence is wrong. (The mean
    over the targets may fail for either reason: how much it varies depends on how they vary
    together.)

    Args:
        evidence: on each pre-rank.
        n: number of rows.
        tests: over how many p-values of pre-ranks the correction went, where these rows are one of
            several groups; those of `evidence` by default.

    Example:
        >>> from prerank.calibration import DeviationShape
        >>> from prerank.calibration.evidence import Part
        >>> narrow, fine = DeviationShape(True, 0, 1), DeviationShape(False, 0, 0)
        >>> parts = Part("rain", 0.14, 1e-4, narrow), Part("wind", 0.01, 0.6, fine)
        >>> fault = decide([Evidence("marginal", 0.08, 0.01, 0.0002, parts)], n=900).fault
        >>> fault.place, fault.kinds, fault.degree
        ('margins', ('narrow',), 'strong')
    """
    tested = tuple(one for one in evidence if not math.isnan(one.p_holm))
    if all(one.powerless for one in tested):  # or none is tested
        return Decision("unclear", tested)
    components = _strong_components(tested, groups=(tests or len(evidence)) / len(evidence))
    failing = tuple(one for one in tested if one.p_holm < SIGNIFICANCE or one.label in components)
    if failing:
        fault = _fault(tested, failing, components)
        return Decision("bad", tested, failing, components, fault)
    null = null_pce(n)
    place = math.ceil((1 - SIGNIFICANCE / (tests or len(tested))) * len(null))
    seen = float(null[min(len(null) - 1, place)]) - pce_floor(n)
    return Decision("good" if seen < _BLUNT else "unclear", tested, detectable=seen)


def _strong_components(
    tested: Sequence[Evidence], *, groups: float
) -> dict[str, tuple[str, float]]:
    """The best component of each pre-rank with strong evidence of its own, and its p-value.

    Corrected by Holm over all components here, and by Bonferroni over the groups: those of the
    others are not known.
    """
    parts = [(one, part) for one in tested if len(one.parts) > 1 for part in one.parts]
    corrected = holm([part.p_value for _, part in parts]) * groups if parts else ()
    best: dict[str, tuple[str, float]] = {}
    for (one, part), p in zip(parts, corrected, strict=True):
        if p < min(_STRONG, best.get(one.label, ("", 1.0))[1]):
            best[one.label] = part.name, float(p)
    return best


def _fault(
    tested: Sequence[Evidence],
    failing: Sequence[Evidence],
    components: dict[str, tuple[str, float]],
) -> Fault:
    margins = [one for one in failing if one.kind == "marginal"]
    joint = [one for one in failing if _tells_of_dependence(one)]
    place: Place = "elsewhere"
    kinds: tuple[str, ...] = ()
    witnesses = [max(failing, key=lambda one: one.excess)]
    if margins and margins[0].wrong:
        place, witnesses, kinds = "margins", margins[:1], _kinds(margins[0])
    elif joint and any(one.kind == "marginal" for one in tested):
        place, witnesses = "dependence", joint
    elif margins:
        place, witnesses, kinds = "all margins", margins[:1], ("shape",)
    excess = max(one.excess for one in witnesses)
    return Fault(
        place=place,
        witnesses=tuple(witnesses),
        kinds=kinds,
        together=_together(witnesses),
        degree="slight" if excess < _SMALL else "moderate" if excess < _LARGE else "strong",
        certain=any(one.p_holm < _STRONG or one.label in components for one in witnesses),
    )


def _tells_of_dependence(one: Evidence) -> bool:
    """A shift of the mean over targets, say, is a bias and no matter of dependence."""
    if one.kind in ("location", "average_rank", "pca"):
        return any(part.shape.spread for part in one.wrong if part.shape is not None)
    return one.kind in _JOINT


def _kinds(margins: Evidence) -> tuple[str, ...]:
    kinds: dict[str, None] = {}
    for shape in (part.shape for part in margins.wrong if part.shape is not None):
        own = {"bias": shape.shift != 0, "narrow": shape.spread > 0, "wide": shape.spread < 0}
        kinds |= dict.fromkeys([kind for kind, holds in own.items() if holds] or ["shape"])
    return tuple(kinds)


def _together(joint: Sequence[Evidence]) -> int:
    votes = set()
    for one in joint:
        for part in one.parts if one.kind in _TOGETHER else ():
            shape = part.shape
            if shape is not None and shape.outside:
                # Targets that move together are close to each other: their variance is small.
                votes.add(shape.spread if _TOGETHER[one.kind] == "spread" else -shape.shift)
    votes.discard(0)
    return votes.pop() if len(votes) == 1 else 0
