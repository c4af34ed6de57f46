"""What kind of fault makes a region differ: location, spread, skew, tails or dependence."""

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from torch import Tensor

from prerank.calibration.regions import Region, Score

__all__ = ["FaultKind", "RegionFault", "region_faults"]

FaultKind = Literal["shift", "spread", "skew", "tails", "dependence"]

_KINDS: tuple[FaultKind, ...] = ("shift", "spread", "skew", "tails")  # by degree

_EVIDENCE = 3.5  # studentised difference from which on a target is named
_ALSO = 3.0  # that of further targets, and half of the largest one
_OF_PEAK = 0.25  # share of the largest difference that targets must reach, to be named at all
_MOSTLY_SHIFT = 0.7
_OTHER_WAY = 0.5  # share of the other rows' deviation below which a contrary one is not named
_TAIL_SHARE, _TAIL_EVIDENCE = 0.4, 2.0
# Means of L_2 and L_4 where a normal forecast has 1 / r of the standard deviation of the truth, for
# r = .2, .4, .5, .7, .85, 1, 1.2, 1.5, 2, 3, 5: a fourth moment beside this line is one of tails.
_SPREAD = (-1.036, -0.823, -0.688, -0.403, -0.194, 0.0, 0.23, 0.515, 0.862, 1.273, 1.642)
_FOURTH = (0.872, 0.393, 0.196, -0.023, -0.05, 0.0, 0.135, 0.393, 0.807, 1.398, 1.989)


@dataclass(frozen=True)
class RegionFault:
    """One kind of deviation in a region.

    Attributes:
        kind: of the deviation.
        sign: 1 where PITs are larger, at both ends, skewed to the right, or of heavier tails than
            predicted; or targets move together more. -1 for the contrary.
        prerank: label of the pre-rank that shows it.
        components: their numbers.
        elsewhere: whether the other rows deviate, and those of the region less so.
    """

    kind: FaultKind
    sign: int
    prerank: str
    components: tuple[int, ...]
    elsewhere: bool


def region_faults(region: Region, scores: tuple[Score, ...]) -> tuple[RegionFault, ...]:
    """Name the fault: that of targets where they show it, else that of the dependence.

    Args:
        region: with the differences of all scores.
        scores: what these are.
    """
    z = {score: float(value) for score, value in zip(scores, region.z, strict=True)}
    margins = {score: value for score, value in z.items() if score.prerank == "marginal"}
    peak = max(map(abs, z.values()))
    largest = max(map(abs, margins.values()), default=0.0)
    if largest >= max(_EVIDENCE, _OF_PEAK * peak):
        return _margin_faults(region, scores, margins, max(_ALSO, largest / 2))
    return (_joint_fault(region, scores, z),)


def _margin_faults(
    region: Region, scores: tuple[Score, ...], z: dict[Score, float], least: float
) -> tuple[RegionFault, ...]:
    """Targets of the same kind of fault, together."""
    targets = sorted({score.component for score, value in z.items() if abs(value) >= least})
    moments = {}
    for target in targets:
        at = [scores.index(Score("marginal", target, degree)) for degree in (1, 2, 3, 4)]
        inside, outside = region.inside[at], region.outside[at]
        elsewhere = _is_elsewhere(inside, outside)
        moments[target] = elsewhere, (outside if elsewhere else inside).numpy()
    groups: dict[tuple[FaultKind, int, bool], list[int]] = {}
    for target, (elsewhere, (m1, m2, m3, m4)) in moments.items():
        top = max(map(abs, (m1, m2, m3, m4)))
        kind: FaultKind = "skew" if abs(m3) == top else "spread"
        if abs(m1) >= _MOSTLY_SHIFT * top:
            kind = "shift"
        sign = _sign({"shift": m1, "spread": m2, "skew": m3}[kind])
        groups.setdefault((kind, sign, elsewhere), []).append(target)
    faults = []
    for (kind, sign, elsewhere), members in groups.items():
        fault = RegionFault(kind, sign, "marginal", tuple(members), elsewhere)
        if kind == "spread":
            _, m2, _, m4 = np.mean([moments[target][1] for target in members], axis=0)
            beside = float(m4 - np.interp(m2, _SPREAD, _FOURTH))
            evidence = abs(beside) * math.sqrt(len(region.rows))
            if abs(beside) >= _TAIL_SHARE * abs(m2) and evidence >= _TAIL_EVIDENCE:
                fault = replace(fault, kind="tails", sign=_sign(beside))
        faults.append(fault)
    return tuple(faults)


def _joint_fault(region: Region, scores: tuple[Score, ...], z: dict[Score, float]) -> RegionFault:
    """A fault that no target shows alone: targets that move together more or less, or another."""
    mean, apart = Score("location", 0, 2), Score("scale", 0, 1)
    if z.get(mean, 0.0) * z.get(apart, 0.0) < 0 and max(abs(z[mean]), abs(z[apart])) >= _ALSO:
        score = max((mean, apart), key=lambda one: abs(z[one]))
        elsewhere, value = _stronger(region, scores.index(score))
        together = value if score == mean else -value
        return RegionFault("dependence", _sign(together), score.prerank, (0,), elsewhere)
    score = max(z, key=lambda one: abs(z[one]))
    elsewhere, value = _stronger(region, scores.index(score))
    kind = _KINDS[score.degree - 1]
    return RegionFault(kind, _sign(value), score.prerank, (score.component,), elsewhere)


def _stronger(region: Region, number: int) -> tuple[bool, float]:
    """Whether the other rows deviate more in a score, and the mean of those that do."""
    inside, outside = region.inside[number], region.outside[number]
    elsewhere = _is_elsewhere(inside.reshape(1), outside.reshape(1))
    return elsewhere, float(outside if elsewhere else inside)


def _is_elsewhere(inside: Tensor, outside: Tensor) -> bool:
    """Whether the other rows deviate more: by far more, where they deviate the other way."""
    least = _OTHER_WAY if float(inside @ outside) < 0 else 1.0
    return bool(inside.norm() < least * outside.norm())


def _sign(value: float | Tensor) -> int:
    return 1 if value > 0 else -1
