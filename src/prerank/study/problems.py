"""A dataset with its published splits, ready to train on."""

from collections.abc import Iterable
from functools import cached_property

import torch
from torch import Tensor

from prerank.datasets import SYNTHETIC, open_dataset, published_split
from prerank.datasets.collection import data_folder, find_table
from prerank.errors import InputError, NotApplicableError
from prerank.files.dataset_tables import content_hash
from prerank.models import MixtureNetwork
from prerank.preranks import PAPER, Dependency, PreRank, parse
from prerank.study.plans import NONE, Plan
from prerank.training import Run, TrainingData

__all__ = ["Problem", "check_datasets"]


def check_datasets(names: Iterable[str]) -> None:
    """Refuse datasets that are not on this machine, before anything is trained.

    Example:
        >>> check_datasets(["ar1", "nonesuch"])
        Traceback (most recent call last):
        prerank.errors.InputError: datasets: there is no table of nonesuch in ...
    """
    missing = [n for n in names if n not in SYNTHETIC and not find_table(n).exists()]
    if missing:
        raise InputError(
            f"datasets: there is no table of {', '.join(missing)} in {data_folder()}. "
            "`prerank datasets list` says which there are, `show` how to get them, and `import` "
            "takes your own; PRERANK_DATA names another folder"
        )


class Problem:
    """Rows, splits and network of one dataset.

    Args:
        name: of the dataset.
        plan: for seeds and network.
        device: where to keep the rows.

    Attributes:
        content: hash of the rows: those of a name may be others another day.
    """

    def __init__(self, name: str, plan: Plan, device: torch.device | str = "cpu") -> None:
        table = open_dataset(name)
        self.name = name
        self.plan = plan
        self.content = content_hash(table)
        splits = [published_split(len(table.x), seed) for seed in plan.seeds]
        # Constant and rare one-hot columns put single rows far out; the published runs left them.
        clip = plan.protocol == "exact"
        pairs = [(split.train, split.validation) for split in splits]
        self.data = TrainingData.build(table.x, table.y, pairs, clip=clip, device=device)
        self.test = torch.stack([split.test for split in splits]).to(device)
        self.network = MixtureNetwork(
            table.x.shape[1], table.y.shape[1], plan.n_components, plan.hidden
        )

    @property
    def rows(self) -> dict[str, Tensor]:
        """Row numbers of the parts that are looked at, `(splits, n)`."""
        return {"validation": self.data.validation, "test": self.test}

    @cached_property
    def preranks(self) -> tuple[PreRank, ...]:
        """Those of the paper that apply."""
        return tuple(prerank for prerank in PAPER if self._exact_obstacle(prerank) is None)

    @cached_property
    def published_preranks(self) -> tuple[PreRank, ...]:
        """Those to which the published runs had a form."""
        return tuple(prerank for prerank in PAPER if self.obstacle(prerank.label) is None)

    def obstacle(self, variant: str) -> str | None:
        """Why a variant cannot be had here; None where it can."""
        for prerank in () if variant == NONE else parse(variant):
            # The published runs put another function in the place of two targets' dependency.
            replaced = isinstance(prerank, Dependency) and self.data.y.shape[-1] == 2
            if not (replaced and self.plan.protocol == "published"):
                reason = self._exact_obstacle(prerank)
                if reason is not None:
                    return reason
        return None

    def _exact_obstacle(self, prerank: PreRank) -> str | None:
        probe = self.network(self.network.initial(0)[None].to(self.data.x), self.data.x[:1, :1])
        try:
            prerank.check(probe)
        except NotApplicableError as reason:
            return str(reason)
        return None

    def runs(self, strengths: tuple[float, ...]) -> list[Run]:
        """Every strength with every seed, in this order."""
        return [
            Run(seed, split, strength)
            for strength in strengths
            for split, seed in enumerate(self.plan.seeds)
        ]

    def part(self, name: str, runs: list[Run]) -> tuple[Tensor, Tensor]:
        """Inputs and targets of one part, for each run: `(M, n, L)` and `(M, n, D)`."""
        return self.data.select(runs, self.rows[name])
