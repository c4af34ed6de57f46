"""Error rates and power of verdicts, tests and searches, on simulated data with a known truth.

    python experiments/evidence.py PART --out docs/results/tables/evidence [--data-sets 4000]

A part is a module of `experiments/evidence_parts` with a function `lines(data_sets)`: it yields one
line, a dictionary, for each cell (scenario, number of rows, test), with `rate`, the share of data
sets with the event that `event` names, and `data_sets`. Each part leaves one CSV file.
"""

import argparse
import importlib
from pathlib import Path

import pandas as pd

PARTS = tuple(
    sorted(
        path.stem
        for path in (Path(__file__).parent / "evidence_parts").glob("*.py")
        if not path.stem.startswith("_")
    )
)


def main() -> None:
    """Compute one part, and write each of its lines as soon as it is there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--out", type=Path, required=True, help="folder of the CSV files")
    parser.add_argument("--data-sets", type=int, default=None, help="per cell")
    options = parser.parse_args()
    module = importlib.import_module(f"evidence_parts.{options.part}")
    options.out.mkdir(parents=True, exist_ok=True)
    given = {} if options.data_sets is None else {"data_sets": options.data_sets}
    found = []
    for line in module.lines(**given):
        found.append(line)
        pd.DataFrame(found).to_csv(
            options.out / f"{options.part}.csv", index=False, float_format="%.4g"
        )
        print(line, flush=True)


if __name__ == "__main__":
    main()
