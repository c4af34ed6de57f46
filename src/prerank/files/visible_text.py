"""Text of others on a terminal, a page or in a spreadsheet: shown as it is, and never obeyed."""

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["formula_safe", "visible"]

# Control characters but for tab and line feed; separators of lines that only some programs know;
# and format characters (category Cf), which are not shown or reorder what is: marks of direction,
# soft hyphens, spaces of no width. Two of these join and part letters: they stay behind characters
# from the Arabic ones on, whose scripts need them, and behind emoji.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e"
    "\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0001\U000e0020-\U000e007f]"
    "|(?<![\u0600-\U0010ffff])[\u200c\u200d]"
)
_FORMULA = re.compile(r"[=+\-@\t\r]")


def visible(text: str) -> str:
    r"""Write control and format characters as escapes, which JSON reads too.

    Names of columns come from files of others. An escape sequence in them would change the
    terminal, and a mark of direction what a reader takes them for.

    Example:
        >>> visible("flow\x1b[2J")
        'flow\\u001b[2J'
    """
    return _HIDDEN.sub(lambda found: json.dumps(found[0])[1:-1], text)


def formula_safe(table: "pd.DataFrame") -> "pd.DataFrame":
    """A table whose texts no spreadsheet takes for a formula: those that could be begin with '.

    Names of columns and cells of text are changed, and what they hide is `visible`; numbers stay.

    Example:
        >>> import pandas as pd
        >>> list(formula_safe(pd.DataFrame({"=1+1": [-1.5], "flow": [2.0]})).columns)
        ["'=1+1", 'flow']
    """

    def safe(value: object) -> object:
        if not isinstance(value, str):
            return value
        return visible(f"'{value}" if _FORMULA.match(value) else value)

    texts = table.select_dtypes(exclude=["number", "bool", "datetime"])
    changed = table.copy()
    for name in texts.columns:
        changed[name] = texts[name].astype(object).map(safe)
    return changed.rename(columns=safe)
