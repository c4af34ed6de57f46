"""What is wrong with a forecast, in words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from prerank.calibration.causes import Causes
from prerank.calibration.decision import DEGREES, Decision, Fault, Status, decide
from prerank.calibration.dependence import Dependence
from prerank.calibration.evidence import Evidence
from prerank.moved import old_arguments, warn_of_end
from prerank.report.explanations import explanation_of, words_in
from prerank.report.wording import grouped_names, listed, p_phrase, shape_words

__all__ = ["Mood", "Verdict", "reach_verdict", "target_words"]

Mood = Status

_DEGREES = {"slight": "Slightly", "moderate": "Moderately", "strong": "Strongly"}
_TABLES = words_in("prerank.diagnosis", "words.toml")
_ADVICE, _REPAIR, _KINDS = _TABLES["advice"], _TABLES["repair"], _TABLES["kinds"]
_MORE = {1: "more", -1: "less"}


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
    degrees: int | None = None,
    causes: Causes | None = None,
    ensemble: bool = False,
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
        degrees: of freedom of the p-values of such rows.
        causes: of the failures, see `prerank.calibration.causes.causes_of`.
        ensemble: whether samples were judged: advice then repairs them, and trains nothing.

    Example:
        >>> from prerank.calibration import DeviationShape
        >>> from prerank.calibration.evidence import Part
        >>> narrow, fine = DeviationShape(True, 0, 1), DeviationShape(False, 0, 0)
        >>> parts = Part("rain", 0.14, 1e-4, narrow), Part("wind", 0.01, 0.6, fine)
        >>> causes = Causes({"rain": ("narrow",)}, (), ("rain", "wind"), None)
        >>> evidence = [Evidence("marginal", 0.08, 0.01, 0.0002, parts, least=0.1)]
        >>> reach_verdict(evidence, n=900, causes=causes).headline
        'Strongly miscalibrated: predictions too narrow in rain.'
    """
    decision = decide(evidence, n=effective_n or n, tests=tests, causes=causes, degrees=degrees)
    advice: list[str] = []
    if decision.fault is not None:
        headline, points = _failing_verdict(decision, decision.fault, n)
        advice = _advice(decision, decision.fault, ensemble=ensemble)
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
        f"{one.label} fails: {_size(one)}, corrected {p_phrase(one.p_holm)}; "
        f"{_words(one, fault.causes)}."
        for one in failing
    ]
    seen = round(fault.least, 3) > 0
    if seen or fault.certain:  # then the headline has the word
        size = f"is at least {fault.least:.3f}" if seen else "may be below 0.001"
        points.append(
            f"The true error of {fault.worst.worst} {size} at 95 % "
            f"confidence ({fault.degree}; moderate from {DEGREES['moderate']:g}, strong from "
            f"{DEGREES['strong']:g})."
        )
    passing = [one for one in decision.tested if one not in decision.failing]
    if passing:
        labels = listed([one.label for one in passing])
        points += [f"No evidence in {labels}, on {n:,} rows.", *_notes(passing)]
    causes = fault.causes
    if causes is not None and len(causes.names) > 1 and causes.dependence is None:
        points.append(
            "The dependence between targets was not tested: samples do not show it where they are "
            "few, or many tie with the observation, or margins are far off."
        )
    start = f"{_DEGREES[fault.degree]} miscalibrated"
    if not fault.certain:
        start = "Some evidence of miscalibration"
    return f"{start}: {_fault_words(fault)}.", points


def _passing_verdict(decision: Decision, n: int) -> tuple[str, list[str]]:
    headline = f"No evidence of miscalibration on {n:,} rows."
    if decision.status == "unclear":
        headline = f"Too few rows to tell: no evidence of miscalibration on {n:,} of them."
    labels = listed([one.label for one in decision.tested])
    size = (
        f"With this many rows, an error of {decision.detectable:.3f} above the floor is detected "
        "about half of the time, and a smaller one less often."
    )
    return headline, [f"Looked at {labels}.", size, *_notes(decision.tested)]


def _fault_words(fault: Fault) -> str:
    causes = fault.causes
    if causes is None or fault.place == "elsewhere":
        first = fault.witnesses[0]
        return f"{first.label} fails, {_words(first)}"
    wrong = causes.dependent
    if fault.place == "dependence" and wrong is not None:
        start = "wrong dependence; no evidence against any target on its own, but "
        return start + _dependence_words(wrong, causes)
    words = _margin_words(causes)
    if wrong is not None:
        words += f"; and the dependence is wrong: {_dependence_words(wrong, causes)}"
    return words


def target_words(causes: Causes) -> list[str]:
    """The fault of each target, also one that the others share; empty where none was found."""
    return [_kind_words(_kinds_of(causes).get(name, ())) for name in causes.names]


def _kinds_of(causes: Causes) -> dict[str, tuple[str, ...]]:
    others = [name for name in causes.names if name not in causes.targets]
    return causes.targets | dict.fromkeys(others if causes.shared else [], causes.shared)


def _margin_words(causes: Causes) -> str:
    kinds = _kinds_of(causes)
    meanings = [(name, _kind_words(kinds[name])) for name in causes.names if name in kinds]
    if len(set(kinds.values())) == 1 and len(meanings) == len(causes.names):
        words = grouped_names(meanings, total=len(meanings), everyone="every target")
        return words if causes.targets else f"{words}, though none stands out"
    own = [(name, _kind_words(kinds[name])) for name in causes.targets]
    words = grouped_names(own, total=len(causes.names), everyone="every target")
    if causes.shared:
        words += f"; {_kind_words(causes.shared)} in the other targets, though none stands out"
    return words


def _kind_words(kinds: Sequence[str]) -> str:
    return " and ".join(_KINDS[kind]["words"] for kind in kinds)


def _dependence_words(wrong: Dependence, causes: Causes) -> str:
    if wrong.together:
        return f"they move together {_MORE[wrong.together]} than predicted"
    if wrong.extremes:
        often = {1: "more", -1: "less"}[wrong.extremes]
        return f"they are far out in the same rows {often} often than predicted"
    pairs = [
        f"{causes.names[j]} and {causes.names[k]} move together {_MORE[sign]} than predicted"
        for j, k, sign in wrong.pairs
    ]
    return listed(pairs) if pairs else "their dependence differs from the predicted one"


def _advice(decision: Decision, fault: Fault, *, ensemble: bool) -> list[str]:
    causes, words = fault.causes, _ADVICE | _REPAIR if ensemble else _ADVICE
    labels = [one.label for one in fault.witnesses]
    if causes is None or fault.place == "elsewhere":
        repair = _REPAIR["elsewhere"] if ensemble else f"{explanation_of(labels[0]).repair}."
        return [f"{labels[0]}: {repair}"]
    kinds = [kind for own in (*causes.targets.values(), causes.shared) for kind in own]
    advice = list(dict.fromkeys(words[_KINDS[kind]["advice"]] for kind in kinds))
    if causes.dependent is not None:
        advice.append(words["extremes" if causes.dependent.extremes else "dependence"])
    elif len(decision.failing) > 1:
        advice.append(words["margins_first"])
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


def _words(one: Evidence, causes: Causes | None = None) -> str:
    """What fails: for the targets in the words of the causes, as in the headline."""
    if one.kind == "marginal" and causes is not None and (causes.targets or causes.shared):
        return _margin_words(causes)
    return _part_words(one) or "no single component stands out"


def _size(one: Evidence) -> str:
    return f"error {one.pce:.3f}, where a perfect predictor has {one.floor:.3f}"
