"""What is minimised: a proper score plus a strength times a penalty."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from torch import Tensor
from torch.distributions import Distribution

from prerank.distributions.noise import RunNoise
from prerank.errors import InputError, ShapeError
from prerank.penalty import CalibrationPenalty, LevelCounts
from prerank.scores import energy_score

__all__ = ["Objective", "Penalty"]

_SCORES = ("nll", "energy")


class Penalty(Protocol):
    """A term of the loss."""

    def __call__(self, dist: Distribution, y: Any, *, generator: Any = None) -> Tensor:
        """One value for each run of a stack, `(M,)`."""


class Total(NamedTuple):
    """A sum over rows, `(M,)`, and how many there were."""

    value: Tensor
    rows: int

    def plus(self, other: Any) -> "Total":
        """The sum over the rows of both."""
        return Total(self.value + other.value, self.rows + other.rows)


@dataclass(frozen=True)
class Objective:
    r"""Loss of a batch, one value for each run of a stack.

    .. math:: \frac1N \sum_i S(F(x_i), y_i) + \lambda \, R(F, y).

    Args:
        penalty: R, or None. Besides a `CalibrationPenalty` any function of `(dist, y, generator=)`
            that returns one value for each run; on the validation rows, which are looked at in
            parts, its mean over them is taken.
        score: S, `"nll"` or `"energy"`.
        n_samples: draws per row of the energy score.
    """

    penalty: Penalty | None = None
    score: str = "nll"
    n_samples: int = 100

    def __post_init__(self) -> None:
        """Check the score's name."""
        if self.score not in _SCORES:
            raise InputError(f"score must be one of {_SCORES}, got {self.score!r}")

    def __call__(
        self,
        dist: Distribution,
        y: Tensor,
        strength: Tensor,
        noise: RunNoise,
        shift: Tensor | None = None,
    ) -> tuple[Tensor, "LevelCounts | Total | None"]:
        """Objective of a batch with strengths `(M,)`: `(M,)`, and what the penalty counted."""
        value = self.scores(dist, y, noise).mean(-1)
        counted = self.tally(dist, y, noise)
        if counted is not None:
            value = value + strength * self.penalised(counted, shift)
        return value, counted

    def tally(self, dist: Distribution, y: Tensor, noise: RunNoise) -> "LevelCounts | Total | None":
        """What the penalty has to remember of some rows, so that those of others can be added."""
        if self.penalty is None:
            return None
        if isinstance(self.penalty, CalibrationPenalty):
            return self.penalty.tally(dist, y, generator=noise)
        (runs, rows), value = y.shape[:2], self.penalty(dist, y, generator=noise)
        if value.shape != (runs,):
            raise ShapeError(
                f"the penalty has shape {tuple(value.shape)}, but there are {runs} runs: it must "
                "return one value for each, of its own rows alone"
            )
        return Total(rows * value, rows)

    def penalised(self, tally: "LevelCounts | Total", shift: Tensor | None = None) -> Tensor:
        """The penalty of all rows that were counted, `(M,)`."""
        if isinstance(tally, LevelCounts):
            assert isinstance(self.penalty, CalibrationPenalty)
            return self.penalty.error(tally, shift)
        return tally.value / tally.rows

    def scores(self, dist: Distribution, y: Tensor, noise: RunNoise) -> Tensor:
        """Score of each row, `(M, N)`."""
        if self.score == "nll":
            return -dist.log_prob(y)
        return energy_score(dist, y, n_samples=self.n_samples, generator=noise)
