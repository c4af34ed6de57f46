"""The counts of `docs/reliability.md`, from a run of `make chaos`.

    python experiments/chaos_page.py build/chaos

Copies `chaos.csv` of the run to `docs/results/tables/`, with the strikes of units in training by
study and variant (`chaos_units.csv`), and puts both between the markers of the page.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from marked_pages import filled, markdown

DOCS = Path(__file__).parents[1] / "docs"
PAGE, TABLES = DOCS / "reliability.md", DOCS / "results" / "tables"


def by_variant(strikes: pd.DataFrame) -> pd.DataFrame:
    """Strikes of units in training: one line for each study, a column for each variant."""
    training = strikes[strikes.moment.eq("training") & strikes.study.notna()]
    variant = training.unit.astype(str).str.partition("--")[2]
    return pd.crosstab(training.study, variant).reset_index()


def shown(table: pd.DataFrame, text: int) -> str:
    """A table for the page, whose first columns are text."""
    lines = [[str(value) for value in row] for row in table.fillna("").itertuples(index=False)]
    return markdown(table.columns, lines, text)


def page_tables(folder: Path) -> dict[str, Callable[[], str]]:
    """Tables by their markers."""
    return {
        "chaos": lambda: shown(pd.read_csv(folder / "chaos.csv"), 2),
        "units": lambda: shown(pd.read_csv(folder / "chaos_units.csv"), 1),
    }


def main() -> None:
    """Take over the counts of a run, and fill the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="folder that `make chaos` wrote")
    run = parser.parse_args().run
    (TABLES / "chaos.csv").write_bytes((run / "chaos.csv").read_bytes())
    by_variant(pd.read_csv(run / "strikes.csv")).to_csv(TABLES / "chaos_units.csv", index=False)
    PAGE.write_text(filled(PAGE.read_text(), page_tables(TABLES)))


if __name__ == "__main__":
    main()
