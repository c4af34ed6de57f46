"""From the findings of a diagnosis to what is wrong, in words."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from prerank.calibration import holm, null_pce, pce_floor
from prerank.calibration.evidence import SIGNIFICANCE, Evidence
from prerank.report.captions import listed, shape_words
from prerank.report.explanations import explanation_of
from prerank.report.table_text import p_text

__all__ = ["Mood", "Verdict", "reach_verdict"]

Mood = Literal["good", "bad", "unclear"]

_SMALL, _LARGE = 0.01, 0.03  # excess in words: a bias of a tenth of the spread makes .03
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
_ADVICE = {
    "narrow": "Too narrow: train with a calibration penalty (prerank fit, or CalibrationPenalty in "
    "your own loss). If the widths are right on the training rows and wrong here, the predictor is "
    "fitted too closely.",
    "wide": "Too wide: train with a calibration penalty (prerank fit, or CalibrationPenalty in "
    "your own loss), and for longer if the training was cut short.",
    "bias": "Bias: look for a change between the training rows and these (season, instrument, "
    "units), and correct it or train again.",
    "shape": "Shape of the margins: let the predictor have more of it (more mixture components, or "
    "a transformed target), and train with a calibration penalty.",
}


@dataclass(frozen=True)
class Verdict:
    """What a reader may conclude.

    Attributes:
        mood: whether that is good news.
        headline: the fault, or that none was found.
        points: which pre-ranks fail, by how much and with what evidence; which pass.
        advice: what to try.
        failing: labels of the pre-ranks with evidence against them.
    """

    mood: Mood
    headline: str
    points: tuple[str, ...]
    advice: tuple[str, ...]
    failing: tuple[str, ...] = ()

    def __str__(self) -> str:
        """All of it, as lines."""
        advice = [f"What to try: {line}" for line in self.advice]
        return "\n".join([self.headline, *(f"- {p}" for p in self.points), *advice])


def reach_verdict(
    evidence: Sequence[Evidence],
    *,
    n: int,
    remarks: Sequence[str] = (),
    tests: int | None = None,
) -> Verdict:
    """Name the fault.

    A pre-rank fails where its corrected p-value is below .05 or, since one wrong component is
    diluted in the mean over many, where that of a component, corrected over all components of all
    pre-ranks and groups, is below .01. Where a target fails on its own, it says how; with wrong
    margins no other pre-rank can tell whether the dependence is wrong too. Where none does and a
    pre-rank that looks at several targets at once fails, it is. (The mean over the targets may fail
    for either reason: how much it varies depends on how they vary together.)

    Args:
        evidence: of each pre-rank.
        n: number of rows.
        remarks: of the diagnosis, which become advice.
        tests: over how many p-values of pre-ranks the correction went, where these rows are one of
            several groups; those of `evidence` by default.

    Example:
        >>> from prerank.calibration import DeviationShape
        >>> from prerank.calibration.evidence import Part
        >>> narrow, fine = DeviationShape(True, 0, 1), DeviationShape(False, 0, 0)
        >>> parts = Part("rain", 0.14, 1e-4, narrow), Part("wind", 0.01, 0.6, fine)
        >>> reach_verdict([Evidence("marginal", 0.08, 0.01, 0.0002, parts)], n=900).headline
        'Strongly miscalibrated: predictions too narrow in rain.'
    """
    tested = [one for one in evidence if not math.isnan(one.p_holm)]
    if tested and all(one.powerless for one in tested):
        headline = "No verdict: samples and observations tie nearly everywhere."
        return Verdict("unclear", headline, tuple(_notes(tested)), tuple(remarks))
    if not tested:
        headline = "No verdict: there is no p-value for weighted samples, only the size of errors."
        sizes = tuple(f"{one.label}: {_size(one)}." for one in evidence)
        return Verdict("unclear", headline, sizes, tuple(remarks))
    single = _single(tested, groups=(tests or len(evidence)) / len(evidence))
    failing = [one for one in tested if one.p_holm < SIGNIFICANCE or one.label in single]
    if not failing:
        return _acquittal(tested, n, remarks, tests or len(tested))
    fault, kinds, witnesses = _fault(tested, failing)
    degree = _degree(max(one.excess for one in witnesses))
    points = [
        f"{one.label} fails: {_size(one)}, {_proof(one, single)}; {_words(one)}."
        for one in sorted(failing, key=lambda one: one.floor - one.pce)
    ]
    points += _passed([one for one in tested if one not in failing], n)
    advice = [_ADVICE[kind] for kind in kinds if kind in _ADVICE]
    if "dependence" in kinds:
        named = [one.label for one in witnesses]
        advice.append(f"Dependence ({listed(named)}): {explanation_of(named[0]).repair}.")
    elif "other" in kinds:
        label = witnesses[0].label
        advice.append(f"{label}: {explanation_of(label).repair}.")
    elif len(failing) > 1:
        advice.append(
            "The other pre-ranks may fail because the margins do, or on their own: repair the "
            "margins first, and look again."
        )
    headline = f"{degree} miscalibrated: {fault}."
    if not any(one.p_holm < _STRONG or one.label in single for one in witnesses):
        headline = f"Some evidence of miscalibration: {fault}."
    labels = tuple(one.label for one in failing)
    return Verdict("bad", headline, tuple(points), (*advice, *remarks), labels)


def _single(tested: Sequence[Evidence], *, groups: float) -> dict[str, tuple[str, float]]:
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
    tested: Sequence[Evidence], failing: Sequence[Evidence]
) -> tuple[str, list[str], list[Evidence]]:
    """The fault in words, its kinds, and the pre-ranks that show it."""
    margins = next((one for one in failing if one.kind == "marginal"), None)
    if margins is not None and margins.wrong:
        return *_marginal_fault(margins), [margins]
    joint = [one for one in failing if _tells_of_dependence(one)]
    if joint and any(one.kind == "marginal" for one in tested):
        how = {
            1: "they move together more than predicted",
            -1: "they move together less than predicted",
            0: "not together",
        }
        fault = "wrong dependence; no evidence against any target on its own, but "
        if margins is not None:
            fault = "wrong dependence, or a little wrong in every target; none stands out, but "
        return fault + how[_together(joint)], ["dependence"], joint
    if margins is not None:
        fault = "a little wrong in every target, or in their dependence; none stands out"
        return fault, ["shape"], [margins]
    worst = max(failing, key=lambda one: one.excess)
    return f"{worst.label} fails, {_words(worst)}", ["other"], [worst]


def _tells_of_dependence(one: Evidence) -> bool:
    """A shift of the mean over targets, say, is a bias and no matter of dependence."""
    if one.kind not in _JOINT:
        return False
    shapes = [part.shape for part in one.wrong if part.shape is not None]
    if one.kind in ("location", "average_rank", "pca"):
        return any(shape.spread for shape in shapes)
    return True


def _marginal_fault(margins: Evidence) -> tuple[str, list[str]]:
    groups: dict[str, list[str]] = {}
    kinds: dict[str, None] = {}
    for part in margins.wrong:
        shape = part.shape
        if shape is None:
            continue
        groups.setdefault(shape_words("marginal", shape), []).append(part.name)
        found = {"bias": shape.shift != 0, "narrow": shape.spread > 0, "wide": shape.spread < 0}
        kinds |= dict.fromkeys([kind for kind, holds in found.items() if holds] or ["shape"])
    if len(margins.parts) == 1:
        return next(iter(groups)), list(kinds)
    everywhere = len(next(iter(groups.values()))) == len(margins.parts)
    parts = [
        f"{words} in {'every target' if everywhere else listed(names)}"
        for words, names in groups.items()
    ]
    return "; ".join(parts), list(kinds)


def _together(joint: Sequence[Evidence]) -> int:
    """1 where targets move together more than predicted, -1 less, 0 where that is not clear."""
    votes = set()
    for one in joint:
        for part in one.parts if one.kind in _TOGETHER else ():
            shape = part.shape
            if shape is not None and shape.outside:
                # Targets that move together are close to each other: their variance is small.
                spread = _TOGETHER[one.kind] == "spread"
                votes.add(shape.spread if spread else -shape.shift)
    votes.discard(0)
    return votes.pop() if len(votes) == 1 else 0


def _acquittal(tested: Sequence[Evidence], n: int, remarks: Sequence[str], tests: int) -> Verdict:
    null = null_pce(n)
    place = min(len(null) - 1, math.ceil((1 - SIGNIFICANCE / tests) * len(null)))
    seen = float(null[place]) - pce_floor(n)
    labels = listed([one.label for one in tested])
    mood: Mood = "good" if seen < _BLUNT else "unclear"
    headline = f"No evidence of miscalibration on {n:,} rows."
    if mood == "unclear":
        headline = f"Too few rows to tell: no evidence of miscalibration on {n:,} of them."
    size = (
        f"With so many rows, an error of {_number(seen)} above the floor shows about every second "
        "time, and a smaller one less often."
    )
    return Verdict(mood, headline, (f"Looked at {labels}.", size, *_notes(tested)), tuple(remarks))


def _passed(passing: Sequence[Evidence], n: int) -> list[str]:
    if not passing:
        return []
    labels = listed([one.label for one in passing])
    return [f"No evidence in {labels}, on {n:,} rows.", *_notes(passing)]


def _notes(found: Sequence[Evidence]) -> list[str]:
    return [f"{one.label}: {one.note}." for one in found if one.note]


def _words(one: Evidence) -> str:
    groups: dict[str, list[str]] = {}
    for part in one.wrong:
        if part.shape is not None:
            groups.setdefault(shape_words(one.label, part.shape), []).append(part.name)
    if not groups:
        return "no single component stands out"
    if len(one.parts) == 1:
        return next(iter(groups))
    return "; ".join(f"{words} in {listed(names)}" for words, names in groups.items())


def _proof(one: Evidence, single: Mapping[str, tuple[str, float]]) -> str:
    """The corrected p-value, and that of a component where this one does not tell alone."""
    if one.p_holm < SIGNIFICANCE:
        return f"corrected {_p(one.p_holm)}"
    name, p = single[one.label]
    return f"corrected {_p(one.p_holm)} for the mean of its components, but {_p(p)} for {name}"


def _size(one: Evidence) -> str:
    return f"error {_number(one.pce)}, where a perfect predictor has {_number(one.floor)}"


def _degree(excess: float) -> str:
    return "Slightly" if excess < _SMALL else "Moderately" if excess < _LARGE else "Strongly"


def _number(value: float) -> str:
    return f"{value:.3f}"


def _p(value: float) -> str:
    text = p_text(value)
    return f"p {text[0]} {text[1:]}" if text.startswith("<") else f"p = {text}"
