"""The relaxed sampler of the published runs, under its own name."""

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from prerank.distributions.mixture import GaussianMixture
from prerank.distributions.noise import standard_normal, standard_uniform
from prerank.errors import InputError
from prerank.inputs import Shape, as_generator

__all__ = ["RelaxedMixture"]


class RelaxedMixture(Distribution):
    r"""Gumbel-softmax blends of one draw per component. **Not** the law of the mixture.

    .. math:: \tilde y = \sum_k a_k (\mu_k + L_k \varepsilon_k), \qquad
              a = \mathrm{softmax}\big((\mathrm{logits} + g) / t\big),

    with independent standard Gumbel variables g.

    The published study drew these in training and in evaluation. They shrink towards the mean
    and have no separate modes, so PITs computed from them say little about the mixture that the
    likelihood scores. The class exists for the `as_published` protocol; nothing else uses it.

    Args:
        mixture: the mixture whose components are blended.
        temperature: t > 0; the published value is 1. As t goes to 0 the law of the mixture
            returns and the gradient is lost.

    Example:
        >>> mixture = GaussianMixture(
        ...     torch.zeros(1, 2), torch.tensor([[[-5.0], [5.0]]]), torch.ones(1, 2, 1, 1)
        ... )
        >>> exact = mixture.sample((1000,), generator=0).std()
        >>> blend = RelaxedMixture(mixture).rsample((1000,), generator=0).std()
        >>> bool(blend < 0.7 * exact)
        True
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, mixture: GaussianMixture, temperature: float = 1.0) -> None:
        if not temperature > 0:
            raise InputError(f"temperature must be positive, got {temperature}")
        self.mixture = mixture
        self.temperature = temperature
        super().__init__(mixture.batch_shape, mixture.event_shape, validate_args=False)

    def expand(self, batch_shape: Shape, _instance: Any = None) -> "RelaxedMixture":
        """Return the same sampler with batch axes broadcast to `batch_shape`."""
        return RelaxedMixture(self.mixture.expand(batch_shape), self.temperature)

    def rsample(
        self, sample_shape: Shape = (), *, generator: torch.Generator | int | None = None
    ) -> Tensor:
        """Draw blends, with gradients to all parameters."""
        source = as_generator(generator, f"sample {tuple(sample_shape)}")
        lead = torch.Size(sample_shape)
        shape = (lead.numel(), *self.mixture.logits.shape)
        like = self.mixture.loc
        uniform = standard_uniform(shape, like=like, generator=source)
        normal = standard_normal((*shape, *self.event_shape), like=like, generator=source)
        return self.blend(uniform, normal).reshape(self._extended_shape(lead))

    def blend(self, uniform: Tensor, normal: Tensor) -> Tensor:
        """Blends from given noise: uniforms `(n, *batch, K)` and normals `(n, *batch, K, D)`."""
        mixture = self.mixture
        tiny = torch.finfo(uniform.dtype).tiny
        gumbel = -(-uniform.movedim(0, -1).clamp_min(tiny).log()).clamp_min(tiny).log()
        powers = (mixture.logits.unsqueeze(-1) + gumbel) / self.temperature
        blend = torch.softmax(powers, dim=-2)  # (*batch, K, n)
        # One product per row, with draws as columns, costs less than one per draw.
        factors = mixture.scale_tril.movedim(-3, -2).flatten(-2)  # (*batch, D, K D)
        columns = (blend.unsqueeze(-2) * normal.movedim(0, -1)).flatten(-3, -2)
        return (factors @ columns + mixture.loc.mT @ blend).movedim(-1, 0)

    def sample(
        self, sample_shape: Shape = (), *, generator: torch.Generator | int | None = None
    ) -> Tensor:
        """Draw blends without gradients."""
        with torch.no_grad():
            return self.rsample(sample_shape, generator=generator)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-density of the *mixture*, which is what the published runs ranked by."""
        return self.mixture.log_prob(value)
