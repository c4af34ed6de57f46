"""Reliability curves in words."""

from collections.abc import Iterable, Sequence

from prerank.calibration import DeviationShape
from prerank.report.explanations import explanation_of

__all__ = ["joined_names", "listed", "reliability_caption", "shape_words"]


def reliability_caption(
    label: str, names: Sequence[str], shapes: Sequence[DeviationShape], *, level: float = 0.95
) -> str:
    """Say in one sentence what the curves of one pre-rank mean.

    Args:
        label: of the pre-rank, which decides the words.
        names: of the J components.
        shapes: of the J components.
        level: probability of the band.

    Example:
        >>> low, fine = DeviationShape(True, -1, 0), DeviationShape(False, -1, 0)
        >>> reliability_caption("marginal", ["rain", "wind"], [low, fine])
        'marginal: observed values lower than predicted in rain; within the 95 % band in wind.'
        >>> reliability_caption("scale", ["scale"], [DeviationShape(True, 0, 1)])
        'scale: a distance between the targets that varies more than predicted.'
    """
    groups: dict[str, list[str]] = {}
    for name, shape in zip(names, shapes, strict=True):
        groups.setdefault(_meaning(label, shape, level), []).append(name)
    if len(names) == 1:
        parts = list(groups)
    else:
        parts = [f"{meaning} in {listed(members)}" for meaning, members in groups.items()]
    return f"{label}: {'; '.join(parts)}." if label else f"{'; '.join(parts)}."


def shape_words(label: str, shape: DeviationShape) -> str:
    """What a deviation of this shape says of the pre-rank.

    Example:
        >>> shape_words("marginal", DeviationShape(True, 1, 1))
        'observed values higher than predicted and predictions too narrow'
    """
    words = explanation_of(label)
    found = []
    if shape.shift:
        found.append(words.large if shape.shift > 0 else words.small)
    if shape.spread:
        found.append(words.outer if shape.spread > 0 else words.inner)
    return " and ".join(found) or "uneven in a way that is neither a shift nor a wrong spread"


def _meaning(label: str, shape: DeviationShape, level: float) -> str:
    return shape_words(label, shape) if shape.outside else f"within the {100 * level:g} % band"


def listed(names: Sequence[str]) -> str:
    """Names in a sentence: `a, b and c`."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def joined_names(names: Iterable[str]) -> str:
    """Names with commas between, and quotes around one that holds a comma.

    Example:
        >>> joined_names(["rain, mm", "wind"])
        '"rain, mm", wind'
    """
    quoted = ('"{}"'.format(name.replace('"', '""')) if "," in name else name for name in names)
    return ", ".join(quoted)
