"""Calibration within groups of rows: seasons, sites, kinds of patients."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.distributions import Distribution

from prerank.calibration import holm
from prerank.diagnosis.findings import ALL, Diagnosis
from prerank.diagnosis.judgement import judge
from prerank.diagnosis.measurement import measure
from prerank.diagnosis.verdict import Verdict
from prerank.errors import InputError, ShapeError
from prerank.preranks import PreRankLike
from prerank.report.captions import listed

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["GroupedDiagnosis", "diagnose_by"]

_MOST_GROUPS = 1000
_NAMED_GROUPS = 3


@dataclass(frozen=True)
class GroupedDiagnosis:
    """What `diagnose_by` found.

    Attributes:
        overall: of all rows.
        groups: of the rows of each group, by its name.

    In both, `p_holm` is corrected over all pre-ranks of all groups and of the whole.
    """

    overall: Diagnosis
    groups: dict[str, Diagnosis]

    @cached_property
    def table(self) -> "pd.DataFrame":
        """The tables of the groups, with a first column `group` and a second `n`, their rows."""
        import pandas as pd

        parts = []
        for name, found in self.groups.items():
            part = found.table.copy()
            part.insert(0, "group", name)
            part.insert(1, "n", found.n)
            parts.append(part)
        return pd.concat(parts, ignore_index=True)

    def verdict(self) -> Verdict:
        """That of all rows, and how many groups are wrong: bad news where any of these is."""
        whole = self.overall.verdict()
        wrong = [name for name, one in self.groups.items() if one.verdict().mood == "bad"]
        told = f"Within groups: evidence of miscalibration in {len(wrong)} of {len(self.groups)}."
        found = replace(whole, points=(told, *whole.points))
        if not wrong or whole.mood == "bad":
            return found
        named = listed(wrong) if len(wrong) <= _NAMED_GROUPS else f"{len(wrong)} groups"
        headline = f"Evidence of miscalibration within {named}, though not over all rows."
        return replace(found, mood="bad", headline=headline)


def diagnose_by(
    dist: Distribution,
    y: object,
    groups: object,
    *,
    preranks: PreRankLike | None = None,
    n_samples: int = 100,
    scale: object = None,
    levels: int = 100,
    n_null: int = 2000,
    generator: torch.Generator | int | None = None,
) -> GroupedDiagnosis:
    """Measure calibration within groups of rows, and over all of them.

    A predictor can be right over all rows and wrong in each group, in opposite ways. The PITs are
    computed once; groups share nothing else.

    Args:
        dist: `batch_shape (N,)`, `event_shape (D,)`.
        y: observations `(N, D)`.
        groups: name of each row's group, `(N,)`.
        preranks: as for `diagnose`, like the other arguments.
        n_samples: draws per row.
        scale: divisors of the targets.
        levels: number of levels of the PCE.
        n_null: replicates for the mean over several components.
        generator: a generator or seed.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> season = ["summer", "winter"] * 200
        >>> bias = torch.tensor([[0.5], [-0.5]]).repeat(200, 2)
        >>> y = bias + torch.randn(400, 2, generator=torch.Generator().manual_seed(0))
        >>> dist = MultivariateNormal(torch.zeros(400, 2), torch.eye(2))
        >>> found = diagnose_by(dist, y, season, preranks="marginal", generator=0)
        >>> for name, one in found.groups.items():
        ...     print(name, one.verdict().headline)
        summer Strongly miscalibrated: observed values higher than predicted in every target.
        winter Strongly miscalibrated: observed values lower than predicted in every target.
    """
    measured = measure(
        dist, y, preranks=preranks, n_samples=n_samples, scale=scale, generator=generator
    )
    if len(dist.batch_shape) != 1:
        raise ShapeError(
            f"groups are of the rows of one predictor, of batch_shape (N,): got "
            f"{tuple(dist.batch_shape)}"
        )
    rows = _rows(groups, dist.batch_shape[0])
    tests = (1 + len(rows)) * len(measured.results)
    options = {"levels": levels, "n_null": n_null, "tests": tests}
    found = {name: judge(measured.of_rows(at), **options) for name, at in rows.items()}
    parts = _corrected([judge(measured, **options), *found.values()])
    return GroupedDiagnosis(parts[0], dict(zip(rows, parts[1:], strict=True)))


def _rows(groups: object, n: int) -> dict[str, torch.Tensor]:
    """Numbers of the rows of each group, in the order of their first appearance."""
    import pandas as pd

    values = np.asarray(groups if not isinstance(groups, Sequence) else list(groups), dtype=object)
    if values.shape != (n,):
        raise ShapeError(f"groups has shape {values.shape}, but there are {n} rows")
    if pd.isna(values).any():
        raise InputError("groups has missing values: name the group of every row")
    names = [str(value) for value in values]
    members: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        members.setdefault(name, []).append(row)
    if len(members) > _MOST_GROUPS:
        raise InputError(
            f"groups has {len(members)} different names for {n} rows: group them more coarsely "
            f"({_MOST_GROUPS} at most)"
        )
    return {name: torch.tensor(at) for name, at in members.items()}


def _corrected(found: Sequence[Diagnosis]) -> list[Diagnosis]:
    """Correct the p-values of whole pre-ranks over all of them."""
    places = [
        (one, k)
        for one, diagnosis in enumerate(found)
        for k, finding in enumerate(diagnosis.findings)
        if finding.component == ALL
    ]
    values = holm([found[one].findings[k].p_value for one, k in places])
    corrected = dict(zip(places, values, strict=True))
    return [
        replace(
            diagnosis,
            findings=tuple(
                replace(finding, p_holm=float(corrected[one, k]))
                if (one, k) in corrected
                else finding
                for k, finding in enumerate(diagnosis.findings)
            ),
        )
        for one, diagnosis in enumerate(found)
    ]
