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
        Index `dataset`, `variant`, `seed`; columns `before`, `after`, `strength`, and the energy
        scores `energy_before` and `energy`. What was before is of the same study.
    """
    results = pd.concat([Store(folder).results() for folder in folders], ignore_index=True)
    own = results[(results.part == "test") & (results.prerank == results.variant)]
    own = own.assign(excess=own.pce - own.floor).set_index([*CELL, "seed"])
    after, before = own[own.selected], own[own.strength == 0]
    return pd.DataFrame(
        {
            "before": before.excess,
            "after": after.excess,
            "strength": after.strength,
            "energy_before": before.energy,
            "energy": after.energy,
        }
    )


def table(default: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """One row for each dataset and pre-rank that both have.

    Returns:
        Excess before, and after with either form; its strength, 0 where none was selected, and
        what it changes the energy score by; the paired difference with its standard error, and
        whether the default is worse beyond two.
    """
    rows = []
    joined = default.join(published.add_suffix("_published"), how="inner")
    for (dataset, prerank), part in joined.groupby(level=CELL):
        difference = Difference((part.after - part.after_published).to_numpy())
        row = {"dataset": dataset, "prerank": prerank, "before": part.before.mean()}
        for name, suffix in (("published", "_published"), ("default", "")):
            energy, before = (part[f"{key}{suffix}"].mean() for key in ("energy", "energy_before"))
            row |= {
                name: part[f"after{suffix}"].mean(),
                f"strength, {name}": part[f"strength{suffix}"].iloc[0],
                f"energy, {name}": energy / before - 1,
            }
        row |= {"difference": difference.mean, "se": difference.error}
        rows.append(row | {"worse": difference.mean > 2 * difference.error})
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
