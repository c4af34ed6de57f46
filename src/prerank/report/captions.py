"""Reliability curves in words."""

from collections.abc import Sequence

from prerank.calibration import DeviationShape

__all__ = ["reliability_caption"]

_SHIFT = {-1: "observed values lower than predicted", 1: "observed values higher than predicted"}
_SPREAD = {-1: "predictions too wide", 1: "predictions too narrow"}
# The density at an observation says how well it was foreseen, not how large it is.
_DENSITY_SHIFT = {
    -1: "observations too often where the density is low (predictions too narrow or off the mark)",
    1: "observations too often where the density is high (predictions too wide)",
}
_DENSITY_SPREAD = {
    -1: "observations too seldom where the density is lowest or highest",
    1: "observations too often where the density is lowest or highest (some predictions too "
    "narrow, others too wide)",
}


def reliability_caption(
    label: str, names: Sequence[str], shapes: Sequence[DeviationShape], *, level: float = 0.95
) -> str:
    """Say in one sentence what the curves of one pre-rank mean.

    Args:
        label: name of the pre-rank; `"hdr"` ranks densities and is put in words of its own.
        names: of the J components.
        shapes: of the J components.
        level: probability of the band.

    Example:
        >>> low, fine = DeviationShape(True, -1, 0), DeviationShape(False, -1, 0)
        >>> reliability_caption("marginal", ["rain", "wind"], [low, fine])
        'marginal: observed values lower than predicted in rain; within the 95 % band in wind.'
        >>> reliability_caption("scale", ["scale"], [DeviationShape(True, 0, 1)])
        'scale: predictions too narrow.'
    """
    groups: dict[str, list[str]] = {}
    for name, shape in zip(names, shapes, strict=True):
        groups.setdefault(_meaning(label, shape, level), []).append(name)
    if len(names) == 1:
        parts = list(groups)
    else:
        parts = [f"{meaning} in {_listed(members)}" for meaning, members in groups.items()]
    return f"{label}: {'; '.join(parts)}." if label else f"{'; '.join(parts)}."


def _meaning(label: str, shape: DeviationShape, level: float) -> str:
    if not shape.outside:
        return f"within the {100 * level:g} % band"
    shifts, spreads = (_DENSITY_SHIFT, _DENSITY_SPREAD) if label == "hdr" else (_SHIFT, _SPREAD)
    found = [
        words[sign] for words, sign in ((shifts, shape.shift), (spreads, shape.spread)) if sign
    ]
    return " and ".join(found) or "uneven in a way that is neither a shift nor a wrong spread"


def _listed(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
