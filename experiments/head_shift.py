"""The calibration head under a shift of the inputs: what it gains and loses.

    PRERANK_DATA=data python experiments/head_shift.py --out head_shift
    python experiments/head_shift.py --out head_shift --page

The inputs divide each dataset into two parts. The published network is trained on one of them, with
the published split of its rows, and judged on the test rows of that part (`unshifted`) and on rows
of the other part (`shifted`), at most 2,000 each. `head` is fitted to the validation and the
calibration rows of the first part; `head, shifted rows` to 200 rows of the other part that are not
judged.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from head import MAX_ROWS
from head_predictors import capped
from prerank.datasets import Table, published_split
from prerank.models import MixtureNetwork
from seedwise import (
    FITTED,
    LEGEND,
    TEST_ROWS,
    Fit,
    Line,
    Trained,
    command,
    fit_head,
    fit_none,
    judged,
    markdown,
)

FEW_ROWS = 200


@dataclass(frozen=True)
class Shift:
    """Two parts of a dataset.

    Attributes:
        column: name of the input that tells them apart.
        trained: whether its values belong to the part that is trained on.
        words: the two parts.
    """

    column: str
    trained: Callable[[npt.NDArray[np.float32]], npt.NDArray[np.bool_]]
    words: str

    def parts(self, table: Table, seed: int) -> dict[str, Tensor]:
        """Row numbers of the four parts of the published split, and of the shifted ones."""
        first = self.trained(table.x[:, table.inputs.index(self.column)])
        inside, outside = (torch.from_numpy(np.flatnonzero(part)) for part in (first, ~first))
        split = vars(published_split(len(inside), seed))
        order = torch.randperm(len(outside), generator=torch.Generator().manual_seed(seed))
        few, others = outside[order[:FEW_ROWS]], outside[order[FEW_ROWS:]]
        known = {part: inside[rows] for part, rows in split.items()}
        return known | {"few": few, "shifted": others}


SHIFTS = {
    "air": Shift(
        "Month",
        lambda month: (month >= 4) & (month <= 9),
        "trained on April to September, shifted: October to March",
    ),
    "house": Shift(
        "sqft_living",
        lambda area: area <= np.quantile(area, 0.75),
        "trained on the smaller three quarters of the houses, shifted: the largest quarter",
    ),
    "taxi": Shift(
        "pickup_time_of_day_cos",
        lambda cosine: cosine <= 0,
        "trained on rides from 6 to 18 h, shifted: from 18 to 6 h",
    ),
}
METHODS: dict[str, tuple[Fit, tuple[str, ...]]] = {
    "none": (fit_none, FITTED),
    "head": (fit_head, FITTED),
    "head, shifted rows": (fit_head, ("few",)),
}


def records(name: str, seed: int) -> Iterator[Line]:
    """All lines of one dataset and seed."""
    table = capped(name, MAX_ROWS)
    parts = SHIFTS[name].parts(table, seed)
    mixture = Trained(MixtureNetwork, table, parts, seed)
    tests = {
        "unshifted": mixture.forecast("test", most=TEST_ROWS),
        "shifted": mixture.forecast("shifted", most=TEST_ROWS),
    }
    about = {"dataset": name, "seed": seed, "trained": len(parts["train"])}
    for method, (fit, known) in METHODS.items():
        line = about | {"method": method}
        yield from judged(line, fit, mixture.forecast(*known), tests, seed)


_TEXT = f"""\
## Under a shift of the inputs

The inputs divide each dataset into two parts, and the published network is trained on one of them:

{{parts}}

`unshifted` are test rows of the first part, `shifted` rows of the other part, at most {TEST_ROWS:,}
each. `head` is fitted to the validation and calibration rows of the first part,
`head, shifted rows` to {FEW_ROWS} rows of the other part that are not judged.

    PRERANK_DATA=data python experiments/head_shift.py --out head_shift

{LEGEND}
"""


def page(table: pd.DataFrame) -> str:
    """The section of the page of results."""
    parts = "\n".join(f"- {name}: {shift.words}." for name, shift in SHIFTS.items())
    return "\n".join([_TEXT.format(parts=parts), *markdown(table)])


if __name__ == "__main__":
    command(__doc__, SHIFTS, records, page)
