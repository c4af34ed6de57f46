"""What to say of samples that are not exchangeable with the observation."""

import math

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.distributions import Ensemble

__all__ = ["member_remarks"]

_EXPECTED = 20.0  # matches with the observation, of which exchangeable samples have some
_CORRELATED = 0.1
_SURE = 6.0  # standard errors: also of the largest of all pairs
_CUT = 3.0  # so that few rows do not decide
_MOST_ROWS = 4096  # the standard error of a pair is then small enough
_MOST_MEMBERS = 256  # of more, pairs hardly change the ranks

_CORRELATED_WORDS = (
    "correlated",
    "those of a Markov chain or sorted ones do",
    "thin the chain, or shuffle samples that are only sorted",
)
_OPPOSITE_WORDS = ("opposite", "antithetic pairs do", "keep one of each pair")


def member_remarks(dist: Distribution, y: Tensor) -> tuple[str, ...]:
    r"""What to say of an ensemble with repeated, autocorrelated or antithetic members.

    If the members of a row are exchangeable with its observation, a member equals the observation
    as often as it equals another member, and neighbouring members are as correlated as any two.
    Resampled members repeat each other and never the observation; members of a Markov chain are
    correlated at lag 1; of antithetic members some pairs have a negative correlation. The ranks of
    a calibrated forecast are then not uniform.

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
    clear = _clear_correlation(members, repeated=bool(remarks))
    if clear is not None:
        which, correlation = clear
        kind, like, cure = _CORRELATED_WORDS if correlation > 0 else _OPPOSITE_WORDS
        remarks.append(
            f"{kind} samples: {which} of a row have a correlation of {correlation:.2f}, as {like}. "
            "Such samples are not exchangeable with the observation, and a calibrated forecast "
            f"can then fail: {cure}."
        )
    return tuple(remarks)


def _clear_correlation(members: Tensor, *, repeated: bool) -> tuple[str, float] | None:
    """Samples and their correlation within rows, where it is clearly not that of any two.

    That of neighbours if it is positive and no pair is more opposite, else the most extreme one of
    all pairs. Members that are known to repeat each other have positive ones.
    """
    if len(members) < 3:
        return None
    rows = members.flatten(1, -2)
    rows = rows[:, :: max(1, rows.shape[1] // _MOST_ROWS)].double()
    values = rows - rows.mean(0)
    values = values / values.square().mean(0).sqrt().clamp_min(1e-300)
    # Members of an ensemble of models have traits of their own in all rows: these are no chain.
    values = values - values.mean(1, keepdim=True)
    values = values / values.square().mean((0, 1)).sqrt().clamp_min(1e-300)
    values = values.clamp(-_CUT, _CUT).flatten(1)
    size, power = len(values), float(values.square().mean())
    usual = (float(values.sum(0).square().mean()) / size - power) / (size - 1)
    # The targets of a row may depend on each other: rows are counted, not values.
    error = 1 / math.sqrt(rows.shape[1])
    neighbours = float((values[1:] * values[:-1]).mean()) - usual
    some = values[:_MOST_MEMBERS]
    pairs = (some @ some.T / some.shape[1] - usual).triu(1)
    if repeated:
        pairs = pairs.clamp_max(0)
    first, second = divmod(int(pairs.abs().argmax()), len(some))
    extreme = float(pairs[first, second])
    if abs(extreme) <= max(_CORRELATED, _SURE * error):
        extreme = 0.0
    if neighbours > max(_CORRELATED, _SURE * error / math.sqrt(size), -extreme):
        return "neighbouring samples", min(neighbours, 1.0)
    if extreme != 0:
        return f"samples {first} and {second}", max(-1.0, min(extreme, 1.0))
    return None
