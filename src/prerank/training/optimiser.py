"""Adam on a matrix with one parameter vector per run."""

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Adam"]

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8


@dataclass
class Adam:
    r"""Adam (Kingma and Ba, 2015), each run on its own, with a bound on each run's gradient.

    .. math:: g \leftarrow g \min\{1, b / |g|\}, \quad m \leftarrow \beta_1 m + (1 - \beta_1) g,
              \quad v \leftarrow \beta_2 v + (1 - \beta_2) g^2, \quad
              \theta \leftarrow \theta - \eta \frac{\hat m}{\sqrt{\hat v} + \epsilon}.

    A run whose gradient is not finite keeps its parameters for this step.

    Attributes:
        theta: `(M, P)`.
        first: m, `(M, P)`.
        second: v, `(M, P)`.
        steps: updates so far, `(M, 1)`.
    """

    theta: Tensor
    first: Tensor
    second: Tensor
    steps: Tensor

    @classmethod
    def start(cls, theta: Tensor) -> "Adam":
        """Begin with zero moments."""
        return cls(
            theta,
            torch.zeros_like(theta),
            torch.zeros_like(theta),
            torch.zeros_like(theta[:, :1]),
        )

    def update(self, gradient: Tensor, *, lr: float, bound: float) -> None:
        """Make one step, in place."""
        norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
        usable = torch.isfinite(norm)
        gradient = torch.where(usable, gradient, 0) * (bound / norm).clamp_max(1).nan_to_num()
        self.steps += usable
        moves = usable.to(gradient.dtype)
        self.first.lerp_(gradient, (1 - _BETA1) * moves)
        self.second.lerp_(gradient.square(), (1 - _BETA2) * moves)
        # In float64: in float32, 1 - beta2^t loses digits in the first steps.
        count = self.steps.double().clamp_min(1)
        rate = (lr * (1 - _BETA2**count).sqrt() / (1 - _BETA1**count)).to(gradient.dtype) * moves
        slack = (_EPSILON * (1 - _BETA2**count).sqrt()).to(gradient.dtype)
        self.theta -= rate * self.first / self.second.sqrt().add_(slack)

    def select(self, rows: Tensor) -> "Adam":
        """Keep some of the runs."""
        return Adam(self.theta[rows], self.first[rows], self.second[rows], self.steps[rows])
