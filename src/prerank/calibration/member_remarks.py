"""What to say of samples that are not exchangeable with the observation."""

import math

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.distributions import Ensemble

__all__ = ["member_remarks"]

_EXPECTED = 20.0  # matches with the observation, of which exchangeable samples have some
_CORRELATED = 0.1
_SURE = 6.0  # standard errors


def member_remarks(dist: Distribution, y: Tensor) -> tuple[str, ...]:
    r"""What to say of an ensemble with repeated or autocorrelated members.

    If the members of a row are exchangeable with its observation, a member equals the observation
    as often as it equals another member, and neighbouring members are as correlated as any two.
    Resampled members repeat each other and never the observation; members of a Markov chain are
    correlated at lag 1. The ranks of a calibrated forecast are then not uniform.

    Args:
        dist: `batch_shape (..., N)`, `event_shape (D,)`; other than an ensemble has no remark.
        y: observations `(..., N, D)`.

    Example:
        >>> noise = torch.Generator().manual_seed(0)
        >>> draws, y = (
        ...     torch.randn(50, 200, 2, generator=noise),
        ...     torch.randn(200, 2, generator=noise),
        ... )
        >>> member_remarks(Ensemble(draws), y)
        ()
        >>> resampled = draws[torch.randint(10, (50,), generator=noise)]
        >>> [remark.split(":")[0] for remark in member_remarks(Ensemble(resampled), y)]
        ['repeated samples']
    """
    if not isinstance(dist, Ensemble) or dist.weights is not None:
        return ()
    members = dist.at_precision_of(y).samples.detach()
    remarks = []
    shuffled = members[torch.randperm(len(members), generator=torch.Generator().manual_seed(0))]
    repeated = float((shuffled[1:] == shuffled[:-1]).all(-1).double().mean())
    met = (members == y).all(-1)
    # Zero matches where 20 are expected have a probability of exp(-20) at most.
    if repeated * met.numel() > _EXPECTED and not bool(met.any()):
        remarks.append(
            f"repeated samples: {repeated:.1%} of the pairs of samples of a row are equal, and "
            "none equals the observation. Resampled members are not exchangeable with the "
            "observation, and a calibrated forecast can fail: use distinct draws of the forecast."
        )
    correlation, error = _lag_correlation(members)
    if correlation > max(_CORRELATED, _SURE * error):
        remarks.append(
            f"correlated samples: neighbouring samples of a row have a correlation of "
            f"{correlation:.2f}, as those of a Markov chain or sorted ones do. Such samples are "
            "not exchangeable with the observation, and a calibrated forecast can then fail: thin "
            "the chain, or shuffle samples that are only sorted."
        )
    return tuple(remarks)


def _lag_correlation(members: Tensor) -> tuple[float, float]:
    """Correlation of neighbouring members within rows, over that of any two; its standard error."""
    size = len(members)
    if size < 3:
        return 0.0, 1.0
    centred = (members - members.mean(0)).double().flatten(1, -2)
    # Members of an ensemble of models have traits of their own in all rows: these are no chain.
    centred = centred - centred.mean(1, keepdim=True)
    variance = centred.square().mean(0)
    varying = variance > 0
    if not bool(varying.any()):
        return 0.0, 1.0
    products = (centred[1:] * centred[:-1]).mean(0)[varying] / variance[varying]
    # Deviations from the mean of S exchangeable members have a correlation of -1 / (S - 1).
    excess = products.mean() + 1 / (size - 1)
    rows = centred.shape[1]  # the targets of a row may depend on each other
    return float(excess), 1 / math.sqrt(rows * size)
