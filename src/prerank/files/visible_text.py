"""Text of others on a terminal, a page or in a spreadsheet: shown as it is, and never obeyed."""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["formula_safe", "visible"]

# Control characters but for tab and line feed; marks of direction, which reorder what is shown; and
# separators of lines that only some programs know.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]"
)
_FORMULA = re.compile(r"[=+\-@\t\r]")


def visible(text: str) -> str:
    r"""Write control characters and marks of direction as escapes, which JSON reads too.

    Names of columns come from files of others. An escape sequence in them would change the
    terminal, and a mark of direction what a reader takes them for.

    Example:
        >>> visible("flow\x1b[2J")
        'flow\\u001b[2J'
    """
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def formula_safe(table: "pd.DataFrame") -> "pd.DataFrame":
    """A table whose texts no spreadsheet takes for a formula: those that could be begin with '.

    Names of columns and cells of text are changed; numbers are not.

    Example:
        >>> import pandas as pd
        >>> list(formula_safe(pd.DataFrame({"=1+1": [-1.5], "flow": [2.0]})).columns)
        ["'=1+1", 'flow']
    """

    def safe(value: object) -> object:
        return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value

    texts = table.select_dtypes(exclude=["number", "bool", "datetime"])
    changed = table.copy()
    for name in texts.columns:
        changed[name] = texts[name].astype(object).map(safe)
    return changed.rename(columns=safe)
