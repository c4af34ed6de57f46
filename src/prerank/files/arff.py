"""Reading dense ARFF files.

`scipy.io.arff` is not used: it has no text attributes, misreads escaped quotes, takes a quoted ?
for a missing value and drops surplus values of a row without an error.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prerank.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["read_arff"]

_NUMBERS = ("numeric", "real", "integer")
_TEXTS = ("string", "date")
_MISSING = "?"
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_LONGEST_SAMPLE = 40

_QUOTED = r"""(?P<quote>['"])(?P<quoted>(?:\\.|(?!(?P=quote))[^\\])*)(?P=quote)"""
_FIELD = re.compile(rf"\s*(?:{_QUOTED}(?P<rest>[^,]*)|(?P<bare>[^,]*))(?P<comma>,?)", re.DOTALL)
# A list of levels may follow a bare name without a space.
_NAME = re.compile(rf"(?:{_QUOTED}|(?P<bare>[^ \t{{]*))(?P<rest>.*)", re.DOTALL)


@dataclass(frozen=True)
class _Attribute:
    """One declared column; `levels` is None for numbers and empty for free text."""

    name: str
    levels: frozenset[str] | None

    def read(self, value: str | None) -> float | str | None:
        """Turn one value of the file into a number or a text; None is a missing one."""
        if value is None:
            return None
        if self.levels is None:
            try:
                # Python would take 1_000 for a number.
                return float(value if "_" not in value else "")
            except ValueError:
                raise InputError(f"{self.name!r} is numeric, and {_sample(value)} is not") from None
        if self.levels and value not in self.levels:
            raise InputError(f"{self.name!r} has no level {_sample(value)}")
        return value


def read_arff(text: str) -> "pa.Table":
    """Read a dense ARFF file: numbers as float64, everything else as text.

    The declared types `numeric`, `real` and `integer` all become float64, as in the published
    runs, so that a column of a few whole numbers counts as numeric when it is encoded. Nominal,
    string and date attributes become text. Names and values may be quoted by ' or ", with
    backslashes before quotes; a bare ? is a missing value; lines that begin with % are comments.

    Args:
        text: of the file.

    Raises:
        InputError: with the number of the line that cannot be read. Sparse rows, relational
            attributes and weights of rows are not supported.

    Example:
        >>> table = read_arff('''
        ... @relation rivers
        ... @attribute 'water level' numeric
        ... @attribute bed {sand, "coarse gravel"}
        ... @data
        ... 1.5, sand
        ... ?, 'coarse gravel'
        ... ''')
        >>> table.to_pydict()
        {'water level': [1.5, None], 'bed': ['sand', 'coarse gravel']}
    """
    import pyarrow as pa

    # Only line ends: str.splitlines would also break at control characters inside quotes.
    lines = enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1)
    attributes = _read_header(lines)
    columns: list[list[float | str | None]] = [[] for _ in attributes]
    for number, line in _meaningful(lines):
        try:
            values = _row(line, len(attributes))
            for attribute, column, value in zip(attributes, columns, values, strict=True):
                column.append(attribute.read(value))
        except InputError as error:
            raise InputError(f"line {number}: {error}") from None
    return pa.Table.from_arrays(
        [
            pa.array(column, type=pa.float64() if attribute.levels is None else pa.string())
            for attribute, column in zip(attributes, columns, strict=True)
        ],
        names=[attribute.name for attribute in attributes],
    )


def _read_header(lines: Iterator[tuple[int, str]]) -> list[_Attribute]:
    """Consume the lines up to @data."""
    attributes: list[_Attribute] = []
    for number, line in _meaningful(lines):
        keyword, *rest = line.split(maxsplit=1)
        if keyword.lower() == "@attribute":
            try:
                attributes.append(_declaration(rest[0] if rest else ""))
            except InputError as error:
                raise InputError(f"line {number}: {error}") from None
        elif keyword.lower() == "@data":
            if not attributes:
                raise InputError(f"line {number}: @data comes before any @attribute")
            return attributes
        elif keyword.lower() != "@relation":
            raise InputError(
                f"line {number}: {_sample(line)} is neither @relation, @attribute nor @data"
            )
    raise InputError("the file has no @data section")


def _declaration(text: str) -> _Attribute:
    """`name type`, where a type is a word or a list of levels in braces."""
    match = _match(_NAME, text, 0)
    name, rest = _text(match), match["rest"].strip()
    if not name and match["bare"] is not None:
        raise InputError("an @attribute without a name")
    kind = rest.split(maxsplit=1)[0].lower() if rest else ""
    if kind in _NUMBERS:
        return _Attribute(name, None)
    if kind in _TEXTS:
        return _Attribute(name, frozenset())
    if rest.startswith("{") and rest.endswith("}"):
        levels = frozenset(value for value, _ in _fields(rest[1:-1]))
        if levels != {""}:
            return _Attribute(name, levels)
    raise InputError(f"attribute {name!r} has the type {_sample(rest)}, which is not supported")


def _row(line: str, width: int) -> list[str | None]:
    """The values of one line; a bare ? is None."""
    if line.startswith("{"):
        raise InputError("sparse rows, in braces, are not supported: write the file densely")
    values = [None if value == _MISSING and bare else value for value, bare in _fields(line)]
    if len(values) != width:
        raise InputError(f"{len(values)} values, where {width} attributes are declared")
    return values


def _fields(line: str) -> list[tuple[str, bool]]:
    """Values between commas, and whether each was written without quotes."""
    if "'" not in line and '"' not in line:
        separator = "," if "," in line else "\t"
        return [(value.strip(), True) for value in line.split(separator)]
    found: list[tuple[str, bool]] = []
    place, more = 0, True
    while more:
        match = _match(_FIELD, line, place)
        rest = (match["rest"] or "").strip()
        if rest:
            raise InputError(f"{_sample(rest)} follows a closing quote")
        found.append((_text(match), match["bare"] is not None))
        place, more = match.end(), bool(match["comma"])
    return found


def _match(pattern: re.Pattern[str], text: str, place: int) -> re.Match[str]:
    """The match of a pattern that fits every text; a quote that is never closed raises."""
    match = pattern.match(text, place)
    assert match is not None
    if (match["bare"] or "").startswith(("'", '"')):
        opened = text[match.start("bare") + 1 :]
        raise InputError(f"the quote before {_sample(opened)} is never closed")
    return match


def _text(match: re.Match[str]) -> str:
    """A value without its quotes."""
    if match["bare"] is not None:
        return match["bare"].strip()
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), match["quoted"], flags=re.DOTALL)


def _meaningful(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Numbered lines without white space around them; neither empty ones nor comments."""
    for number, line in lines:
        stripped = line.strip()
        if stripped and not stripped.startswith("%"):
            yield number, stripped


def _sample(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_SAMPLE else text[:_LONGEST_SAMPLE] + "...")
