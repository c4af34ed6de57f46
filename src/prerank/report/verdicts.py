"""From the findings of a diagnosis to what is wrong, in words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from prerank.calibration import DeviationShape, null_pce, pce_floor
from prerank.report.captions import listed, shape_words
from prerank.report.explanations import explanation_of

__all__ = ["Evidence", "Mood", "Verdict", "reach_verdict"]

Mood = Literal["good", "bad", "unclear"]

_DENSITY = ("hdr", "energy_score", "band_depth")
_SMALL, _LARGE = 0.01, 0.03  # excess in words: a bias of a tenth of the spread makes .03
_BLUNT = 0.05  # an excess that should not go unseen
_TOGETHER = {"location": "spread", "average_rank": "spread", "copula": "spread", "scale": "shift"}
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
class Evidence:
    """What was found for one pre-rank.

    Attributes:
        label: of the pre-rank.
        pce: mean over the components.
        floor: what a perfect predictor scores on average.
        p_holm: corrected p-value, NaN where there is none.
        names: of the components.
        shapes: of the components; empty where there is no band to judge them by.
        note: such as that there is no power.
    """

    label: str
    pce: float
    floor: float
    p_holm: float
    names: tuple[str, ...]
    shapes: tuple[DeviationShape, ...]
    note: str = ""

    @property
    def kind(self) -> str:
        """The label without its argument."""
        return self.label.partition("(")[0]


@dataclass(frozen=True)
class Verdict:
    """What a reader may conclude.

    Attributes:
        mood: whether that is good news.
        headline: the fault, or that none was found.
        points: which pre-ranks fail, by how much and with what evidence; which pass.
        advice: what to try.
    """

    mood: Mood
    headline: str
    points: tuple[str, ...]
    advice: tuple[str, ...]

    def __str__(self) -> str:
        """All of it, as lines."""
        advice = [f"What to try: {line}" for line in self.advice]
        return "\n".join([self.headline, *(f"- {p}" for p in self.points), *advice])


def reach_verdict(
    evidence: Sequence[Evidence],
    *,
    n: int,
    remarks: Sequence[str] = (),
    significance: float = 0.05,
) -> Verdict:
    """Name the fault.

    Where the margins fail, they say how. Where they pass and a pre-rank that looks at several
    targets at once does not, the dependence between them is wrong.

    Args:
        evidence: of each pre-rank.
        n: number of rows.
        remarks: of the diagnosis, which become advice.
        significance: corrected p-values below it count.

    Example:
        >>> narrow, fine = DeviationShape(True, 0, 1), DeviationShape(False, 0, 0)
        >>> found = [Evidence("marginal", 0.08, 0.01, 0.0002, ("rain", "wind"), (narrow, fine))]
        >>> reach_verdict(found, n=900).headline
        'Strongly miscalibrated: predictions too narrow in rain.'
    """
    tested = [one for one in evidence if not math.isnan(one.p_holm)]
    failing = [one for one in tested if one.p_holm < significance]
    if not tested:
        headline = "No verdict: there is no p-value for weighted samples, only the size of errors."
        sizes = tuple(f"{one.label}: {_size(one)}." for one in evidence)
        return Verdict("unclear", headline, sizes, tuple(remarks))
    if not failing:
        return _acquittal(tested, n, remarks, significance)
    worst = max(failing, key=lambda one: one.pce - one.floor)
    fault, kinds = _fault(tested, failing)
    headline = f"{_degree(worst.pce - worst.floor)} miscalibrated: {fault}."
    points = [
        f"{one.label} fails: {_size(one)}, p {_p(one.p_holm)}; {_words(one)}."
        for one in sorted(failing, key=lambda one: one.floor - one.pce)
    ]
    passing = [one for one in tested if one not in failing]
    points += _passed(passing, n)
    advice = [_ADVICE[kind] for kind in kinds if kind in _ADVICE]
    if "dependence" in kinds:
        labels = [one.label for one in failing if one.kind != "marginal"]
        repair = explanation_of(labels[0]).repair
        advice.append(f"Dependence ({listed(labels)}): {repair}.")
    elif "density" in kinds:
        advice.append(f"Density: {explanation_of(worst.label).repair}.")
    return Verdict("bad", headline, tuple(points), (*advice, *remarks))


def _fault(tested: Sequence[Evidence], failing: Sequence[Evidence]) -> tuple[str, list[str]]:
    """The fault in words, and its kinds."""
    margins = next((one for one in failing if one.kind == "marginal"), None)
    if margins is not None:
        return _marginal_fault(margins)
    joint = [one for one in failing if one.kind not in _DENSITY]
    alone = any(one.kind == "marginal" for one in tested)
    if joint and alone:
        sign = _together(joint)
        how = {
            1: "they move together more than predicted",
            -1: "they move together less than predicted",
            0: "not together",
        }
        fault = f"wrong dependence; each target is right on its own, but {how[sign]}"
        return fault, ["dependence"]
    kinds = ["dependence"] if joint else ["density"]
    return f"{failing[0].label} fails, {_words(failing[0])}", kinds


def _marginal_fault(margins: Evidence) -> tuple[str, list[str]]:
    groups: dict[str, list[str]] = {}
    kinds: dict[str, None] = {}
    for name, shape in zip(margins.names, margins.shapes, strict=True):
        if not shape.outside:
            continue
        groups.setdefault(shape_words("marginal", shape), []).append(name)
        found = {"bias": shape.shift != 0, "narrow": shape.spread > 0, "wide": shape.spread < 0}
        kinds |= dict.fromkeys([kind for kind, holds in found.items() if holds] or ["shape"])
    if not groups:  # the mean over the targets fails, though none does so alone
        return "the targets on their own are wrong by a little each", ["shape"]
    if len(margins.names) == 1:
        return next(iter(groups)), list(kinds)
    everywhere = len(next(iter(groups.values()))) == len(margins.names)
    parts = [
        f"{words} in {'every target' if everywhere else listed(names)}"
        for words, names in groups.items()
    ]
    return "; ".join(parts), list(kinds)


def _together(joint: Sequence[Evidence]) -> int:
    """1 where targets move together more than predicted, -1 less, 0 where that is not clear."""
    votes = set()
    for one in joint:
        for shape in one.shapes if one.kind in _TOGETHER else ():
            # Targets that move together are close to each other: their variance is small.
            sign = shape.spread if _TOGETHER[one.kind] == "spread" else -shape.shift
            if shape.outside and sign:
                votes.add(sign)
    return votes.pop() if len(votes) == 1 else 0


def _acquittal(
    tested: Sequence[Evidence], n: int, remarks: Sequence[str], significance: float
) -> Verdict:
    null = null_pce(n)
    seen = float(null[int((1 - significance / len(tested)) * len(null)) - 1]) - pce_floor(n)
    labels = listed([one.label for one in tested])
    mood: Mood = "good" if seen < _BLUNT else "unclear"
    headline = f"No evidence of miscalibration on {n:,} rows."
    if mood == "unclear":
        headline = f"Too few rows to tell: no evidence of miscalibration on {n:,} of them."
    size = f"On so many rows, an error of about {_number(seen)} above the floor would have shown."
    return Verdict(mood, headline, (f"Looked at {labels}.", size, *_notes(tested)), tuple(remarks))


def _passed(passing: Sequence[Evidence], n: int) -> list[str]:
    if not passing:
        return []
    labels = listed([one.label for one in passing])
    return [f"No evidence in {labels}, on {n:,} rows.", *_notes(passing)]


def _notes(found: Sequence[Evidence]) -> list[str]:
    return [f"{one.label}: {one.note}." for one in found if one.note]


def _words(one: Evidence) -> str:
    outside = [(n, s) for n, s in zip(one.names, one.shapes, strict=False) if s.outside]
    groups: dict[str, list[str]] = {}
    for name, shape in outside:
        groups.setdefault(shape_words(one.label, shape), []).append(name)
    if not groups:
        return "no single deviation stands out"
    if len(one.names) == 1:
        return next(iter(groups))
    return "; ".join(f"{words} in {listed(names)}" for words, names in groups.items())


def _size(one: Evidence) -> str:
    return f"error {_number(one.pce)}, where a perfect predictor has {_number(one.floor)}"


def _degree(excess: float) -> str:
    return "Slightly" if excess < _SMALL else "Moderately" if excess < _LARGE else "Strongly"


def _number(value: float) -> str:
    return f"{value:.3f}".replace("0.", ".", 1)


def _p(value: float) -> str:
    return "< .001" if value < 0.001 else f"= {_number(value)}"
