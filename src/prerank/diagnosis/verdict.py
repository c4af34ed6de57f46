"""What is wrong with a forecast, in words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from prerank.calibration.decision import Decision, Fault, Status, decide
from prerank.calibration.evidence import Evidence
from prerank.defaults import SIGNIFICANCE
from prerank.moved import old_arguments, warn_of_end
from prerank.report.wording import (
    explanation_of,
    grouped_names,
    listed,
    p_text,
    shape_words,
    words_in,
)

__all__ = ["Mood", "Verdict", "reach_verdict"]

Mood = Status

_DEGREES = {"slight": "Slightly", "moderate": "Moderately", "strong": "Strongly"}
_TOGETHER = {
    1: "they move together more than predicted",
    -1: "they move together less than predicted",
    0: "not together",
}
_ADVICE = words_in("prerank.diagnosis", "words.toml")["advice"]


@old_arguments(mood="status")
@dataclass(frozen=True)
class Verdict:
    """What a reader may conclude.

    Attributes:
        status: `"good"`, `"bad"` or `"unclear"`.
        headline: the fault, or that none was found.
        points: which pre-ranks fail, by how much and with what evidence; which pass; the units.
        advice: what to try.
        failing: labels of the pre-ranks with evidence against them.
    """

    status: Status
    headline: str
    points: tuple[str, ...]
    advice: tuple[str, ...]
    failing: tuple[str, ...] = ()

    @property
    def mood(self) -> Status:
        """Deprecated name of `status`."""
        warn_of_end("Verdict.mood", "use status")
        return self.status

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
    units: str | None = None,
    effective_n: int | None = None,
) -> Verdict:
    """Decide what fails (see `prerank.calibration.decision.decide`), and say it.

    Args:
        evidence: on each pre-rank.
        n: number of rows.
        remarks: of the diagnosis, which become advice.
        tests: over how many p-values of pre-ranks the correction went, where these rows are one of
            several groups; those of `evidence` by default.
        units: in which the targets were judged.
        effective_n: number of independent rows that tell as much, where rows depend on each other.

    Example:
        >>> from prerank.calibration import DeviationShape
        >>> from prerank.calibration.evidence import Part
        >>> narrow, fine = DeviationShape(True, 0, 1), DeviationShape(False, 0, 0)
        >>> parts = Part("rain", 0.14, 1e-4, narrow), Part("wind", 0.01, 0.6, fine)
        >>> reach_verdict([Evidence("marginal", 0.08, 0.01, 0.0002, parts)], n=900).headline
        'Strongly miscalibrated: predictions too narrow in rain.'
    """
    decision = decide(evidence, n=effective_n or n, tests=tests)
    advice: list[str] = []
    if decision.fault is not None:
        headline, points = _failing_verdict(decision, decision.fault, n)
        advice = _advice(decision, decision.fault)
    elif not math.isnan(decision.detectable):
        headline, points = _passing_verdict(decision, n)
    elif decision.tested:
        headline = "No verdict: samples and observations tie nearly everywhere."
        points = _notes(decision.tested)
    else:
        headline = "No verdict: there is no p-value for weighted samples, only the size of errors."
        points = [f"{one.label}: {_size(one)}." for one in evidence]
    points += [f"Units: {units}."] if units else []
    labels = tuple(one.label for one in decision.failing)
    return Verdict(decision.status, headline, tuple(points), (*advice, *remarks), labels)


def _failing_verdict(decision: Decision, fault: Fault, n: int) -> tuple[str, list[str]]:
    failing = sorted(decision.failing, key=lambda one: one.floor - one.pce)
    points = [
        f"{one.label} fails: {_size(one)}, {_proof(one, decision)}; {_words(one)}."
        for one in failing
    ]
    passing = [one for one in decision.tested if one not in decision.failing]
    if passing:
        labels = listed([one.label for one in passing])
        points += [f"No evidence in {labels}, on {n:,} rows.", *_notes(passing)]
    start = f"{_DEGREES[fault.degree]} miscalibrated"
    if not fault.certain:
        start = "Some evidence of miscalibration"
    return f"{start}: {_fault_words(decision, fault)}.", points


def _passing_verdict(decision: Decision, n: int) -> tuple[str, list[str]]:
    headline = f"No evidence of miscalibration on {n:,} rows."
    if decision.status == "unclear":
        headline = f"Too few rows to tell: no evidence of miscalibration on {n:,} of them."
    labels = listed([one.label for one in decision.tested])
    size = (
        f"With so many rows, an error of {decision.detectable:.3f} above the floor shows about "
        "every second time, and a smaller one less often."
    )
    return headline, [f"Looked at {labels}.", size, *_notes(decision.tested)]


def _fault_words(decision: Decision, fault: Fault) -> str:
    first = fault.witnesses[0]
    match fault.place:
        case "margins":
            return _part_words(first, everyone="every target")
        case "all margins":
            return "a little wrong in every target, or in their dependence; none stands out"
        case "elsewhere":
            return f"{first.label} fails, {_words(first)}"
        case _:
            words = "wrong dependence; no evidence against any target on its own, but "
            if any(one.kind == "marginal" for one in decision.failing):
                words = "wrong dependence, or a little wrong in every target; none stands out, but "
            return words + _TOGETHER[fault.together]


def _advice(decision: Decision, fault: Fault) -> list[str]:
    advice = [_ADVICE[kind] for kind in fault.kinds]
    labels = [one.label for one in fault.witnesses]
    if fault.place == "dependence":
        advice.append(f"Dependence ({listed(labels)}): {explanation_of(labels[0]).repair}.")
    elif fault.place == "elsewhere":
        advice.append(f"{labels[0]}: {explanation_of(labels[0]).repair}.")
    elif len(decision.failing) > 1:
        advice.append(_ADVICE["margins_first"])
    return advice


def _notes(evidence: Sequence[Evidence]) -> list[str]:
    return [f"{one.label}: {one.note}." for one in evidence if one.note]


def _part_words(one: Evidence, everyone: str | None = None) -> str:
    """How the components with evidence of their own deviate."""
    meanings = [
        (part.name, shape_words(one.label, part.shape))
        for part in one.wrong
        if part.shape is not None
    ]
    return grouped_names(meanings, total=len(one.parts), everyone=everyone)


def _words(one: Evidence) -> str:
    return _part_words(one) or "no single component stands out"


def _proof(one: Evidence, decision: Decision) -> str:
    """The corrected p-value, and that of a component where this one does not tell alone."""
    if one.p_holm < SIGNIFICANCE:
        return f"corrected {_p(one.p_holm)}"
    name, p = decision.components[one.label]
    return f"corrected {_p(one.p_holm)} for the mean of its components, but {_p(p)} for {name}"


def _size(one: Evidence) -> str:
    return f"error {one.pce:.3f}, where a perfect predictor has {one.floor:.3f}"


def _p(value: float) -> str:
    text = p_text(value)
    return f"p {text[0]} {text[1:]}" if text.startswith("<") else f"p = {text}"
