"""Is a forecast still calibrated? Evidence that grows row by row and may be looked at any time."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.calibration.monitoring import InterleavedEvidence
from prerank.defaults import ALARM, N_SAMPLES, SEED
from prerank.diagnosis.judgement import asked_of_batches
from prerank.distributions import Ensemble, affine
from prerank.distributions.affine import divisors_of
from prerank.distributions.ensemble import check_unweighted
from prerank.distributions.noise import RowNoise
from prerank.errors import InputError, ShapeError
from prerank.extras import needed_by
from prerank.files import read_tensors, write_tensors
from prerank.inputs import (
    as_count,
    as_labels,
    as_probability,
    as_ranks,
    as_tensor,
    check_distribution,
    check_observations,
    column_names,
)
from prerank.pits import ProjectedPIT, project_pits
from prerank.pits.ranks import labels_of
from prerank.preranks import PreRankLike
from prerank.report import EvidenceDisplay

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["Monitor"]

_KIND, _FORMAT = "Monitor", "2"
_SETTINGS = ("alpha", "lead", "n_samples", "seed")
_NO_PRINTS = torch.empty(0, 2, dtype=torch.int64)
_MOST_LEAD = 10_000  # streams of which each has its own evidence
_REPEATED = 10  # least number of different observations in a repeated run of rows


class Monitor:
    r"""Watch the calibration of forecasts over time; an alarm is false with probability alpha.

    .. math:: P\big(\sup_t E_t \ge 1/\alpha\big) \le \alpha

    for a calibrated forecast, however long and however often one looks. E is the evidence: the
    capital of bets against uniform PITs (`prerank.calibration.monitoring`).

    Rows come in the order of time. The forecast of a row must have been issued before the row was
    observed, and after the row `lead` rows before. Rows that belong to one time (stations) depend
    on each other: make them targets of one row, or count them in `lead`.

    Args:
        alpha: probability of a false alarm, over all rows there will ever be.
        preranks: which ones; by default all of the paper's that apply to the first batch.
        lead: by how many rows a forecast is ahead of the last row that was known.
        scale: divisors of the targets, `(D,)`, as in `prerank.diagnose`.
        n_samples: draws per row for pre-ranks without a closed form.
        seed: of draws and random ties.

    Example:
        >>> from torch.distributions import MultivariateNormal
        >>> noise = torch.randn(600, 2, generator=torch.Generator().manual_seed(0))
        >>> bias = torch.tensor([0.0, 0.0, 0.5]).repeat_interleave(200).unsqueeze(-1)
        >>> monitor = Monitor(alpha=0.01)
        >>> for y in (noise + bias).split(100):
        ...     monitor.update(MultivariateNormal(torch.zeros(100, 2), torch.eye(2)), y)
        >>> monitor.alarm, 400 < monitor.alarm_row < 600
        (True, True)
    """

    def __init__(
        self,
        *,
        alpha: float = ALARM,
        preranks: PreRankLike | None = None,
        lead: int = 1,
        scale: object = None,
        n_samples: int = N_SAMPLES,
        seed: int = SEED,
    ) -> None:
        self.alpha = as_probability(alpha, "alpha")
        self.lead = as_count(lead, "lead", minimum=1, maximum=_MOST_LEAD)
        self.n_samples = as_count(n_samples, "n_samples", minimum=2)
        self.seed = as_count(seed, "seed", minimum=0)
        self.preranks: PreRankLike = "all" if preranks is None else preranks
        self.scale = None if scale is None else as_tensor(scale, "scale").double().tolist()
        self.labels: tuple[str, ...] = ()
        self.targets: tuple[str, ...] = ()
        self.times: list[str] = []
        self._sizes: list[int] = []
        self._process: InterleavedEvidence | None = None
        self._path = torch.empty(0, 1, dtype=torch.float64)
        self._seen = _NO_PRINTS

    @property
    def rows(self) -> int:
        """Number of rows so far."""
        return len(self._path)

    @property
    def evidence(self) -> float:
        """Evidence against calibration after the last row; 1 before the first.

        With `lead=1` it is an e-value at every stopping time. With a longer lead it is the largest
        e-value of the interleaved streams, divided by their number.
        """
        return float(self._path[-1, 0]) if self.rows else 1.0

    @property
    def alarm_row(self) -> int | None:
        """The row, counted from 0, in which the evidence first reached 1 / alpha."""
        reached = (self._path[:, 0] >= 1 / self.alpha).nonzero()
        return int(reached[0]) if len(reached) else None

    @property
    def alarm(self) -> bool:
        """Whether the evidence has reached 1 / alpha in any row: an alarm stays."""
        return self.alarm_row is not None

    @property
    def by_prerank(self) -> dict[str, float]:
        """Evidence of each pre-rank after the last row; without correction for their number."""
        return dict(zip(self.labels, self._path[-1, 1:].tolist(), strict=True)) if self.rows else {}

    @property
    @needed_by("Monitor.table")
    def table(self) -> "pd.DataFrame":
        """One row per row: `time` (where given), `evidence`, and that of each pre-rank."""
        import pandas as pd

        table = pd.DataFrame(self._path.numpy(), columns=["evidence", *self.labels])
        if self.times:
            table.insert(0, "time", self.times)
        return table

    def update(self, dist: Distribution, y: object, *, time: object = None) -> None:
        """Add rows, in the order of time.

        Rows that were added before are refused: where `time` is given, those that are not later
        than the last one. Otherwise a batch is refused if it begins with earlier rows: the same
        forecasts and observations in the same order, with ten different observations at least, up
        to the end of the batch or of the earlier rows. Fewer rows that are repeated go unnoticed.

        Args:
            dist: `batch_shape (N,)`, `event_shape (D,)`.
            y: observations `(N, D)`; a DataFrame's columns name the targets.
            time: of each row, `(N,)`: numbers or dates, also as text.
        """
        check_unweighted(check_distribution(dist), "monitor")
        observed = check_observations(dist, y)
        if len(dist.batch_shape) != 1:
            raise ShapeError(f"dist must have batch_shape (N,), got {tuple(dist.batch_shape)}")
        targets = tuple(column_names(y, observed.shape[-1]))
        if self.rows and targets != self.targets:
            raise InputError(f"the targets are {targets}, those of earlier rows {self.targets}")
        times = None if time is None else _texts(as_labels(time, "time", len(observed)))
        if self.rows and bool(self.times) != bool(times):
            raise InputError("give time= for all rows or for none")
        results = self._project(dist, observed)  # rounding, if it is too coarse, makes rows equal
        prints = _NO_PRINTS
        if times is None:
            prints = _fingerprints(dist, observed)
            self._refuse_repeated(prints)
        else:
            self._refuse_earlier(times)
        z = torch.cat([result.z.double().cpu() for result in results], -1)
        labels, sizes = tuple(labels_of([r.prerank for r in results])), [_size(r) for r in results]
        if self._process is None:
            self._process = InterleavedEvidence(sizes, lead=self.lead)
            self._path = torch.empty(0, 1 + len(sizes), dtype=torch.float64)
            self.labels, self.targets, self._sizes = labels, targets, sizes
        elif (labels, sizes) != (self.labels, self._sizes):
            raise ShapeError(
                f"these rows have {sizes} components of {labels}, earlier ones {self._sizes} of "
                f"{self.labels}: name pre-ranks that apply to all rows, and pca with a fixed "
                "number of components"
            )
        overall, parts = self._process.update(z)
        self._path = torch.cat([self._path, torch.cat([overall.unsqueeze(-1), parts], -1)])
        self._seen = torch.cat([self._seen, prints])
        self.times += times or []

    def save(self, path: str | PathLike[str]) -> None:
        """Write the state to a file in the safetensors format, in one step.

        Example:
            >>> import tempfile
            >>> from torch.distributions import MultivariateNormal
            >>> monitor = Monitor(preranks="marginal")
            >>> monitor.update(
            ...     MultivariateNormal(torch.zeros(9, 2), torch.eye(2)), torch.rand(9, 2)
            ... )
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     monitor.save(folder + "/state.safetensors")
            ...     again = Monitor.load(folder + "/state.safetensors")
            >>> again.evidence == monitor.evidence, again.rows
            (True, 9)
        """
        if self._process is None:
            raise InputError("there is nothing to save yet: call update(dist, y) first")
        if self.preranks != "all" and not isinstance(self.preranks, str):
            raise InputError("only pre-ranks that are given as text can be saved")
        settings = {
            **{name: getattr(self, name) for name in _SETTINGS},
            "preranks": self.preranks,
            "scale": self.scale,
            "labels": self.labels,
            "targets": self.targets,
            "sizes": self._sizes,
            "times": self.times,
        }
        about = {"kind": _KIND, "format": _FORMAT, "settings": json.dumps(settings)}
        tensors = {"capital": self._process.capital, "path": self._path, "seen": self._seen}
        write_tensors(path, tensors, about)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Monitor":
        """Read a state that `save` wrote."""
        tensors, about = read_tensors(path)
        if (about.get("kind"), about.get("format")) != (_KIND, _FORMAT):
            raise InputError(f"{fspath(path)} is not the state of a monitor of format {_FORMAT}")
        try:
            return cls._restored(json.loads(about["settings"]), tensors)
        except (KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
            raise InputError(f"{fspath(path)} is not a complete state: {error}") from error

    def plot(self, ax: "Axes | None" = None) -> EvidenceDisplay:
        """Draw the evidence over the rows, with that of each pre-rank and the line of the alarm."""
        paths = dict(zip(self.labels, self._path[:, 1:].T.numpy(), strict=True))
        display = EvidenceDisplay(self._path[:, 0].numpy(), 1 / self.alpha, parts=paths)
        return display.plot(ax)

    def __str__(self) -> str:
        """Evidence and alarm, in a sentence or two."""
        words = f"{self.rows:,} rows, evidence {self.evidence:.3g}"
        if self.alarm_row is None:
            return f"No alarm: {words}; an alarm needs {1 / self.alpha:.4g}."
        when = self.times[self.alarm_row] if self.times else f"row {self.alarm_row + 1:,}"
        most = max(self.by_prerank, key=self.by_prerank.__getitem__)
        return f"Alarm since {when}: {words}. Most evidence now in {most}."

    def _project(self, dist: Distribution, observed: Tensor) -> list[ProjectedPIT]:
        """PITs of all pre-ranks, with noise that follows from the number of a row."""
        source = RowNoise(torch.arange(self.rows, self.rows + len(observed)), self.seed)
        divisors, _ = divisors_of(self.scale, dist, observed, None)
        if divisors is not None:
            dist = affine(dist, torch.zeros_like(divisors), 1 / divisors)
            observed = observed * (1 / divisors)
        terms = asked_of_batches(dist, self.preranks)[0]
        return project_pits(dist, observed, terms, n_samples=self.n_samples, generator=source)

    def _refuse_repeated(self, prints: Tensor) -> None:
        """Refuse a batch that begins with earlier rows, up to its end or up to theirs.

        Only runs with many different observations count: constant forecasts of counts, or of dry
        days, repeat by themselves.
        """
        starts = (self._seen[:, 0] == prints[:1, 0]).nonzero().flatten().tolist()
        for start in starts:
            earlier = self._seen[start : start + len(prints)]
            run = prints[: len(earlier)]
            if torch.equal(earlier, run) and len(run[:, 1].unique()) >= _REPEATED:
                raise InputError(
                    f"the first {len(run)} of these {len(prints)} rows have the forecasts and "
                    f"observations of the rows {start + 1} to {start + len(run)}, in this order: "
                    "they seem to have been added before. Leave them out; if they are new, give "
                    "the time of all rows"
                )

    def _refuse_earlier(self, times: Sequence[str]) -> None:
        ranks = as_ranks([*self.times[-1:], *times], "time")
        if (np.diff(ranks[len(self.times[-1:]) :]) < 0).any():
            raise InputError("time must not decrease: sort the rows, and add later ones only")
        if self.times and ranks[1] <= ranks[0]:
            raise InputError(
                f"rows up to time {self.times[-1]} were added before, and these begin with "
                f"{times[0]}: leave out what is not later"
            )
        most = int(np.unique(ranks, return_counts=True)[1].max())
        if most > self.lead:
            raise InputError(
                f"{most} rows have the same time, and lead is {self.lead}: rows of one time depend "
                "on each other. Make them targets of one row, or multiply lead by their number"
            )

    @classmethod
    def _restored(cls, settings: dict[str, Any], tensors: dict[str, Tensor]) -> "Monitor":
        options = {name: settings[name] for name in (*_SETTINGS, "preranks", "scale")}
        monitor = cls(**options)
        monitor.labels, monitor.targets = tuple(settings["labels"]), tuple(settings["targets"])
        monitor.times, monitor._sizes = list(settings["times"]), list(settings["sizes"])
        monitor._path, monitor._seen = tensors["path"].double(), tensors["seen"]
        if monitor._path.shape[1:] != (1 + len(monitor.labels),) or not monitor.rows:
            raise ShapeError(f"its path has shape {tuple(monitor._path.shape)}")
        monitor._process = InterleavedEvidence(monitor._sizes, lead=monitor.lead)
        monitor._process.restore(tensors["capital"], monitor.rows)
        return monitor


def _size(result: ProjectedPIT) -> int:
    return result.z.shape[-1]


def _texts(times: npt.NDArray[np.generic]) -> list[str]:
    """Times as they are kept; differences of times in the words of pandas."""
    if times.dtype.kind == "m":
        import pandas as pd

        return [str(t) for t in pd.to_timedelta(times)]
    return [str(t) for t in times]


def _fingerprints(dist: Distribution, observed: Tensor) -> Tensor:
    """Two numbers of each row, `(N, 2)`: of forecast and observation, and of the observation.

    A forecast is known by its samples, or by its mean, its variance and its density at the
    observation. One without any of these has no fingerprints.
    """
    if isinstance(dist, Ensemble):
        forecast = [dist.samples.movedim(0, 1)]
    else:
        forecast = list(_known_of(dist, observed))
    if not forecast:
        return _NO_PRINTS
    rows, seen = (
        [x.detach().double().cpu().flatten(start_dim=1).numpy() for x in parts]
        for parts in ([*forecast, observed], [observed])
    )
    prints = [_hashes(np.concatenate(parts, -1)) for parts in (rows, seen)]
    return torch.from_numpy(np.stack(prints, -1))


def _known_of(dist: Distribution, observed: Tensor) -> Iterator[Tensor]:
    with suppress(NotImplementedError):
        yield dist.mean
    with suppress(NotImplementedError):
        yield dist.variance
    with suppress(NotImplementedError, ValueError):
        yield dist.log_prob(observed).unsqueeze(-1)


def _hashes(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    digests = b"".join(hashlib.sha256(row.tobytes()).digest()[:8] for row in values)
    return np.frombuffer(digests, dtype=np.int64)
