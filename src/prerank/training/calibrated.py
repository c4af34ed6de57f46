"""The path from data to a calibrated model: a base, its calibration, the choice of a strength."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from prerank import defaults
from prerank.errors import InputError
from prerank.models import FlowNetwork, MixtureNetwork, Network
from prerank.penalty import CalibrationPenalty
from prerank.recalibration import CalibrationHead
from prerank.training.data import TrainingData
from prerank.training.evaluation import validation_trials
from prerank.training.fitting import Checkpoint, side_by_side, train
from prerank.training.heads import fit_head
from prerank.training.objective import Objective
from prerank.training.runs import Progress, Run, Settings, TrainingResult
from prerank.training.selection import Selection, search_strength
from prerank.training.stages import search_in_stages
from prerank.training.trials import Trial

__all__ = ["CalibratedTraining", "divergence", "train_calibrated"]

_EVERY = slice(None)
_PATIENT_STEPS = 40  # of a search in stages without improvement
_FIRST_STEPS = 100  # until the first one: the optimiser begins with no memory of the slope


@dataclass(frozen=True)
class CalibratedTraining:
    """What `train_calibrated` made of R paired runs.

    Attributes:
        base: parameters before the calibration, `(R, P)`; None where there was no such step.
        stages: the stacks that were trained, in order: their runs, and their results. A search in
            stages trains some strengths for the first run alone.
        strength: that was given, or chosen; 0 where none qualifies.
        selection: how it was chosen; None where it was given.
        head: the head behind the base, fitted; None where there is none.
    """

    base: Tensor | None
    stages: tuple[tuple[list[Run], TrainingResult], ...]
    strength: float
    selection: Selection | None
    head: CalibrationHead | None = None

    @property
    def trained(self) -> dict[float, TrainingResult]:
        """Results of the R runs, by strength, as far as it has all of them; 0 is the base."""
        parts: dict[float, list[TrainingResult]] = {}
        for runs, result in self.stages:
            strengths = list(dict.fromkeys(run.strength for run in runs))
            size = len(runs) // len(strengths)
            for place, strength in enumerate(strengths):
                part = result.select(slice(place * size, (place + 1) * size))
                parts.setdefault(strength, []).append(part)
        sizes = {strength: sum(len(r.theta) for r in part) for strength, part in parts.items()}
        whole = max(sizes.values())
        return {s: side_by_side(part) for s, part in parts.items() if sizes[s] == whole}


def train_calibrated(
    network: Network,
    data: TrainingData,
    runs: Sequence[Run],
    *,
    penalty: CalibrationPenalty | None = None,
    strength: float | Sequence[float] | str = "auto",
    budget: float = defaults.BUDGET,
    nll_budget: float | None = None,
    head: CalibrationHead | None = None,
    returned: Sequence[int] | None = None,
    unseen: Sequence[Tensor] | None = None,
    groups: object = None,
    time: object = None,
    n_samples: int = defaults.TRAINING_SAMPLES,
    settings: Settings | None = None,
    base: Tensor | None = None,
    checkpoint: Checkpoint | None = None,
    on_epoch: Callable[[Progress], None] | None = None,
) -> CalibratedTraining:
    """Train a base, then calibrate it: by a head behind it, or by a penalty on the network.

    With a head, the runs are trained by likelihood alone and are the members of one predictor; the
    head is fitted to their forecasts of rows that they were not fitted to. With a penalty, the base
    is fine-tuned at each candidate strength, and one is selected. Without `settings.fine_tune`,
    penalised runs start from scratch; a base is trained only for the selection.

    Args:
        network: to train.
        data: with the splits of the runs.
        runs: seeds and splits, the same for all strengths.
        penalty: what to calibrate; strength 0 needs none.
        strength: a number, which is used as it is; or `"auto"` or a list, from which
            `search_strength` chooses on the validation rows; or `"stages"`, for which
            `search_in_stages` does, with less patience, at a fraction of the time.
        budget: by how much the energy score may worsen, where a strength is chosen.
        nll_budget: by how many nats the negative log-likelihood may worsen there; None for any.
        head: to fit behind the base, instead of a penalty.
        returned: places of the runs that the caller keeps, where it keeps only some: what is chosen
            has to change and improve them as well as the mean of all, and a head must not make a
            single one worse (see `prerank.training.heads.fit_head`).
        unseen: rows of each run that it was not fitted to (see `Partition`), for the head; the
            validation rows by default.
        groups: of all rows, for the head.
        time: of all rows, for the head.
        n_samples: draws per row that the choice rests on.
        settings: of the training.
        base: parameters `(R, P)` of the same runs without the penalty, which are then not trained
            again.
        checkpoint: see `train`.
        on_epoch: called after each epoch.

    Example:
        >>> import torch
        >>> from prerank.datasets import OutlierRegression
        >>> from prerank.models import MixtureNetwork
        >>> x, y = OutlierRegression(dim=2).sample(500, generator=0)
        >>> rows = torch.arange(500)
        >>> training = train_calibrated(
        ...     MixtureNetwork(x.shape[1], 2, n_components=1, hidden=(8,)),
        ...     TrainingData.build(x, y, [(rows[100:], rows[:100])]),
        ...     [Run(seed=0)],
        ...     penalty=CalibrationPenalty("marginal+hdr"),
        ...     strength=10.0,
        ...     settings=Settings(max_epochs=2),
        ... )
        >>> list(training.trained), training.trained[10.0].theta.shape == training.base.shape
        ([0.0, 10.0], True)
    """
    settings = settings or Settings()
    _check_treatment(network, penalty, strength, head)
    choosing = isinstance(strength, str | Sequence)
    probe = network(network.initial(runs[0].seed)[None].to(data.x), data.x[:1, :1])
    terms = () if penalty is None else penalty.terms(probe)
    if not terms and (choosing or strength):
        raise InputError("penalty: without one, strength must be 0")
    options: Any = {"settings": settings, "checkpoint": checkpoint, "on_epoch": on_epoch}
    tuned: dict[str, Any] = {
        "checkpoint": checkpoint,
        "settings": _hasty(settings, data) if strength == "stages" else settings,
        "on_epoch": on_epoch and (lambda progress: on_epoch(replace(progress, part="penalty"))),
    }
    stages: list[tuple[list[Run], TrainingResult]] = []
    plain = [replace(run, strength=0.0) for run in runs]
    if base is not None:
        stages.append((plain, TrainingResult.untrained(base)))
    elif settings.fine_tune or choosing or not strength:
        # A penalty that does not apply here is refused now, and not after the base is trained.
        for term in terms:
            term.check(probe)
        result = train(network, data, plain, **options)
        if (terms or head is not None) and not bool(result.objective.isfinite().all()):
            raise divergence(settings)
        stages.append((plain, result))
        base = result.theta

    def calibrate(
        strengths: Sequence[float], part: slice = _EVERY
    ) -> tuple[list[Run], TrainingResult]:
        stack = [replace(run, strength=one) for one in strengths for run in runs[part]]
        start = base if settings.fine_tune else None
        start = None if start is None else start[part].repeat(len(strengths), 1)
        result = train(network, data, stack, objective=Objective(penalty), start=start, **tuned)
        stages.append((stack, result))
        return stages[-1]

    def attempt(strengths: Sequence[float], part: slice = _EVERY) -> list[Trial]:
        stack, result = calibrate(strengths, part) if any(strengths) else stages[0]
        trials = validation_trials(network, data, stack, result.theta, terms, n_samples=n_samples)
        assert base is not None
        before = base[part]
        parts = result.theta.split(len(before))
        return [
            replace(trial, unchanged=(theta == before).all(-1).cpu().numpy())
            for trial, theta in zip(trials, parts, strict=True)
        ]

    if head is not None:
        assert isinstance(network, MixtureNetwork | FlowNetwork)
        assert base is not None
        if on_epoch is not None:
            on_epoch(Progress(0, 1, len(runs), len(runs), 0, part="head"))
        rows = unseen or [data.validation[run.split].cpu() for run in runs]
        fit_head(head, network, data, base, runs, rows, returned=returned, groups=groups, time=time)
        return CalibratedTraining(base, tuple(stages), 0.0, None, head)
    if isinstance(strength, str | Sequence):
        selection = _search(strength)(
            attempt, budget=budget, nll_budget=nll_budget, returned=returned
        )
        return CalibratedTraining(base, tuple(stages), selection.strength or 0.0, selection)
    if strength:
        calibrate([float(strength)])
    return CalibratedTraining(base, tuple(stages), float(strength), None)


def _check_treatment(
    network: Network, penalty: object, strength: object, head: CalibrationHead | None
) -> None:
    """Refuse now what would fail after the base is trained."""
    if head is not None:
        if penalty is not None or strength:
            raise InputError("head: the network is not penalised as well, so strength must be 0")
        if not isinstance(network, MixtureNetwork | FlowNetwork):
            raise InputError("head: give a MixtureNetwork or a FlowNetwork, or fit it afterwards")
    if isinstance(strength, str) and strength not in ("auto", "stages"):
        raise InputError(
            f"strength must be a number, a list of numbers, 'auto' or 'stages', got {strength!r}"
        )


def _search(strength: str | Sequence[float]) -> Callable[..., Selection]:
    """How a strength is chosen from attempts."""
    if strength == "stages":
        return search_in_stages
    return lambda attempt, **limits: search_strength(attempt, strength, **limits)


def _hasty(settings: Settings, data: TrainingData) -> Settings:
    """Settings whose second part, where it has one, waits for some steps only."""
    if not settings.fine_tune:
        return settings
    rows, tuning = data.train.shape[1], settings.tuning
    steps = max(rows // min(settings.batch_size, rows), tuning.min_steps)
    patience, first = (
        min(tuning.patience, max(least, math.ceil(most / steps)))
        for most, least in ((_PATIENT_STEPS, 2), (_FIRST_STEPS, 3))
    )
    return replace(settings, patience=patience, first_patience=first, tuning_patience=1)


def divergence(settings: Settings) -> InputError:
    """The error of a training without a finite objective."""
    return InputError(
        "training gave no finite objective on the validation rows in any epoch: lower lr "
        f"(now {settings.lr:g}) or strength, and look for extreme values in X and y"
    )
