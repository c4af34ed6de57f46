"""What a trainable predictor is: a function of a parameter vector and of inputs."""

from collections.abc import Callable
from copy import deepcopy
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from prerank.errors import InputError

__all__ = ["ModuleNetwork", "Network"]


class Network(Protocol):
    """A stack of predictors with one parameter vector each.

    Keeping all parameters of a run in one row makes a stack of runs a matrix: the optimiser, the
    choice of the best epoch, checkpoints and the removal of finished runs are row operations.
    """

    @property
    def n_parameters(self) -> int:
        """P, the length of a parameter vector."""

    @property
    def stackable(self) -> bool:
        """Whether several runs can be evaluated in one call."""

    def initial(self, seed: int) -> Tensor:
        """Initial parameters `(P,)`, a function of the seed alone."""

    def __call__(self, theta: Tensor, x: Tensor) -> Distribution:
        """Predict with parameters `(M, P)` for inputs `(M, B, L)`: `batch_shape (M, B)`."""


class ModuleNetwork:
    """Any `nn.Module` that maps inputs `(B, L)` to a distribution with `batch_shape (B,)`.

    Such modules cannot be stacked, so their runs are trained one by one. They are in training mode
    while gradients are computed and in evaluation mode otherwise. Noise that a module draws itself
    (dropout) comes from torch's global state, so such runs depend on more than their seed.

    Args:
        build: makes a fresh module; it is called under a seeded, forked random state. Modules that
            keep running statistics (batch normalisation) are refused: those are no parameters.

    Example:
        >>> class Normal(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.linear = nn.Linear(3, 2)
        ...
        ...     def forward(self, x):
        ...         return torch.distributions.MultivariateNormal(self.linear(x), torch.eye(2))
        >>> network = ModuleNetwork(Normal)
        >>> network(network.initial(0)[None], torch.zeros(1, 5, 3)).batch_shape
        torch.Size([1, 5])
    """

    stackable = False

    def __init__(self, build: Callable[[], nn.Module]) -> None:
        if not callable(build):
            raise InputError("build must be a callable that returns an nn.Module")
        self._build = build
        if any(getattr(part, "track_running_stats", False) for part in self._module.modules()):
            raise InputError(
                "the module keeps running statistics, which are no parameters: use nn.LayerNorm "
                "or track_running_stats=False"
            )

    def __repr__(self) -> str:
        """The module, whose text is the same in every process."""
        return f"ModuleNetwork({self._module!r})"

    @property
    def n_parameters(self) -> int:
        """P, the number of all parameters together."""
        return sum(p.numel() for p in self._module.parameters())

    def initial(self, seed: int) -> Tensor:
        """Flattened parameters of a fresh module."""
        parameters = self._fresh(seed).parameters()
        return torch.cat([p.detach().flatten() for p in parameters])

    def __call__(self, theta: Tensor, x: Tensor) -> Distribution:
        """Call the module with the given parameters."""
        if theta.shape[0] != 1:
            raise InputError(f"this network takes one run at a time, got {theta.shape[0]}")
        dist: Distribution = self.module(theta[0])(x[0])
        return dist.expand(torch.Size((1, *dist.batch_shape)))

    def module(self, theta: Tensor) -> nn.Module:
        """A module of its own with parameters `(P,)`, such as trained ones; it shares the buffers.

        A distribution may keep it: flows call their networks only when they are asked for a
        density or a sample.
        """
        module = self._module.to(theta.device, theta.dtype)
        parameters = list(module.parameters())
        parts = theta.split([p.numel() for p in parameters])
        instead: dict[int, Any] = {id(buffer): buffer for buffer in module.buffers()}
        for parameter, part in zip(parameters, parts, strict=True):
            instead[id(parameter)] = part.reshape(parameter.shape)
        return deepcopy(module, instead).train(torch.is_grad_enabled())

    @cached_property
    def _module(self) -> nn.Module:
        return self._fresh(0)

    def _fresh(self, seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):  # modules are built on the CPU
            torch.default_generator.manual_seed(seed)
            module = self._build()
        if not isinstance(module, nn.Module):
            raise InputError(f"build must return an nn.Module, got {type(module).__name__}")
        return module
