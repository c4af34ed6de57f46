"""Text of others on a terminal, a page or in a spreadsheet: shown as it is, and never obeyed."""

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["formula_safe", "visible", "visible_name"]

# Control characters but for tab and line feed; separators of lines that only some programs know;
# format characters (category Cf) and others that are not shown, or that reorder what is: marks of
# direction, soft hyphens, spaces of no width, fillers, selectors of variants. Joiners of letters
# stay one at a time in the scripts that need them, and joiners and selectors in emoji.
_SCRIPTS = "\u0600-\u1cff\ua8e0-\uabff"
_EMOJI = "\u203c-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2"
    "\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164"
    "\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
    f"|(?<![{_SCRIPTS}{_EMOJI}\ufe0f])[\u200c\u200d]"
    f"|(?<![{_EMOJI}])[\ufe00-\ufe0f]"
)
_FORMULA = re.compile(r"[=+\-@\t\r\n＝＋－＠]")
_BREAKS = str.maketrans({"\n": "\\n", "\t": "\\t"})


def visible(text: str) -> str:
    r"""Write control and format characters as escapes, which JSON reads too.

    Names of columns come from files of others. An escape sequence in them would change the
    terminal, and a mark of direction what a reader takes them for.

    Example:
        >>> visible("flow\x1b[2J")
        'flow\\u001b[2J'
    """
    return _HIDDEN.sub(lambda found: json.dumps(found[0])[1:-1], text)


def visible_name(name: object) -> str:
    r"""A name as it stands in a line: with escapes for line feeds and tabs as well.

    A line feed in the name of a group would begin a line that looks like one of ours.

    Example:
        >>> visible_name("south\nVerdict: calibrated")
        'south\\nVerdict: calibrated'
    """
    return visible(str(name)).translate(_BREAKS)


def formula_safe(table: "pd.DataFrame") -> "pd.DataFrame":
    """A table whose texts no spreadsheet takes for a formula: those that could be begin with '.

    Names of columns and cells of text are changed, and what they hide is `visible`; numbers stay,
    written as text too.

    Example:
        >>> import pandas as pd
        >>> list(formula_safe(pd.DataFrame({"=1+1": [-1.5], "flow": [2.0]})).columns)
        ["'=1+1", 'flow']
    """

    def safe(value: object) -> object:
        if not isinstance(value, str):
            return value
        return visible(f"'{value}" if _FORMULA.match(value) and not _is_number(value) else value)

    texts = table.select_dtypes(exclude=["number", "bool", "datetime"])
    changed = table.copy()
    for name in texts.columns:
        changed[name] = texts[name].astype(object).map(safe)
    return changed.rename(columns=safe)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
