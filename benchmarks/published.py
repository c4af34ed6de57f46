"""The published training step, written plainly, against ours.

A mixture whose covariances are decomposed and repaired in every forward pass; relaxed samples;
smooth indicators of sharpness 100 on the raw values; loops over margins, over principal components,
over samples for the density and, with fresh samples each time, for the joint CDF; scikit-learn's
PCA on the pooled samples. Where the published step has no known loop there is none here, and the
loading of batches is left out.
"""

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal
from torch.nn import functional

from problems import NONE, STRENGTH, Shape, dataset, labels, trainer, warm_memory
from timing import Plan, Record, Work, release, side_by_side

_SAMPLES = 100
_TAU = 100.0


def measure(plan: Plan) -> list[Record]:
    """Milliseconds per step of both, and how many times faster ours is."""
    found: list[Record] = []
    shape = Shape()
    for name in labels(shape.targets):
        warm_memory(shape, name)
        timings = side_by_side(
            {"published": published_step(shape, name), "ours": trainer(shape, name).step}, plan
        )
        found.append(
            {
                "prerank": name,
                "published ms": timings["published"].ms,
                "our ms": timings["ours"].ms,
                "ratio": timings["published"].over(timings["ours"]),
            }
        )
        release(plan.device)
    return found


def published_step(shape: Shape, label: str) -> Work:
    """A function that makes one step on random rows."""
    torch.manual_seed(0)
    model = Model(shape.inputs, shape.targets, shape.components)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)
    data = dataset(shape, "cpu")
    rows = data.train[0]

    def step() -> None:
        chosen = rows[torch.randint(len(rows), (shape.rows,))]
        x, y = data.x[0, chosen], data.y[0, chosen]
        optimiser.zero_grad()
        dist = model(x)
        loss = -dist.log_prob(y).mean()
        if label != NONE:
            loss = loss + STRENGTH * penalty(dist, y, label)
        loss.backward()
        optimiser.step()

    return step


class Model(nn.Module):
    """Two hidden layers of 100, and a head for logits, means and factors."""

    def __init__(self, inputs: int, targets: int, components: int) -> None:
        super().__init__()
        self.targets, self.components = targets, components
        below = targets * (targets + 1) // 2
        self.sizes = [components, components * targets, components * below]
        self.layers = nn.Sequential(
            nn.Linear(inputs, 100),
            nn.ReLU(),
            nn.Linear(100, 100),
            nn.ReLU(),
            nn.Linear(100, sum(self.sizes)),
        )

    def forward(self, x: Tensor) -> MixtureSameFamily:
        """The mixture at each row."""
        logits, loc, entries = self.layers(x).split(self.sizes, dim=-1)
        shape = (len(x), self.components, self.targets)
        factor = x.new_zeros(*shape, self.targets)
        row, column = torch.tril_indices(self.targets, self.targets)
        factor[..., row, column] = entries.reshape(*shape[:2], -1)
        diagonal = functional.softplus(factor.diagonal(dim1=-2, dim2=-1)) + 1e-3
        factor = factor.tril(-1) + torch.diag_embed(diagonal)
        return MixtureSameFamily(
            Categorical(logits=logits),
            MultivariateNormal(loc.reshape(shape), scale_tril=repaired(factor @ factor.mT)),
        )


def repaired(covariance: Tensor) -> Tensor:
    """Factors after clamping the eigenvalues, ever higher until all of the batch has one."""
    values, vectors = torch.linalg.eigh(covariance)
    least = 1e-6
    while True:
        clamped = (vectors * values.clamp_min(least).unsqueeze(-2)) @ vectors.mT
        factor, failed = torch.linalg.cholesky_ex(clamped)
        if not failed.any() or least >= 1e10:
            return factor
        least *= 10


def relaxed_samples(dist: MixtureSameFamily) -> Tensor:
    """Blends of one draw per component, `(S, B, D)`."""
    points = dist.component_distribution.rsample((_SAMPLES,))
    logits = dist.mixture_distribution.logits.expand(_SAMPLES, -1, -1)
    return (functional.gumbel_softmax(logits, tau=1.0).unsqueeze(-1) * points).sum(-2)


def penalty(dist: MixtureSameFamily, y: Tensor, label: str) -> Tensor:
    """The published regulariser of one pre-rank."""
    samples = relaxed_samples(dist)
    if label == "marginal":
        terms = [deviation(y[:, d], samples[..., d]) for d in range(y.shape[1])]
        return torch.stack(terms).mean()
    if label == "pca":
        return principal_components(y, samples)
    if label == "hdr":
        return deviation(dist.log_prob(y), torch.stack([dist.log_prob(s) for s in samples]))
    if label == "copula":
        return deviation(joint_cdf(dist, y), torch.stack([joint_cdf(dist, s) for s in samples]))
    simple = {"location": lambda p: p.mean(-1), "scale": variance, "dependency": dependency}[label]
    return deviation(simple(y), simple(samples))


def deviation(observed: Tensor, sampled: Tensor) -> Tensor:
    """Smooth PITs of values `(B,)` among `(S, B)`, and their distance from uniform."""
    pits = torch.sigmoid(_TAU * (observed - sampled)).mean(0)
    levels = torch.linspace(0, 1, 100)
    reached = torch.sigmoid(_TAU * (levels.unsqueeze(-1) - pits)).mean(-1)
    return (levels - reached).abs().mean()


def principal_components(y: Tensor, samples: Tensor) -> Tensor:
    """Weighted by their share of the variance of all samples of the batch."""
    from sklearn.decomposition import PCA

    fitted = PCA().fit(samples.detach().reshape(-1, y.shape[1]).numpy())
    directions = torch.as_tensor(fitted.components_, dtype=y.dtype)
    total = y.new_zeros(())
    for direction, share in zip(directions, fitted.explained_variance_ratio_, strict=True):
        total = total + float(share) * deviation(y @ direction, samples @ direction)
    return total


def joint_cdf(dist: MixtureSameFamily, at: Tensor) -> Tensor:
    """From samples of its own."""
    return torch.sigmoid(_TAU * (at - relaxed_samples(dist))).prod(-1).mean(0)


def variance(points: Tensor) -> Tensor:
    """Across targets."""
    return points.var(-1, correction=0)


def dependency(points: Tensor) -> Tensor:
    """Minus the variogram of neighbours over the variance."""
    steps = points[..., 1:] - points[..., :-1]
    return -0.5 * steps.square().mean(-1) / variance(points)
