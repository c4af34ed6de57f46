"""A report as one HTML file: the verdict first, then tables and pictures, no network needed."""

import base64
import copy
import hashlib
import io
import itertools
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from prerank.calibration.decision import Status
from prerank.errors import InputError
from prerank.files import write_atomically
from prerank.files.visible_text import visible
from prerank.report.error_plot import Badge, ErrorPlot, plot_view
from prerank.report.wording import table_columns

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["Illustration", "Page", "Section", "render_page", "write_page"]

_SHOWN = ("title", "paragraphs", "legend", "table", "folded", "gist")  # of a section, as it is
_WIDE = 4.6  # inches from which a picture has a row of its own
_NO_GLYPH = "Glyph .* missing from font"  # how matplotlib's warning begins


@dataclass(frozen=True, eq=False)
class Illustration:
    """A figure and what it shows.

    Args:
        figure: is embedded as SVG, and left as it is.
        caption: for the eye below the figure, and with the title for those who cannot see it.
        title: shown before the caption.
    """

    figure: "Figure"
    caption: str
    title: str = ""


@dataclass(frozen=True, eq=False)
class Section:
    """A part of a page: paragraphs, then a table with its legend, then pictures.

    Args:
        title: of the section, and of its table.
        paragraphs: plain text.
        table: shown without its index, which `reset_index` makes into columns; the first column
            names the rows. Floats have four significant digits, p-values in a column `p` or
            `p_...` three decimals, and missing values are blank.
        legend: what columns mean, by their names.
        illustrations: in order.
        folded: whether only the title is seen until a reader opens the section.
        gist: in a few words, beside the title of a section that is folded.
    """

    title: str
    paragraphs: tuple[str, ...] = ()
    table: "pd.DataFrame | None" = None
    legend: Mapping[str, str] = field(default_factory=dict)
    illustrations: tuple[Illustration, ...] = ()
    folded: bool = False
    gist: str = ""


@dataclass(frozen=True, eq=False)
class Page:
    """What a report says, in the order in which it says it.

    Args:
        title: what the report is about.
        headline: the verdict in one sentence.
        mood: of the verdict.
        points: what it rests on.
        advice: what to try.
        sections: in order.
        settings: settings and versions by name, shown last; folded where a section is.
        badges: above the headline; by default one word for the mood.
        overview: the figure below the headline.
    """

    title: str
    headline: str
    mood: Status
    points: tuple[str, ...]
    advice: tuple[str, ...]
    sections: tuple[Section, ...]
    settings: Mapping[str, str]
    badges: tuple[Badge, ...] = ()
    overview: ErrorPlot | None = None


_WORDS: Mapping[Status, str] = {"good": "Good", "bad": "Problem", "unclear": "Unclear"}


def render_page(page: Page) -> str:
    """Write a page as HTML that holds its style, script and pictures.

    Everything in the page is shown as plain text, whatever it looks like. The same page gives the
    same characters, and nothing is drawn or computed but what is in it.

    Args:
        page: what to show.

    Example:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"prerank": ["scale", "hdr"], "p_value": [0.0004, None]})
        >>> section = Section("Calibration", table=table, legend={"p_value": "evidence against"})
        >>> page = Page("Rain & wind", "Too narrow", "bad", ("scale",), (), (section,), {})
        >>> html = render_page(page)
        >>> "Rain &amp; wind" in html, "&lt;0.001" in html
        (True, True)
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    if page.mood not in get_args(Status):
        raise InputError(f"mood must be one of {', '.join(get_args(Status))}, got {page.mood!r}")
    tables, pictures = itertools.count(1), itertools.count(1)
    overview = None if page.overview is None else _overview(page.overview, pictures)
    sections = [_view(section, tables, pictures) for section in page.sections]
    files = resources.files("prerank.report") / "templates"
    # Sizes go with the style sheet: the policy lets no element have a style of its own.
    sizes = [
        f"#figure-{picture['number']} {{ --inches: {picture['inches']:.2f}; }}\n"
        for section in sections
        for picture in section["pictures"]
    ]
    folded = any(section.folded for section in page.sections)
    style = (files / "page.css").read_text(encoding="utf-8") + "".join(sizes)
    script = (files / "page.js").read_text(encoding="utf-8")
    environment = Environment(
        loader=PackageLoader("prerank.report"), autoescape=True, undefined=StrictUndefined
    )
    html = environment.get_template("page.html").render(
        page=page,
        badges=page.badges or (Badge(page.mood, _WORDS[page.mood]),),
        overview=overview,
        sections=sections,
        folded=folded,
        policy=_policy(style, script),
        style=Markup(style),
        script=Markup(script),
    )
    # Halves of surrogate pairs, which names may hold, have no place in a file.
    return visible(html.encode("utf-8", "replace").decode("utf-8")) + "\n"


def write_page(page: Page, path: str | os.PathLike[str]) -> Path:
    """Write a page to a file, which is there as a whole or not at all.

    Args:
        page: what to show.
        path: of the file; a former one is replaced, and missing folders are made.

    Returns:
        The path.

    Example:
        >>> import tempfile
        >>> page = Page("Rain", "No evidence against calibration", "good", (), (), (), {})
        >>> write_page(page, Path(tempfile.mkdtemp()) / "report.html").name
        'report.html'
    """
    html = render_page(page).encode("utf-8")
    return write_atomically(path, lambda file: file.write_bytes(html))


def _view(section: Section, tables: Iterator[int], pictures: Iterator[int]) -> dict[str, Any]:
    """What the template shows of a section."""
    view = {name: getattr(section, name) for name in _SHOWN}
    if section.table is not None:
        columns = table_columns(section.table)
        rows = list(zip(*(column.cells for column in columns), strict=True))
        view["table"] = {"number": next(tables), "columns": columns, "rows": rows}
    shown = section.illustrations
    return view | {"pictures": [_picture(one, next(pictures)) for one in shown]}


def _overview(plot: ErrorPlot, pictures: Iterator[int]) -> dict[str, Any]:
    """What the template shows of the first figure."""
    number = next(pictures)
    picture = None if plot.worst is None else _picture(plot.worst, number)
    return plot_view(plot) | {"number": number, "picture": picture}


def _picture(illustration: Illustration, number: int) -> dict[str, Any]:
    inches = float(illustration.figure.get_size_inches()[0])
    return {
        "number": number,
        "inches": inches,
        "wide": inches > _WIDE,
        "source": f"data:image/svg+xml;base64,{_base64(_svg(illustration.figure))}",
        "alt": ": ".join(filter(None, [illustration.title, illustration.caption])),
        "title": illustration.title,
        "caption": illustration.caption,
    }


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _svg(figure: "Figure") -> bytes:
    """The figure as SVG, with letters as shapes, or as text where the font does not have them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", _NO_GLYPH, UserWarning)
        try:
            return _saved(figure, "path")
        except UserWarning:  # the browser has more fonts
            warnings.filterwarnings("ignore", _NO_GLYPH, UserWarning)
            return _saved(figure, "none")


def _saved(figure: "Figure", letters: str) -> bytes:
    """The figure as SVG: the same bytes each time, with images inside."""
    import matplotlib as mpl

    drawn, buffer = _twin(figure), io.BytesIO()
    with mpl.rc_context(
        {"svg.hashsalt": "prerank", "svg.fonttype": letters, "svg.image_inline": True}
    ):
        drawn.draw_without_rendering()  # a layout needs a first round to find the size of legends
        drawn.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def _twin(figure: Any) -> Any:
    """A copy unknown to pyplot: layouts depend on former drawings, so each starts from the same."""
    state = figure.__getstate__()
    state.pop("_restore_to_pylab", None)
    twin = figure.__class__.__new__(figure.__class__)
    twin.__setstate__(copy.deepcopy(state, {id(figure): twin}))
    return twin


def _policy(style: str, script: str) -> str:
    """What the page may load: its own style and script, known by their hashes, and its pictures."""
    style_hash, script_hash = (
        _base64(hashlib.sha256(text.encode("utf-8")).digest()) for text in (style, script)
    )
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{style_hash}'; "
        f"script-src 'sha256-{script_hash}'; base-uri 'none'; form-action 'none'"
    )
