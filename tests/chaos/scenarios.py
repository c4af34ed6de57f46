"""Scenarios: a study that is disturbed again and again until it is done, and what it must then be.

A new scenario is one line of `SCENARIOS`.
"""

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos import harms
from chaos.clusters import lose_node, on_ray
from chaos.harms import Harm
from chaos.moments import MOMENTS, stopped
from chaos.rounds import Round, Strike
from chaos.studies import Attempt, Ground, differences, no_process_of
from prerank.study import Store

_WEIGHTS = {"start-up": 1, "training": 12, "checkpoint": 4, "judging": 1, "writing": 2}
_AIM = {"start-up": 1.5, "training": 1.0}  # seconds within which a strike falls at random
_PATIENCE = 10.0  # seconds to wait for one moment, before any other is taken
_FAILED, _UNFINISHED = 1, 3  # exit codes of the command
_ATTEMPTS = 3  # of a unit, in one run of the command


@dataclass(frozen=True)
class Wish:
    """A moment to strike at, and the seconds into it."""

    moment: str
    delay: float


def wishes(rng: random.Random, count: int) -> list[Wish]:
    """Moments to strike at: each of the main ones once, then at random, mostly in training."""
    order = rng.sample(["training", "checkpoint", "writing", "start-up"], 4)
    order += rng.choices(MOMENTS, [_WEIGHTS[moment] for moment in MOMENTS], k=count)
    order = order[:count]
    return [Wish(moment, rng.uniform(0, _AIM.get(moment, 0.0))) for moment in order]


@dataclass(frozen=True)
class Scenario:
    """One line of the table.

    Attributes:
        name: in words.
        engine: where units run.
        harm: what is done.
        drivers: number of commands that work on the study at once.
    """

    name: str
    engine: str
    harm: Callable[[Path], Any]
    drivers: int = 1

    def play(self, ground: Ground, seed: str, number: int, strikes: int) -> Round:
        """Disturb a study until it is done, and compare it with the undisturbed one.

        Args:
            ground: where.
            seed: decides moments and delays.
            number: of the round; rounds take turns at the studies.
            strikes: how many there are, as long as the study lasts.
        """
        study = list(ground.plans)[number % len(ground.plans)]
        plan, undisturbed = ground.plans[study], ground.undisturbed(study)
        found, begun = Round(self.name, self.engine, study), time.monotonic()
        rng = random.Random(seed)
        with ground.stage() as stage, self.harm(stage) as harm, no_process_of(stage):
            folder = stage / harms.STUDY
            folder.mkdir(parents=True)
            # One for each command takes the time of three.
            todo = wishes(rng, -(-strikes // 3) if harm.once else strikes)
            finished = False
            while not finished and not found.faults:
                attempts = [
                    Attempt(
                        *(plan, folder, self.engine, *harm.options),
                        environment=harm.environment,
                        lives=found.lives,
                    )
                    for _ in range(self.drivers)
                ]
                codes = _disturb(attempts, harm, todo, found)
                _settle(attempts, codes, harm, found)
                finished = not Store(folder, plan).left()  # the plan may not have been written
            found.faults += differences(folder, undisturbed) + found.lives.lost
            if found.faults:
                shutil.copytree(folder, ground.kept(found.scenario))
        found.seconds = time.monotonic() - begun
        return found


def _disturb(
    attempts: list[Attempt], harm: Harm, todo: list[Wish], found: Round
) -> list[frozenset[int]]:
    """Strike as is wished for; exit codes with which each command may then end."""
    codes = [frozenset({0} if len(attempts) == 1 else {0, _UNFINISHED}) for _ in attempts]
    hits: Counter[str] = Counter()
    while todo and any(attempt.running for attempt in attempts):
        struck = _strike(attempts, todo[0], harm)
        if struck is None:
            break
        number, strike = struck
        todo.pop(0)
        found.strikes.append(strike)
        found.lives.struck(strike.place)
        codes[number] |= harm.codes
        hits[strike.place.unit] += 1
        if harm.once:
            break
    # At start-up it is not known to which unit a worker was going.
    if not harm.once and max(hits.values(), default=0) + hits[""] >= _ATTEMPTS:
        codes = [allowed | {_FAILED} for allowed in codes]
    return codes


def _strike(attempts: list[Attempt], wish: Wish, harm: Harm) -> tuple[int, Strike] | None:
    """Stop a worker at the moment that is wished for, and harm; None if all has ended before."""
    begun = time.monotonic()
    while any(attempt.running for attempt in attempts):
        late = time.monotonic() - begun > _PATIENCE
        for number, attempt in enumerate(attempts):
            pid = _candidate(attempt, "any" if late else wish.moment, harm)
            if pid is None:
                continue
            time.sleep(wish.delay)
            with stopped(pid) as there:
                place = attempt.watch.place(pid)
                hit = late or place.moment == wish.moment
                if there and hit and pid in attempt.watch.workers():
                    return number, Strike(harm.do(attempt, pid), place)
        time.sleep(0.1)
    return None


def _candidate(attempt: Attempt, moment: str, harm: Harm) -> int | None:
    """A worker that the harm reaches and that seems to be at a moment."""
    watch = attempt.watch
    if moment in ("checkpoint", "writing"):
        unit = watch.announced(moment, 0.2)
        here = [watch.holder(unit)] if unit else []
    else:
        here = [p for p in watch.workers() if moment in ("any", watch.place(p).moment)]
    return next((pid for pid in here if pid is not None and harm.reaches(pid)), None)


def _settle(attempts: list[Attempt], codes: list[frozenset[int]], harm: Harm, found: Round) -> None:
    """Wait for the ends of commands, undo the harm, and note what is wrong."""
    for attempt, allowed in zip(attempts, codes, strict=True):
        code, errors = attempt.finish()
        found.commands += 1
        words = harm.words if code == _FAILED else ("",)
        if code not in allowed or "Traceback" in errors or not any(w in errors for w in words):
            found.faults.append(f"exit code {code}: {errors.strip()[-1500:]}")
    harm.undo()
    if left := attempts[0].leftover():
        found.faults.append(f"processes are left: {left}")


SCENARIOS = (
    Scenario("worker killed", "processes", harms.kill),
    Scenario("worker terminated", "processes", harms.end),
    Scenario("driver killed", "processes", harms.kill_driver),
    Scenario("driver terminated", "processes", harms.end_driver),
    Scenario("driver killed", "local", harms.kill_driver),
    Scenario("driver terminated", "local", harms.end_driver),
    Scenario("two drivers, worker killed", "processes", harms.kill, drivers=2),
    Scenario("two drivers, one killed", "local", harms.kill_driver, drivers=2),
    Scenario("disk full", "processes", harms.small_disk),
    Scenario("disk full", "local", harms.small_disk),
    Scenario("folders read-only", "processes", harms.unwritable),
    Scenario("files limited to 2 KB", "local", harms.small_files),
    Scenario("clock set by a day", "processes", harms.jumping_clock),
    Scenario("worker killed", "ray", on_ray(harms.kill)),
    Scenario("node lost", "ray", lose_node),
    Scenario("driver killed", "ray", on_ray(harms.kill_driver)),
    Scenario("driver terminated", "ray", on_ray(harms.end_driver)),
)
