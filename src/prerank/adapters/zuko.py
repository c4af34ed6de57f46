"""Normalising flows and mixtures of zuko."""

from torch.distributions import Categorical, Distribution, MixtureSameFamily

from prerank.adapters.libraries import library, wrong_type
from prerank.adapters.mixtures import as_gaussian_mixture
from prerank.adapters.networks import as_input, evaluating
from prerank.errors import InputError
from prerank.inputs import as_count

__all__ = ["from_zuko"]


def from_zuko(flow: object, x: object = None, *, rows: int | None = None) -> Distribution:
    r"""The law :math:`F(\cdot \mid x)` that a flow predicts, exact in density and draws.

    What a flow returns is a distribution already. This runs it in evaluation mode, takes arrays
    and tables, repeats the law of an unconditional flow for every row, and turns zuko's Gaussian
    mixtures into `prerank.GaussianMixture`, for which closed forms are known. For training, call
    the flow itself: `CalibrationPenalty` takes `flow(x)`.

    Args:
        flow: a lazy distribution, as in `zuko.flows` and `zuko.mixtures`.
        x: contexts `(N, C)`; None for a flow without context.
        rows: N, for a flow without context.

    Returns:
        A distribution with `batch_shape (N,)` and `event_shape (D,)`.

    Example:
        >>> import torch, zuko
        >>> flow = zuko.flows.NSF(features=2, context=3, hidden_features=(8,))
        >>> dist = from_zuko(flow, torch.randn(10, 3))
        >>> dist.batch_shape, dist.event_shape
        (torch.Size([10]), torch.Size([2]))
    """
    zuko = library("zuko", extra="flows")
    if not isinstance(flow, zuko.lazy.LazyDistribution):
        raise wrong_type("flow", flow, "a flow or mixture of zuko (a LazyDistribution)")
    with evaluating([flow]):
        if x is not None:
            dist = flow(as_input(x, flow))
        elif rows is not None:
            dist = flow().expand((as_count(rows, "rows", minimum=1),))
        else:
            raise InputError("x is missing: give contexts (N, C), or rows for a flow without them")
    if isinstance(dist, zuko.distributions.Mixture):
        family = MixtureSameFamily(
            Categorical(logits=dist.logits, validate_args=False), dist.base, validate_args=False
        )
        return as_gaussian_mixture(family)
    return dist
