"""Predictive distributions to test with, and the pre-ranks to test on."""

from math import inf

import torch
from torch import Tensor
from torch.distributions import (
    Categorical,
    Distribution,
    Independent,
    MixtureSameFamily,
    MultivariateNormal,
    Normal,
    Poisson,
    SoftplusTransform,
    TransformedDistribution,
    constraints,
)

from prerank import GaussianMixture
from prerank.distributions import Atoms, Bounded, Levels, Link, Rounded
from prerank.preranks import (
    CLASSIC,
    PAPER,
    Isotropy,
    MinimumSpanningTree,
    PreRank,
    ReferenceDistance,
    SampleDensity,
    ThresholdExceedance,
    Variogram,
    parse,
)


def skewness(y: Tensor) -> Tensor:
    """A pre-rank given as a bare function."""
    centred = y - y.mean(-1, keepdim=True)
    return (centred**3).mean(-1)


PRERANKS: list[PreRank] = [
    *PAPER,
    *parse("pca(0.8)+pca(1)+dependency(2)"),
    *CLASSIC,
    ThresholdExceedance(0.3),
    Variogram.at_lags([(0, 1), (1, -1)], shape=(2, 2), power=1.0),
    Isotropy((2, 2)),
    MinimumSpanningTree(),
    ReferenceDistance(seed=1),
    SampleDensity(),
    *parse(skewness),
]


def labels(preranks: list[PreRank]) -> list[str]:
    return [prerank.label for prerank in preranks]


class MultivariateT(Distribution):
    """Student t with df degrees of freedom: its copula is the Student copula."""

    arg_constraints = {}  # noqa: RUF012
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc: Tensor, scale_tril: Tensor, df: float) -> None:
        self.base = MultivariateNormal(loc, scale_tril=scale_tril, validate_args=False)
        self.df = df
        super().__init__(self.base.batch_shape, self.base.event_shape, validate_args=False)

    def rsample(self, sample_shape=()):
        normal = self.base.rsample(torch.Size(sample_shape)) - self.base.loc
        shape = normal.shape[:-1]
        gamma = torch.distributions.Gamma(normal.new_tensor(self.df / 2), self.df / 2)
        return self.base.loc + normal / gamma.rsample(shape).sqrt().unsqueeze(-1)

    def sample(self, sample_shape=()):
        with torch.no_grad():
            return self.rsample(sample_shape)

    def log_prob(self, value):
        d, df = self.event_shape[0], torch.as_tensor(self.df, dtype=value.dtype)
        z = torch.linalg.solve_triangular(
            self.base.scale_tril, (value - self.base.loc).unsqueeze(-1), upper=False
        ).squeeze(-1)
        log_det = self.base.scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return (
            torch.lgamma((df + d) / 2)
            - torch.lgamma(df / 2)
            - 0.5 * d * torch.log(df * torch.pi)
            - log_det
            - 0.5 * (df + d) * torch.log1p(z.square().sum(-1) / df)
        )


def random_factor(*shape: int, generator: torch.Generator) -> Tensor:
    """Lower-triangular factors `(..., D, D)` with a positive diagonal, for shape `(..., D)`."""
    dim = shape[-1]
    lower = 0.4 * torch.randn(*shape, dim, generator=generator, dtype=torch.float64).tril(-1)
    diagonal = 0.5 + torch.rand(*shape, generator=generator, dtype=torch.float64)
    return lower + torch.diag_embed(diagonal)


def gaussian_mixture(*batch: int, dim: int = 4, components: int = 3, seed: int = 0):
    g = torch.Generator().manual_seed(seed)
    return GaussianMixture(
        torch.randn(*batch, components, generator=g, dtype=torch.float64),
        torch.randn(*batch, components, dim, generator=g, dtype=torch.float64),
        random_factor(*batch, components, dim, generator=g),
    )


def multivariate_normal(*batch: int, dim: int = 4, seed: int = 0):
    g = torch.Generator().manual_seed(seed)
    loc = torch.randn(*batch, dim, generator=g, dtype=torch.float64)
    return MultivariateNormal(loc, scale_tril=random_factor(*batch, dim, generator=g))


def independent_normal(*batch: int, dim: int = 4, seed: int = 0):
    g = torch.Generator().manual_seed(seed)
    loc = torch.randn(*batch, dim, generator=g, dtype=torch.float64)
    scale = 0.5 + torch.rand(*batch, dim, generator=g, dtype=torch.float64)
    return Independent(Normal(loc, scale), 1)


def student_copula(*batch: int, dim: int = 4, df: float = 4.0, seed: int = 0):
    """Student copula with skewed margins (softplus of a Student t)."""
    g = torch.Generator().manual_seed(seed)
    loc = torch.randn(*batch, dim, generator=g, dtype=torch.float64)
    base = MultivariateT(loc, random_factor(*batch, dim, generator=g), df)
    return TransformedDistribution(base, [SoftplusTransform()], validate_args=False)


def discrete(*batch: int, dim: int = 4, components: int = 2, seed: int = 0):
    """Mixture of products of Poisson laws: dependent counts with many ties."""
    g = torch.Generator().manual_seed(seed)
    logits = torch.randn(*batch, components, generator=g, dtype=torch.float64)
    rate = 0.3 + 2 * torch.rand(*batch, components, dim, generator=g, dtype=torch.float64)
    return MixtureSameFamily(Categorical(logits=logits), Independent(Poisson(rate), 1))


CELLS = (
    Levels.at([0.0, 1.0, 3.0, 5.0], [-0.3, 0.4, 1.5]),
    Atoms.at([0.0], [1.5], least=True, largest=False),
    None,
    Atoms.at([-1.0, 0.5], [0.7, 0.4], least=False, largest=False),
)


def rounded(*batch: int, dim: int = 4, seed: int = 0):
    """Mixture rounded to few values, a target with one atom, a continuous one, two atoms."""
    return Rounded(gaussian_mixture(*batch, dim=dim, seed=seed), [CELLS[d % 4] for d in range(dim)])


LINKS = (Link(-3.0, 4.0), None, Link(-5.0, inf, 0.5), Link(-inf, 6.0, 2.0))
"""One of each kind, for the targets in turn."""


def bounded(*batch: int, dim: int = 4, seed: int = 0) -> Bounded:
    """A Gaussian mixture within bounds."""
    return Bounded(gaussian_mixture(*batch, dim=dim, seed=seed), [LINKS[d % 4] for d in range(dim)])


TRUTHS = {
    "gaussian mixture": gaussian_mixture,
    "student copula": student_copula,
    "discrete": discrete,
    "rounded": rounded,
    "bounded": bounded,
}
