"""Deep ensembles and dropout: many networks, or many passes through one, as one prediction."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from prerank.adapters.mixtures import mixture
from prerank.distributions import Ensemble
from prerank.distributions.draws import forked_state
from prerank.errors import InputError, InputTypeError, ShapeError
from prerank.inputs import as_count, as_generator, as_tensor, wrong_type

__all__ = ["as_input", "deep_ensemble", "mc_dropout"]


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
        outputs = [network(as_input(x, network)) for network in networks]
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
        points = as_input(x, module)
        outputs = [module(points) for _ in range(passes)]
    return _combine(outputs, None)


def as_input(x: object, module: nn.Module) -> Tensor:
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
