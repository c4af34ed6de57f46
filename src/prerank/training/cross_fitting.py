"""Which rows networks train on and stop on, and forecasts of rows that they have not seen."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank import defaults
from prerank.inputs import as_count
from prerank.models import FlowNetwork, MixtureNetwork
from prerank.models.members import forecast_each, pooled
from prerank.numerics.folds import draw_folds, fewer_folds
from prerank.training.data import TrainingData
from prerank.training.runs import Run

__all__ = ["Partition", "forecast_unseen"]

_FOLDS = 5


@dataclass(frozen=True)
class Partition:
    """Rows of the networks of one predictor.

    Attributes:
        splits: training and stopping rows of each split, equally many in all splits.
        runs: one for each network.
        unseen: for each run, rows that it was not fitted to.
        members: numbers of the runs that make the predictor.
        folds: number of folds that were crossed; 0 for none.
    """

    splits: tuple[tuple[Tensor, Tensor], ...]
    runs: tuple[Run, ...]
    unseen: tuple[Tensor, ...]
    members: tuple[int, ...]
    folds: int = 0

    @classmethod
    def single(
        cls,
        n: int,
        *,
        members: int = 1,
        splits: int = 1,
        seed: int = 0,
        groups: object = None,
        time: object = None,
    ) -> "Partition":
        """A fifth of the rows stops the training and is not trained on.

        It is drawn at random, or has whole groups, or is the last block in time. Of the folds of
        groups it is one at random, but not the largest: a group that is larger than a fold is
        trained on. All members share the first split; each further split has one more run, which
        is not a member.

        Example:
            >>> Partition.single(10, time=range(10)).unseen[0]
            tensor([8, 9])
        """
        draw = torch.Generator().manual_seed(seed)
        if groups is None and time is None:
            count = max(2, round(defaults.VALIDATION_SHARE * n))
            orders = [torch.randperm(n, generator=draw) for _ in range(splits)]
            pairs = [(order[count:], order[:count]) for order in orders]
        else:
            count = fewer_folds(_FOLDS, groups)
            folds = draw_folds(n, folds=count, repeats=splits, seed=seed, groups=groups, time=time)
            # The last block in time; then the one before it, which also has rows after it.
            last = folds[0].max() - torch.arange(splits)
            stops = [
                (folds[0] == k if time is not None else f == _smaller_fold(f, draw))
                for k, f in zip(last, folds, strict=True)
            ]
            pairs = _equal([(_where(~stop), _where(stop)) for stop in stops])
        runs = [Run(seed + m) for m in range(members)]
        runs += [Run(seed, split) for split in range(1, splits)]
        unseen = tuple(pairs[run.split][1] for run in runs)
        return cls(tuple(pairs), tuple(runs), unseen, tuple(range(members)))

    @classmethod
    def crossed(
        cls,
        n: int,
        *,
        folds: int = _FOLDS,
        members: int = 1,
        apart: bool = True,
        seed: int = 0,
        groups: object = None,
        time: object = None,
    ) -> "Partition":
        """Cross-fitting: one network for each of K folds, repeated for each member.

        Fold k is unseen, fold k + 1 stops the training and the others train. If the two are not
        kept `apart`, fold k stops the training itself, and all others train. The predictor takes
        one network of each repeat, so that it has as many networks, trained on as many rows, as
        the forecasts of `forecast_unseen`. Splits have equally many rows: the few that are too many
        are left out at random. Fold 0 has the rows that `single` stops on, for the same seed, up
        to rounding of their number: with and without cross-fitting, the predictor is the same.

        Example:
            >>> partition = Partition.crossed(100, folds=4, members=2)
            >>> len(partition.runs), partition.members, len(partition.splits[0][0])
            (8, (0, 5), 50)
        """
        as_count(folds, "folds", minimum=3)
        number = draw_folds(n, folds=folds, repeats=members, seed=seed, groups=groups, time=time)
        draw = torch.Generator().manual_seed(seed)
        splits, unseen = [], []
        for drawn in number:
            order = torch.randperm(n, generator=draw)
            together = groups is not None or time is not None
            fold = drawn if together else order.argsort() * folds // n
            for k in range(folds):
                left = fold[order] == k
                stops = fold[order] == (k + 1) % folds if apart else left
                splits.append((order[~stops & ~left], order[stops]))
                unseen.append(_where(fold == k))
        return cls(
            tuple(_equal(splits)),
            tuple(Run(seed + split, split) for split in range(len(splits))),
            tuple(unseen),
            tuple(r * folds + r % folds for r in range(members)),
            folds,
        )


def _smaller_fold(folds: Tensor, draw: torch.Generator) -> int:
    """One of the folds at random, but not the largest."""
    order = folds.bincount().argsort()
    return int(order[torch.randint(len(order) - 1, (), generator=draw)])


def _where(mask: Tensor) -> Tensor:
    return mask.nonzero().squeeze(-1)


def _equal(splits: Sequence[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
    """Splits with as many rows as the smallest has."""
    train, stop = (min(len(split[part]) for split in splits) for part in (0, 1))
    return [(rows[:train], stops[:stop]) for rows, stops in splits]


def forecast_unseen(
    network: MixtureNetwork | FlowNetwork,
    data: TrainingData,
    theta: Tensor,
    runs: Sequence[Run],
    unseen: Sequence[Tensor],
    *,
    units: int | None = None,
) -> tuple[Distribution, Tensor]:
    """Forecasts of rows by the networks that have not seen them, and the observations.

    Rows come in ascending order. Each row's forecast is the mixture of its networks, in units of
    one split.

    Args:
        network: what was trained.
        data: its rows.
        theta: parameters of the runs, `(R, P)`.
        runs: as they were trained.
        unseen: rows of each run; each row occurs equally often.
        units: number of the split; that of the first run by default.

    Example:
        >>> from prerank.datasets import AR1Regression
        >>> from prerank.models import MixtureNetwork
        >>> x, y = AR1Regression(dim=2).sample(120, generator=0)
        >>> network, partition = MixtureNetwork(x.shape[1], 2, 3, (8,)), Partition.crossed(120)
        >>> theta = torch.stack([network.initial(run.seed) for run in partition.runs]).float()
        >>> data = TrainingData.build(x, y, partition.splits)
        >>> dist, observed = forecast_unseen(network, data, theta, partition.runs, partition.unseen)
        >>> dist.logits.shape, observed.shape
        (torch.Size([120, 3]), torch.Size([120, 2]))
    """
    first, device = runs[0].split if units is None else units, data.x.device
    ordered = [rows.sort().values for rows in unseen]
    forecasts: list[Any] = []
    for run, parameters, rows in zip(runs, theta.split(1), ordered, strict=True):
        x = data.x[run.split, rows.to(device)].unsqueeze(0)
        own = data.y_scaler.select([run.split]).relative_to(data.y_scaler.select([first]))
        forecasts += forecast_each(network, parameters.cpu(), x.cpu(), *own)
    numbers = torch.cat(ordered).unique()
    return pooled(forecasts, ordered), data.y[first, numbers.to(device)].double().cpu()
