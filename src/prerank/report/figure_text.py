"""Names that users give, on figures."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from prerank.errors import ShapeError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["NAMED", "name_lines", "names_of", "short_name"]

NAMED = "named"
"""Mark (`gid`) of what a legend shall name."""

_WIDEST = 16  # characters beside an axis


def names_of(components: int, names: Sequence[str] | None, alone: str) -> tuple[str, ...]:
    """Names of the components of a pre-rank, where none were given too.

    Args:
        components: J.
        names: of all of them, or None: then they are numbered.
        alone: name of a single one without a name.
    """
    if names is None:
        return tuple(str(j) for j in range(components)) if components > 1 else (alone,)
    if len(names) != components:
        raise ShapeError(f"{len(names)} names for {components} components: {list(names)}")
    return tuple(names)


def short_name(name: str) -> str:
    """Both ends of a long name: which one tells it from the others is not known.

    Example:
        >>> short_name("temperature at two metres above ground")
        'temperat… ground'
    """
    half = _WIDEST // 2
    return name if len(name) <= _WIDEST else f"{name[:half]}…{name[1 - half :]}"


def name_lines(ax: "Axes", **options: Any) -> None:
    """Draw a legend that takes names for what they are: no formulas in them, none left out.

    Args:
        ax: where to draw, and whose lines have names.
        options: passed to `Axes.legend`.
    """
    drawn = [artist for artist in (*ax.collections, *ax.lines) if artist.get_gid() == NAMED]
    names = [str(artist.get_label()) for artist in drawn]
    # A leading underscore would hide the entry, and a dollar sign begin a formula.
    shown = [f" {name}" if name.startswith("_") else name for name in names]
    legend = ax.legend(drawn, shown, **options)
    for text in legend.get_texts():
        text.set_parse_math(False)
