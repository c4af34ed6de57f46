"""Bounds of the targets, as they are given to a regressor, saved and put into words."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from prerank.errors import InputError
from prerank.files.frames import listed

__all__ = ["bounds_in_words", "numbered_bounds", "plain_bounds"]

_FORM = 'bounds must be {name: (lower, upper)}, such as {"humid": (0, 100), "rain": (0, None)}'


def numbered_bounds(bounds: Any, names: Sequence[str]) -> dict[int, tuple[float, float]]:
    """Lower and upper bound by the number of the target, infinite where there is none.

    Args:
        bounds: pairs by the name of the target, None for no bound.
        names: of the targets.

    Example:
        >>> numbered_bounds({"rain": (0, None)}, ["wind", "rain"])
        {1: (0.0, inf)}
    """
    places = {name: d for d, name in enumerate(names)}
    found = {}
    for name, (low, high) in (plain_bounds(bounds) or {}).items():
        if name not in places:
            raise InputError(f"bounds names {name!r}, but the targets are {listed(names)}")
        found[places[name]] = (-inf if low is None else low, inf if high is None else high)
    return found


def plain_bounds(bounds: Any) -> dict[str, tuple[float | None, float | None]] | None:
    """Bounds as plain numbers, None for those that are infinite; what has another form is refused.

    Example:
        >>> plain_bounds({"rain": [0, float("inf")]})
        {'rain': (0.0, None)}
    """
    if bounds is None:
        return None
    if not isinstance(bounds, Mapping):
        raise InputError(f"{_FORM}, got {bounds!r}")
    plain = {}
    for name, pair in bounds.items():
        try:
            low, high = pair
            ends = (-inf if low is None else float(low), inf if high is None else float(high))
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"{_FORM}, got {pair!r} for {name!r}") from error
        if not ends[0] < ends[1] or ends == (-inf, inf):
            raise InputError(
                f"bounds of {name!r} must be two increasing numbers, or one and None, got {pair!r}"
            )
        least, most = ends
        plain[str(name)] = (None if least == -inf else least, None if most == inf else most)
    return plain


def bounds_in_words(bounds: Any) -> str:
    """All bounds in a line; empty where there are none.

    Example:
        >>> bounds_in_words({"humid": (0, 100), "rain": (0, None)})
        'humid 0 to 100; rain from 0'
    """
    words = []
    for name, (low, high) in (plain_bounds(bounds) or {}).items():
        if high is None:
            words.append(f"{name} from {low:g}")
        else:
            words.append(f"{name} up to {high:g}" if low is None else f"{name} {low:g} to {high:g}")
    return "; ".join(words)
