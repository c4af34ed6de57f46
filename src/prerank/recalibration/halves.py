"""Two halves of the rows, and how sure a gain is that was seen on the half not fitted to."""

from typing import NamedTuple

import numpy as np
import torch
from scipy.special import ndtr, stdtrit
from torch import Tensor

from prerank.errors import InputError
from prerank.inputs import as_labels, as_ranks
from prerank.numerics.folds import draw_folds

__all__ = ["Halves"]

_EVIDENCE = 2.0  # standard errors of a mean of many independent gains
_BLOCKS = 20  # of neighbours in time, which count as one case each


class Halves(NamedTuple):
    r"""Rows of two halves, of which each judges what was fitted to the other.

    A mean gain :math:`\bar g` over n rows in G clusters is evidence if it is larger than

    .. math:: t_G \Big(\frac{G}{G - 1} \sum_{c=1}^{G} \Big(\frac1n \sum_{i \in c} (g_i - \bar g)
              \Big)^2\Big)^{1/2}

    with the quantile :math:`t_G` of Student's law with G - 1 degrees of freedom that is 2 for many
    clusters. Without groups and time, each row is a cluster.

    Attributes:
        rows: numbers of the rows of each half, `(2, n // 2)`.
        clusters: number of the cluster of each row of both halves, `(n,)`, or None where each row
            is a cluster.

    Example:
        >>> halves = Halves.draw(6, groups=["a", "a", "b", "b", "c", "c"])
        >>> halves.rows.shape, halves.clusters.shape
        (torch.Size([2, 2]), torch.Size([4]))
    """

    rows: Tensor
    clusters: Tensor | None

    @classmethod
    def draw(cls, n: int, *, seed: int = 0, groups: object = None, time: object = None) -> "Halves":
        """Halves at random, of whole groups, or before and after the middle of the time.

        Groups that do not divide evenly leave some rows in no half. Rows that are all of one group
        are divided at random.
        """
        cluster = None
        if groups is not None:
            names = as_labels(groups, "groups", n).astype(str)
            cluster = torch.as_tensor(np.unique(names, return_inverse=True)[1])
            if not bool(cluster.any()):
                groups = cluster = None
        fold = draw_folds(n, folds=2, seed=seed, groups=groups, time=time)[0]
        draw = torch.Generator().manual_seed(seed)
        order = torch.randperm(n, generator=draw)  # rows that are left out are left out at random
        halves = [order[fold[order] == half] for half in (0, 1)]
        size = min(map(len, halves))
        if not size:  # one group or time has nearly all rows
            given = "groups" if time is None else "time"
            raise InputError(f"{given}: one value has so many rows that no second half is left")
        rows = torch.stack([half[:size] for half in halves])
        if time is not None:
            times = int(as_ranks(as_labels(time, "time", n), "time").max()) + 1
            cluster = draw_folds(n, folds=min(_BLOCKS, n // 2, times), time=time)[0]
        if cluster is None:
            return cls(rows, None)
        # Each half judges the other: the rows come back in that order.
        return cls(rows, cluster[rows.flip(0).flatten()].unique(return_inverse=True)[1])

    def to(self, device: torch.device) -> "Halves":
        """The same on a device."""
        clusters = self.clusters
        return Halves(self.rows.to(device), None if clusters is None else clusters.to(device))

    def convincing(self, gains: Tensor) -> Tensor:
        """Whether mean gains are evidence.

        Args:
            gains: of the rows that each half's fit has not seen, `(2, ..., n // 2)`.
        """
        both = gains.movedim(0, -2).flatten(-2)
        mean = both.mean(-1)
        parts = (both - mean.unsqueeze(-1)) / both.shape[-1]
        if self.clusters is not None:
            count = int(self.clusters.max()) + 1
            parts = parts.new_zeros(*parts.shape[:-1], count).index_add(-1, self.clusters, parts)
        many = parts.shape[-1]
        bound = float(stdtrit(max(many - 1, 1), ndtr(_EVIDENCE)))
        error = (parts.square().sum(-1) * many / max(many - 1, 1)).sqrt()
        return mean > bound * error
