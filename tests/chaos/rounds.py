"""What happened in each round, and the tables of it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

from chaos.moments import MOMENTS, Lives, Place

STRIKES = ["round", "scenario", "engine", "study", "harm", "moment", "unit", "part", "steps"]
"""Columns of the table of strikes."""


@dataclass(frozen=True)
class Strike:
    """One harm, and where in its work the worker was."""

    harm: str
    place: Place


@dataclass
class Round:
    """What happened to one study, or model.

    Attributes:
        scenario: its name.
        engine: where units ran.
        study: its name.
        strikes: in their order.
        lives: what became of the units that were struck.
        commands: how many were started until all was done.
        seconds: taken.
        faults: what was lost or is different, in words.
    """

    scenario: str
    engine: str
    study: str
    strikes: list[Strike] = field(default_factory=list)
    lives: Lives = field(default_factory=Lives)
    commands: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """One line for a log."""
        moments = Counter(strike.place.moment for strike in self.strikes)
        counted = ", ".join(f"{moments[name]} {name}" for name in MOMENTS if moments[name])
        resumed = self.lives.resumed.total()
        end = "equal" if not self.faults else f"{len(self.faults)} FAULTS"
        return (
            f"{self.engine}: {self.scenario} ({self.study}): {counted or 'no strike'}; {resumed} "
            f"seen to resume, {self.commands} commands, {self.seconds:.0f} s: {end}"
        )


def strikes_table(rounds: Sequence[Round]) -> pd.DataFrame:
    """One line for each strike."""
    lines = [
        (n, r.scenario, r.engine, r.study, s.harm, s.place.moment, *_unit(s.place))
        for n, r in enumerate(rounds)
        for s in r.strikes
    ]
    return pd.DataFrame(lines, columns=STRIKES)


def _unit(place: Place) -> tuple[str, str, int]:
    return place.unit, place.part, place.steps


def counts_table(rounds: Sequence[Round]) -> pd.DataFrame:
    """One line for each scenario and engine: time, rounds, strikes by moment, what differs."""
    columns = ["rounds", "commands", *MOMENTS, "resumed", "faults"]
    lines = []
    for r in rounds:
        moments = Counter(strike.place.moment for strike in r.strikes)
        counts = [1, r.commands, *(moments[name] for name in MOMENTS)]
        counts += [r.lives.resumed.total(), len(r.faults)]
        lines.append((r.scenario, r.engine, r.seconds / 60, *counts))
    table = pd.DataFrame(lines, columns=["scenario", "engine", "minutes", *columns])
    table = table.groupby(["scenario", "engine"], sort=False).sum().reset_index()
    table.loc[len(table)] = ["all", "", *table[["minutes", *columns]].sum()]
    return table.round({"minutes": 1}).astype(dict.fromkeys(columns, int))
