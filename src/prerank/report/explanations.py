"""Words for pre-ranks, which are kept in TOML; reading them loads no other library."""

import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any

__all__ = ["EXPLANATIONS", "Explanation", "explanation_of", "words_in"]


@dataclass(frozen=True)
class Explanation:
    """A pre-rank in words.

    Attributes:
        question: that it asks of a prediction.
        formula: what is ranked.
        small: what PITs that are too small say.
        large: what PITs that are too large say.
        outer: what PITs at both ends say.
        inner: what PITs in the middle say.
        blind: what it cannot see.
        repair: what to try where it fails.
    """

    question: str
    formula: str
    small: str
    large: str
    outer: str
    inner: str
    blind: str
    repair: str


def words_in(package: str, name: str) -> dict[str, Any]:
    """Tables of words that are kept beside the code, in TOML."""
    return tomllib.loads((resources.files(package) / name).read_text(encoding="utf-8"))


_TABLES = words_in("prerank.report", "explanations.toml")
EXPLANATIONS = {
    label: Explanation(**_TABLES[table.get("same_as", label)]) for label, table in _TABLES.items()
}
"""Words of every pre-rank by its name."""

_OTHER = EXPLANATIONS.pop("other")


def explanation_of(label: str) -> Explanation:
    """Words for a pre-rank by its label; general ones for a function of one's own.

    Example:
        >>> explanation_of("dependency(2)").question
        'Are neighbouring targets as alike as predicted?'
    """
    return EXPLANATIONS.get(label.partition("(")[0], _OTHER)
