"""Networks of torch as one prediction: deep ensembles, dropout, and flows of zuko."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, MixtureSameFamily

from prerank.adapters.mixtures import as_gaussian_mixture, mixture
from prerank.distributions import Ensemble
from prerank.distributions.draws import forked_state
from prerank.errors import InputError, InputTypeError, ShapeError
from prerank.extras import library
from prerank.inputs import as_count, as_generator, as_tensor, wrong_type

__all__ = ["deep_ensemble", "from_zuko", "mc_dropout"]


def deep_ensemble(
    modules: Sequence[nn.Module], x: object, *, weights: object = None
) -> Distribution:
    r"""The prediction of M networks that were trained from different starts.

    .. math:: F(\cdot \mid x) = \sum_{m=1}^M w_m F_m(\cdot \mid x).

    Networks that return distributions are mixed (see `mixture`: exactly, and for Gaussian ones in
    closed form), those that return points `(N, D)` give an `Ensemble` of M samples. The networks
    run in evaluation mode, and are put back as they were. Gradients follow torch's grad mode.

    Points of a few networks need care: all rows share the same M members, so their ranks are not
    independent, and p-values are too small where M is far below the number of rows.

    Args:
        modules: M networks, each a map from x to a distribution or a tensor `(N, D)`.
        x: inputs. Arrays and tables become tensors of the dtype and on the device of the network;
            a tensor is passed on as it is.
        weights: `(M,)`, equal by default.

    Example:
        >>> from torch.distributions import Independent, Normal
        >>> class Net(nn.Linear):
        ...     def forward(self, x):
        ...         return Independent(Normal(super().forward(x), 1.0), 1)
        >>> dist = deep_ensemble([Net(4, 2) for _ in range(3)], torch.randn(10, 4))
        >>> type(dist).__name__, dist.probs.shape, dist.event_shape
        ('GaussianMixture', torch.Size([10, 3]), torch.Size([2]))
    """
    networks = list(modules)
    if not networks:
        raise InputError("modules is empty: give at least one network")
    for network in networks:
        if not isinstance(network, nn.Module):
            raise wrong_type("modules", network, "a list of torch.nn.Module")
    with _evaluating(networks):
        outputs = [network(_as_input(x, network)) for network in networks]
    return _combine(outputs, weights)


def mc_dropout(
    module: nn.Module,
    x: object,
    *,
    n_passes: int = 50,
    generator: torch.Generator | int | None = None,
) -> Distribution:
    r"""The prediction of one network under random dropout masks.

    .. math:: F(\cdot \mid x) = \frac1P \sum_{p=1}^P F(\cdot \mid x, \text{mask}_p).

    Dropout layers are active, and attention and recurrent layers with dropout of their own; all
    else, such as batch normalisation, is in evaluation mode. Every layer is put back as it was.
    Each pass draws its own masks for each row.

    Args:
        module: a map from x to a distribution or a tensor `(N, D)`. It must have such layers:
            `torch.nn.functional.dropout` cannot be switched on from outside.
        x: as in `deep_ensemble`.
        n_passes: P, at least 2.
        generator: a generator or seed of the masks, with which torch's global state is left as it
            was; without one the masks are drawn from that state.

    Example:
        >>> from torch.distributions import Independent, Normal
        >>> class Net(nn.Sequential):
        ...     def forward(self, x):
        ...         return Independent(Normal(super().forward(x), 1.0), 1)
        >>> net = Net(nn.Linear(4, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 2))
        >>> dist = mc_dropout(net, torch.randn(10, 4), n_passes=20, generator=0)
        >>> type(dist).__name__, dist.probs.shape
        ('GaussianMixture', torch.Size([10, 20]))
    """
    if not isinstance(module, nn.Module):
        raise wrong_type("module", module, "a torch.nn.Module")
    passes = as_count(n_passes, "n_passes", minimum=2)
    if not any(_drops(layer) for layer in module.modules()):
        raise InputError(
            "module has no layer with dropout: every pass would be the same. Use torch.nn.Dropout "
            "layers, not torch.nn.functional.dropout, or several networks in deep_ensemble"
        )
    source = as_generator(generator, "dropout")
    with _evaluating([module]), forked_state(source):
        for layer in module.modules():
            # In evaluation mode an encoder layer takes a path of its own, without dropout.
            if _drops(layer) or isinstance(layer, nn.TransformerEncoderLayer):
                layer.training = True  # not train(), which would reach the layers inside
        points = _as_input(x, module)
        outputs = [module(points) for _ in range(passes)]
    return _combine(outputs, None)


def _as_input(x: object, module: nn.Module) -> Tensor:
    """Turn arrays and tables into what a network takes; pass tensors on as they are."""
    if isinstance(x, Tensor):
        return x
    points = as_tensor(x, "x")
    like = next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))
    return points.to(like)


@contextmanager
def _evaluating(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Put networks into evaluation mode, and each layer back into its own mode afterwards."""
    modes = [(layer, layer.training) for module in modules for layer in module.modules()]
    try:
        for module in modules:
            module.eval()
        yield
    finally:
        for layer, training in modes:
            layer.training = training


def _drops(layer: nn.Module) -> bool:
    """Whether a layer drops values at random while it trains."""
    if isinstance(layer, nn.modules.dropout._DropoutNd):
        return layer.p > 0
    if isinstance(layer, nn.RNNBase):
        return layer.dropout > 0 and layer.num_layers > 1  # it drops between its layers
    return isinstance(layer, nn.MultiheadAttention) and layer.dropout > 0


def _combine(outputs: Sequence[object], weights: object) -> Distribution:
    dists = [output for output in outputs if isinstance(output, Distribution)]
    if len(dists) == len(outputs):
        return mixture(dists, weights=weights)
    points = [output for output in outputs if isinstance(output, Tensor)]
    if len(points) < len(outputs):
        raise InputTypeError(
            "a network must return a torch.distributions.Distribution or a tensor (N, D), and all "
            f"of them the same; got {', '.join(sorted({type(o).__name__ for o in outputs}))}"
        )
    shapes = {tuple(point.shape) for point in points}
    if len(shapes) > 1:
        raise ShapeError(f"the networks return points of different shapes: {sorted(shapes)}")
    return Ensemble(torch.stack(points), weights)


def from_zuko(flow: object, x: object = None, *, rows: int | None = None) -> Distribution:
    r"""The law :math:`F(\cdot \mid x)` that a flow predicts, exact in density and draws.

    What a flow returns is a distribution already. This copies it in evaluation mode, takes arrays
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
    zuko = library("zuko", "from_zuko")
    if not isinstance(flow, zuko.lazy.LazyDistribution):
        raise wrong_type("flow", flow, "a flow or mixture of zuko (a LazyDistribution)")
    if x is None and rows is None:
        raise InputError("x is missing: give contexts (N, C), or rows for a flow without them")
    if x is not None and rows is not None:
        raise InputError("rows is for a flow without contexts, and x has its own: leave one out")
    # A copy: the law runs the networks when it is asked, whatever mode the flow is in by then.
    fixed: Any = copy.deepcopy(flow).eval()
    context = None if x is None else _as_input(x, fixed)
    _check_context(fixed, context)
    dist = fixed(context)
    if rows is not None:
        dist = dist.expand((as_count(rows, "rows", minimum=1),))
    if isinstance(dist, zuko.distributions.Mixture):
        family = MixtureSameFamily(
            Categorical(logits=dist.logits, validate_args=False), dist.base, validate_args=False
        )
        return as_gaussian_mixture(family)
    return dist


def _check_context(flow: Any, context: Tensor | None) -> None:
    """Raise where a flow does not take such contexts: most say so only when they are drawn from."""
    if context is not None and context.dim() < 2:
        raise ShapeError(
            f"x must have shape (N, C), got {tuple(context.shape)}: use x[:, None] for contexts of "
            "one number each, x[None] for a single one"
        )
    one = None if context is None else context[..., :1, :]
    try:
        with torch.no_grad(), forked_state(as_generator(0, "zuko")):
            flow(one).sample()
    except (AttributeError, RuntimeError) as error:  # zuko has no error of its own for it
        if context is None:
            raise InputError(f"flow needs contexts: give x (N, C), not rows ({error})") from error
        raise InputError(
            f"flow takes no contexts x of shape {tuple(context.shape)} and {context.dtype}: give "
            "those it was made for, or only rows where it was made without contexts "
            f"({error})"
        ) from error
