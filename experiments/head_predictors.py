"""The calibration head behind flows and behind ensembles of samples.

    PRERANK_DATA=data python experiments/head_predictors.py --out head_predictors
    python experiments/head_predictors.py --out head_predictors --page

`flow` is the network of `FlowRegressor`, trained as there, by likelihood. `samples` are 50 members
drawn from the forecast of the published mixture network: those of the rows that methods are fitted
to with twice the seed, those of the test rows with twice the seed plus one. Methods see the members
alone, and PITs are ranks among them. Splits are the published ones of at most 10,000 rows. Methods
are fitted to the validation and the calibration rows, and behind a flow to 1,000 of them at random,
since every step of the fit goes through its networks. At most 2,000 test rows judge.
"""

from collections.abc import Iterator

import pandas as pd
import torch

from head import capped
from prerank import Ensemble
from prerank.datasets import published_split
from prerank.distributions import draw
from prerank.models import FlowNetwork, MixtureNetwork
from prerank.recalibration import EnsembleCopulaCoupling, MarginalRecalibrator, SchaakeShuffle
from prerank.training import Settings
from rivals import MEMBERS, fit_affine
from seedwise import (
    FITTED,
    LEGEND,
    TEST_ROWS,
    Fit,
    Forecast,
    Line,
    Trained,
    command,
    fit_head,
    fit_none,
    judged,
    markdown,
)

DATASETS = ("households", "air", "births1", "house")
MAX_ROWS, FLOW_ROWS = 10_000, 1_000
SETTINGS = Settings(lr=1e-3, min_steps=10, patience=15)  # of FlowRegressor

OF_FLOWS: dict[str, Fit] = {
    "none": fit_none,
    "margins": lambda d, y, seed: MarginalRecalibrator(generator=seed).fit(d, y),
    "head": fit_head,
}
OF_SAMPLES: dict[str, Fit] = {
    "none": fit_none,
    "copula coupling": lambda d, y, seed: EnsembleCopulaCoupling(generator=seed).fit(d, y),
    "Schaake shuffle": lambda d, y, seed: SchaakeShuffle(generator=seed).fit(d, y),
    "affine members": fit_affine,
    "head": fit_head,
}


def members(forecast: Forecast, seed: int) -> Forecast:
    """Draws in place of a distribution."""
    dist, y = forecast
    return Ensemble(draw(dist, MEMBERS, generator=seed).points), y


def records(name: str, seed: int) -> Iterator[Line]:
    """All lines of one dataset and seed."""
    table = capped(name, MAX_ROWS)
    parts = vars(published_split(len(table.x), seed))
    about = {"dataset": name, "seed": seed, "trained": len(parts["train"])}
    flow = Trained(FlowNetwork, table, parts, seed, SETTINGS)
    rows = torch.cat([parts[part] for part in FITTED])
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    flow.parts = parts | {"some": rows[order[:FLOW_ROWS]]}
    known, test = flow.forecast("some"), flow.forecast("test", most=TEST_ROWS)
    for method, fit in OF_FLOWS.items():
        yield from judged(about | {"method": method}, fit, known, {"flow": test}, seed)
    mixture = Trained(MixtureNetwork, table, parts, seed)
    known = members(mixture.forecast(*FITTED), 2 * seed)
    test = members(mixture.forecast("test", most=TEST_ROWS), 2 * seed + 1)
    for method, fit in OF_SAMPLES.items():
        yield from judged(about | {"method": method}, fit, known, {"samples": test}, seed)


_TEXT = f"""\
## Flows and ensembles of samples

`flow`: the network of `FlowRegressor`, trained by likelihood. `samples`: {MEMBERS} members for each
row, drawn from the forecast of the mixture network; methods see the members alone, and PITs are
ranks among them. Members have no density, so there is neither a likelihood nor hdr. Methods are
fitted to the validation and calibration rows of the published splits, behind a flow to
{FLOW_ROWS:,} of them, because every step of a fit goes through its networks. At most {TEST_ROWS:,}
test rows judge; house has {MAX_ROWS:,} rows in all.

    PRERANK_DATA=data python experiments/head_predictors.py --out head_predictors

{LEGEND}
"""


def page(table: pd.DataFrame) -> str:
    """The section of the page of results."""
    return "\n".join([_TEXT, *markdown(table)])


if __name__ == "__main__":
    command(__doc__, DATASETS, records, page)
