r"""The default against the published form made exact, on datasets that tuned nothing.

    prerank study run paper-exact --out default --set 'datasets=["taxi", ...]'
    prerank study run paper-exact --out scratch --set 'datasets=["taxi", ...]' \
        --set training.fine_tune=false --set training.shift=false
    python experiments/frontier/heldout.py --default default --published scratch

Both select their strength on validation rows under the same budget of 10 %; excess on test rows is
compared, paired by seed. Several folders on either side are taken together.
"""

import argparse
from pathlib import Path

import pandas as pd

from comparison import Difference
from prerank.study import Store

CELL = ["dataset", "variant"]


def cells(folders: list[Path]) -> pd.DataFrame:
    """Excess before and after, and energy scores, by dataset, pre-rank and seed.

    Args:
        folders: of studies.

    Returns:
        Index `dataset`, `variant`, `seed`; columns `before`, `after`, `energy_before`, `energy`.
    """
    results = pd.concat([Store(folder).results() for folder in folders], ignore_index=True)
    own = results[(results.part == "test") & (results.prerank == results.variant)]
    own = own.assign(excess=own.pce - own.floor)
    # Means over the components of a pre-rank.
    own = own.groupby([*CELL, "seed", "strength", "selected"], as_index=False).agg(
        excess=("excess", "mean"), energy=("energy", "mean")
    )
    index = [*CELL, "seed"]
    after = own[own.selected].set_index(index)
    before = own[own.strength == 0].set_index(index)
    return pd.DataFrame(
        {
            "before": before.excess,
            "after": after.excess,
            "energy_before": before.energy,
            "energy": after.energy,
        }
    )


def table(default: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """One row for each dataset and pre-rank that both have.

    Returns:
        Excess before, and after with either form; their energy score against that before; the
        paired difference with its standard error, and whether the default is worse beyond two.
    """
    rows = []
    joined = default.join(published.add_suffix("_published"), how="inner")
    for (dataset, prerank), part in joined.groupby(level=CELL):
        difference = Difference((part.after - part.after_published).to_numpy())
        rows.append(
            {
                "dataset": dataset,
                "prerank": prerank,
                "before": part.before.mean(),
                "published": part.after_published.mean(),
                "default": part.after.mean(),
                "energy, published": part.energy_published.mean() / part.energy_before.mean() - 1,
                "energy, default": part.energy.mean() / part.energy_before.mean() - 1,
                "difference": difference.mean,
                "se": difference.error,
                "worse": difference.mean > 2 * difference.error,
            }
        )
    return pd.DataFrame(rows)


def main() -> None:
    """Compare from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--default", type=Path, nargs="+", required=True)
    parser.add_argument("--published", type=Path, nargs="+", required=True)
    options = parser.parse_args()
    found = table(cells(options.default), cells(options.published))
    print(found.round(4).to_string(index=False))
    print(f"{int(found.worse.sum())} of {len(found)} cells worse beyond two standard errors")


if __name__ == "__main__":
    main()
