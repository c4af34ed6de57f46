"""Mixture density networks, stacked."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional

from prerank import defaults
from prerank.distributions import GaussianMixture
from prerank.errors import InputError
from prerank.inputs import as_count, as_positive

__all__ = ["MixtureNetwork"]

_COVARIANCES = ("full", "diagonal")


@dataclass(frozen=True)
class MixtureNetwork:
    r"""Fully connected network to the parameters of a Gaussian mixture.

    .. math:: x \mapsto \mathrm{logits},\ \mu_k,\ L_k, \qquad
              L_{kdd} = \mathrm{softplus}(a_{kd}) + \mathrm{floor},

    with ReLU between layers and free entries below the diagonal: every factor is valid by
    construction. The floor keeps discrete targets from collapsing a component onto an atom.

    Args:
        n_inputs: L.
        n_targets: D.
        n_components: K.
        hidden: widths of the hidden layers.
        covariance: `"full"` or `"diagonal"`.
        scale_floor: smallest diagonal entry of a factor, in units of the standardised targets.

    Example:
        >>> network = MixtureNetwork(n_inputs=3, n_targets=2)
        >>> theta = torch.stack([network.initial(seed) for seed in range(4)])
        >>> network(theta, torch.zeros(4, 10, 3, dtype=torch.float64)).batch_shape
        torch.Size([4, 10])
    """

    n_inputs: int
    n_targets: int
    n_components: int = defaults.N_COMPONENTS
    hidden: tuple[int, ...] = (100, 100)
    covariance: str = "full"
    scale_floor: float = defaults.SCALE_FLOOR

    stackable = True

    def __post_init__(self) -> None:
        """Check the sizes."""
        for name in ("n_inputs", "n_targets", "n_components"):
            as_count(getattr(self, name), name, minimum=1)
        for width in self.hidden:
            as_count(width, "hidden", minimum=1)
        if self.covariance not in _COVARIANCES:
            raise InputError(f"covariance must be one of {_COVARIANCES}, got {self.covariance!r}")
        object.__setattr__(self, "scale_floor", as_positive(self.scale_floor, "scale_floor"))

    @property
    def n_parameters(self) -> int:
        """P, weights and biases of all layers."""
        return sum((fan_in + 1) * fan_out for fan_in, fan_out in self._layers)

    def initial(self, seed: int) -> Tensor:
        """Uniform on +-1/sqrt(fan_in) for weights and biases, in float64."""
        generator = torch.Generator().manual_seed(seed)
        parts = []
        for fan_in, fan_out in self._layers:
            uniform = torch.rand((fan_in + 1) * fan_out, generator=generator, dtype=torch.float64)
            parts.append((2 * uniform - 1) / fan_in**0.5)
        return torch.cat(parts)

    def __call__(self, theta: Tensor, x: Tensor) -> GaussianMixture:
        """Predict with parameters `(M, P)` for inputs `(M, B, L)`."""
        value = x
        sizes = [size for fan_in, fan_out in self._layers for size in (fan_in * fan_out, fan_out)]
        parts = iter(theta.split(sizes, dim=1))
        for index, (fan_in, fan_out) in enumerate(self._layers):
            weight = next(parts).reshape(-1, fan_in, fan_out)
            bias = next(parts).unsqueeze(1)
            value = torch.baddbmm(bias, functional.relu(value) if index else value, weight)
        return self._distribution(value)

    @property
    def _layers(self) -> list[tuple[int, int]]:
        widths = [self.n_inputs, *self.hidden, sum(self._outputs)]
        return list(pairwise(widths))

    @property
    def _outputs(self) -> list[int]:
        """Numbers of logits, means, diagonal entries and entries below the diagonal."""
        k, d = self.n_components, self.n_targets
        below = d * (d - 1) // 2 if self.covariance == "full" else 0
        return [k, k * d, k * d, k * below]

    def _distribution(self, raw: Tensor) -> GaussianMixture:
        k, d = self.n_components, self.n_targets
        logits, loc, diagonal, below = raw.split(self._outputs, dim=-1)
        shape = raw.shape[:-1]
        scale = functional.softplus(diagonal).reshape(*shape, k, d) + self.scale_floor
        factor = torch.diag_embed(scale)
        if self.covariance == "full" and d > 1:
            row, column = torch.tril_indices(d, d, -1, device=raw.device)
            factor[..., row, column] = below.reshape(*shape, k, -1)
        return GaussianMixture(logits, loc.reshape(*shape, k, d), factor, validate_args=False)
