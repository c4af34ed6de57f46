"""The pages of the documentation and the README, and the code in them."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
OPERATORS = {"|", "||", "&&", ";", ">", ">>"}


class Block(NamedTuple):
    page: str
    line: int
    language: str
    text: str


def blocks(page: Path) -> Iterator[Block]:
    """Fenced and indented code; indented code has no language."""
    for token in MarkdownIt().parse(page.read_text()):
        if token.type in ("fence", "code_block"):
            name = str(page.relative_to(ROOT))
            yield Block(name, token.map[0] + 1, token.info.strip(), token.content)


def commands(block: Block) -> list[list[str]]:
    """Words of each line that calls prerank, up to the first operator of the shell."""
    found = []
    for line in block.text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
        if words[:1] == ["prerank"]:
            end = next((i for i, word in enumerate(words) if word in OPERATORS), len(words))
            found.append(words[1:end])
    return found
