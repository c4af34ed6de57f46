"""Every number that the pages, README and home claim, with the table that it comes from.

python experiments/claims.py            # print each claim with its page and its source
python experiments/claims.py --fill     # put them between their markers on the pages
"""

import argparse
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import curves_page
import head_page
import headline_page
import paper_page
from head_results import Results
from marked_pages import filled

ROOT = Path(__file__).parents[1]
TABLES = ROOT / "docs" / "results" / "tables"


class Claim(NamedTuple):
    """A text, and the tables that it is made from."""

    text: Callable[[], str]
    source: str


@cache
def _heads() -> Results:
    return Results(TABLES / "head")


def _of(blocks: dict[str, Callable[[Path], str]], source: str) -> dict[str, Claim]:
    return {name: Claim(partial(text, TABLES), source) for name, text in blocks.items()}


def _of_head(name: str) -> Claim:
    return Claim(lambda: head_page.TABLES[name](_heads()), "tables/head/*.csv")


STUDY = "tables/{published,exact}_{before,after}.csv, cross_*.csv, of {published,exact}_seeds.csv"
RIVALS = _of(headline_page.BLOCKS, "tables/headline/*.csv")
CLAIMS: dict[str, dict[str, Claim]] = {
    "README.md": {"headline": RIVALS["headline"]},
    "docs/index.md": {"headline": RIVALS["headline"]},
    "docs/results/rivals.md": RIVALS,
    "docs/results/curves.md": _of(curves_page.BLOCKS, "tables/curves/*.csv, predictors.csv"),
    "docs/results/paper.md": _of(paper_page.BLOCKS, STUDY),
    "docs/results/head.md": {name: _of_head(name) for name in head_page.TABLES},
}


def page(name: str) -> str:
    """A page as its tables want it."""
    return filled((ROOT / name).read_text(), {key: c.text for key, c in CLAIMS[name].items()})


def main() -> None:
    """Print the claims, or write them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fill", action="store_true", help="write the pages")
    fill = parser.parse_args().fill
    for name, claims in CLAIMS.items():
        if fill:
            (ROOT / name).write_text(page(name))
            continue
        for key, claim in claims.items():
            print(f"== {name}, {key}, from {claim.source}\n\n{claim.text()}\n")


if __name__ == "__main__":
    main()
