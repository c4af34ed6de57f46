"""What is minimised: a proper score plus a strength times a penalty."""

from dataclasses import dataclass

from torch import Tensor
from torch.distributions import Distribution

from prerank.distributions.noise import RunNoise
from prerank.errors import InputError
from prerank.penalty import CalibrationPenalty
from prerank.scores import energy_score

__all__ = ["Objective"]

_SCORES = ("nll", "energy")


@dataclass(frozen=True)
class Objective:
    r"""Loss of a batch, one value for each run of a stack.

    .. math:: \frac1N \sum_i S(F(x_i), y_i) + \lambda \, R(F, y).

    Args:
        penalty: R, or None.
        score: S, `"nll"` or `"energy"`.
        n_samples: draws per row of the energy score.
    """

    penalty: CalibrationPenalty | None = None
    score: str = "nll"
    n_samples: int = 100

    def __post_init__(self) -> None:
        """Check the score's name."""
        if self.score not in _SCORES:
            raise InputError(f"score must be one of {_SCORES}, got {self.score!r}")

    def __call__(self, dist: Distribution, y: Tensor, strength: Tensor, noise: RunNoise) -> Tensor:
        """Objective of a batch with strengths `(M,)`: `(M,)`."""
        value = self.scores(dist, y, noise).mean(-1)
        if self.penalty is None:
            return value
        return value + strength * self.penalty(dist, y, generator=noise)

    def scores(self, dist: Distribution, y: Tensor, noise: RunNoise) -> Tensor:
        """Score of each row, `(M, N)`."""
        if self.score == "nll":
            return -dist.log_prob(y)
        return energy_score(dist, y, n_samples=self.n_samples, generator=noise)
