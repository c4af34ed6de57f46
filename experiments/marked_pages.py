"""Tables in pages of the documentation, between the markers `<!-- NAME -->` and `<!-- end -->`."""

import re
from collections.abc import Callable, Iterable, Mapping
from decimal import ROUND_HALF_UP, Decimal
from typing import NamedTuple

MARKED = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


class Verdict(NamedTuple):
    """One criterion: what was found, and where and by how much it is missed."""

    criterion: str
    found: str
    missed: list[str]


def number(value: float, digits: int) -> str:
    """Decimal text, halves rounded up: `f"{.075:.2f}"` and `f"{.025:.2f}"` would disagree.

    Example:
        >>> number(0.075, 2), number(0.025, 2), number(40.5, 0)
        ('0.08', '0.03', '41')
    """
    text = repr(float(value))
    return str(Decimal(text).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP) + 0)


def percent(share: float, digits: int = 0) -> str:
    """A share as text, in percent."""
    return f"{number(round(100 * share, 9), digits)} %"


def markdown(header: Iterable[str], lines: Iterable[Iterable[str]], text: int = 1) -> str:
    """A table whose first columns are text."""
    names = list(header)
    rule = ["---"] * text + ["---:"] * (len(names) - text)
    return "\n".join(f"| {' | '.join(line)} |" for line in [names, rule, *map(list, lines)])


def filled(page: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """The text of a page with every table between its markers; unknown markers raise, and none."""
    if MARKED.search(page) is None:
        raise ValueError(f"a page without markers: {page[:60]!r}")
    return MARKED.sub(lambda m: f"{m[1]}\n{tables[m[2]]()}\n\n{m[3]}", page)


def verdict_table(verdicts: Iterable[Verdict]) -> str:
    """All criteria, and how many are reached."""
    found = list(verdicts)
    lines = [(v.criterion, v.found, ", ".join(v.missed) or "reached") for v in found]
    total = f"{sum(not v.missed for v in found)} of {len(found)} criteria are reached."
    return f"{total}\n\n{markdown(['criterion', 'found', 'reached, or missed by'], lines, 3)}"
