"""Posteriors of sbi: predictions of parameters, given simulated observations."""

from functools import cached_property
from operator import attrgetter
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from prerank.adapters.mixtures import mixture
from prerank.distributions import Ensemble
from prerank.distributions.draws import forked_state, kept_state
from prerank.errors import ShapeError
from prerank.extras import library
from prerank.inputs import Shape, as_count, as_generator, as_points, wrong_type

__all__ = ["AmortisedPosterior", "from_sbi"]

# sbi warns beyond these, and slows down: draws per call, and proposals in one batch.
_DRAWS, _PROPOSALS = 2**20, 2**16

# Where posteriors of NPE, of flow matching, of NLE and of NRE have the shape of an observation.
_SHAPES = (
    "posterior_estimator.condition_shape",
    "vector_field_estimator.condition_shape",
    "potential_fn.likelihood_estimator.input_shape",
    "potential_fn.ratio_estimator.condition_shape",
)


def from_sbi(
    posterior: object,
    x: object,
    *,
    n_samples: int = 100,
    n_correction: int = 1000,
    generator: torch.Generator | int | None = None,
) -> Distribution:
    r"""The posteriors :math:`p(\theta \mid x_n)` of N simulated observations, side by side.

    In simulation-based inference the target is :math:`\theta`. Draw N pairs from the prior and the
    simulator, and diagnose the posteriors against the parameters that made the data:
    `diagnose(from_sbi(posterior, x), theta)`.

    A posterior with a density (of NPE, and ensembles of such) is drawn from when it is needed, and
    has its `log_prob` for the HDR pre-rank (see `AmortisedPosterior`). Of any other (of NLE, NRE,
    flow matching) samples are drawn now.

    Args:
        posterior: a posterior of sbi.
        x: N observations `(N, C)`.
        n_samples: draws for each x, for posteriors without a density.
        n_correction: draws for each x, from which the normalisation of a density is estimated.
        generator: a generator or seed of these draws.

    Returns:
        A distribution over :math:`\theta`, `batch_shape (N,)` and `event_shape (D,)`.

    Example:
        >>> import prerank
        >>> from sbi.inference import NPE
        >>> g = torch.Generator().manual_seed(0)
        >>> theta = torch.randn(700, 2, generator=g)
        >>> x = theta + 0.5 * torch.randn(700, 2, generator=g)
        >>> prior = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
        >>> trainer = NPE(prior, density_estimator="mdn", show_progress_bars=False)
        >>> trainer = trainer.append_simulations(theta[:500], x[:500])
        >>> estimator = trainer.train(learning_rate=0.005, stop_after_epochs=5)
        Neural network successfully converged after ... epochs.
        >>> dist = from_sbi(trainer.build_posterior(), x[500:])
        >>> dist.batch_shape, dist.event_shape
        (torch.Size([200]), torch.Size([2]))
        >>> table = prerank.diagnose(dist, theta[500:], generator=0).table
    """
    posteriors = library("sbi.inference.posteriors", "from_sbi")
    base = library("sbi.inference.posteriors.base_posterior", "from_sbi")
    ensembles = library("sbi.inference.posteriors.ensemble_posterior", "from_sbi")
    points = as_points(x, "x").to(torch.float32)  # the dtype of sbi
    _check_shape(posterior, points)
    if isinstance(posterior, ensembles.EnsemblePosterior):
        # sbi chooses the members once for all observations, which would make rows dependent.
        source = as_generator(generator, "sbi")  # one for all: a seed would give them equal noise
        parts = [
            from_sbi(part, points, n_samples=n_samples, n_correction=n_correction, generator=source)
            for part in posterior.posteriors
        ]
        return mixture(parts, weights=posterior.weights)
    if isinstance(posterior, posteriors.DirectPosterior):
        return AmortisedPosterior(posterior, points, n_correction=n_correction)
    if not isinstance(posterior, base.NeuralPosterior):
        raise wrong_type(
            "posterior", posterior, "a posterior of sbi, as build_posterior returns it"
        )
    count = as_count(n_samples, "n_samples", minimum=2)
    # Some samplers search for a mode first, with gradients.
    with forked_state(as_generator(generator, "sbi")), torch.enable_grad():
        return Ensemble(_draw(posterior, count, points).detach())


class AmortisedPosterior(Distribution):
    r"""Posteriors of sbi with a density, one for each observation.

    .. math:: p(\theta \mid x) = \frac{q(\theta \mid x) 1\{\theta \in \Theta\}}
              {Q(\Theta \mid x)},

    where q is the network's density and :math:`\Theta` the support of the prior. What q puts
    outside is rejected, and its share estimated once, from `n_correction` draws for each x. It is
    the same for all :math:`\theta` of a row, so ranks do not depend on it. (Draws become slow where
    nearly all of q lies outside: then the network, or x, is wrong.)

    Args:
        posterior: a `DirectPosterior` of sbi.
        x: observations `(N, C)`.
        n_correction: draws that estimate Q; the log-density has a standard error of
            :math:`\sqrt{(1 - Q) / (Q\, n)}`.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    support = constraints.real_vector
    has_rsample = False

    def __init__(self, posterior: Any, x: Tensor, *, n_correction: int = 1000) -> None:
        self.posterior = posterior
        self.x = x
        self.n_correction = as_count(n_correction, "n_correction", minimum=1)
        event = tuple(posterior.posterior_estimator.input_shape)
        if len(event) != 1:
            raise ShapeError(
                f"posterior is over parameters of shape {event}: only vectors can be diagnosed"
            )
        super().__init__(torch.Size(x.shape[:1]), torch.Size(event), validate_args=False)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        """Draw parameters for every observation: `(*sample_shape, N, D)`."""
        shape = torch.Size(sample_shape)
        with torch.no_grad():
            draws = _draw(self.posterior, shape.numel(), self.x, proposals=_PROPOSALS)
        return draws.reshape(shape + self.batch_shape + self.event_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-density at `(*sample_shape, N, D)`, minus infinity outside the prior."""
        shape = torch.broadcast_shapes(value.shape, self.batch_shape + self.event_shape)
        points = value.to(self.x.dtype).expand(shape).reshape(-1, *shape[-2:])
        density = self.posterior.log_prob_batched(points, self.x, norm_posterior=False)
        return density.reshape(shape[:-1]) - self._log_share

    @cached_property
    def _log_share(self) -> Tensor:
        """Log-probability of the prior's support under the network, `(N,)`."""
        # Not `leakage_correction`, which draws until the worst row has as many inside.
        within = library("sbi.utils.sbiutils", "from_sbi").within_support
        shape, estimator = torch.Size((self.n_correction,)), self.posterior.posterior_estimator
        shares = []
        with kept_state(), torch.no_grad():  # a density leaves no trace in the state
            for block in self.x.split(max(1, _DRAWS // self.n_correction)):
                inside = within(self.posterior.prior, estimator.sample(shape, condition=block))
                shares.append(inside.to(self.x.dtype).mean(0))
        return torch.cat(shares).clamp_min(1 / self.n_correction).log()


def _check_shape(posterior: object, x: Tensor) -> None:
    """Raise where observations have another shape than those that a posterior was trained on."""
    for path in _SHAPES:
        try:
            shape = tuple(attrgetter(path)(posterior))
        except AttributeError:  # another kind of posterior
            continue
        if tuple(x.shape[-len(shape) :]) != shape:
            raise ShapeError(
                f"x has shape {tuple(x.shape)}, but posterior was trained on observations of shape "
                f"{shape}: give x (N, {', '.join(map(str, shape))})"
            )


def _draw(posterior: Any, n: int, x: Tensor, *, proposals: int | None = None) -> Tensor:
    """Draws `(n, N, D)`, by blocks of observations.

    Args:
        posterior: of sbi.
        n: draws for each observation.
        x: observations `(N, C)`.
        proposals: in one batch, for posteriors that reject some of them.
    """
    draws = []
    for block in x.split(max(1, _DRAWS // max(1, n))):
        options: dict[str, Any] = {"show_progress_bars": False}
        if proposals is not None:
            options["max_sampling_batch_size"] = max(1, proposals // len(block))
        try:
            draws.append(posterior.sample_batched((n,), x=block, **options))
        except NotImplementedError:  # not every posterior can take several observations at once
            each = [posterior.sample((n,), x=row, **options) for row in block]
            draws.append(torch.stack(each, 1))
    return torch.cat(draws, 1)
