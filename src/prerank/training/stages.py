"""A search for the strength of a penalty that tries on all runs only what can win on the first."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from prerank import defaults
from prerank.training.selection import LADDER, Selection, Skipped, choose_strength
from prerank.training.trials import Budgets, Judgement, Trial

__all__ = ["search_in_stages"]

Attempt = Callable[[Sequence[float], slice], Sequence[Trial]]
"""Trains and evaluates strengths on some of the paired runs."""

_BEGIN = (10.0, 30.0, 100.0)
_ALL, _FIRST, _OTHERS = slice(None), slice(1), slice(1, None)
_TIE = 0.5  # of the noise of a calibrated run's excess: paired runs differ by less than single ones


def search_in_stages(
    attempt: Attempt,
    *,
    budget: float = defaults.BUDGET,
    nll_budget: float | None = None,
    margin: float = 1.0,
    returned: Sequence[int] | None = None,
) -> Selection:
    r"""Choose a strength on the first run, and confirm it on the others.

    1. Strength 0 is tried on all runs: without evidence that something is wrong, no other is.
    2. On the first run 10, 30 and 100 are tried. A strength can win if it lowers the excess and
       stays within the budgets there, by the noise of its rows. With :math:`c^+_\lambda` the excess
       of those that can, 0 at least, and the standard deviation :math:`\mathrm{noise}` of a
       calibrated run's excess, the weakest one leads for which

       .. math:: c^+_\lambda \le \min_\mu c^+_\mu + \tfrac12 \mathrm{noise}.

       If that is the strongest tried, and is itself further than that above 0, the next one up is
       tried; if all exceed the budgets, the next one down.
    3. The strength that leads is tried on the other runs and judged on all of them as
       `choose_strength` does. Where the budgets refuse it, the next weaker one takes its place;
       where it does not improve the runs beyond noise, the next stronger one that can win.

    `Selection.trace` has the strengths that were tried on all runs, and `Selection.skipped` the
    others with their reasons.

    Args:
        attempt: trains and evaluates strengths on runs `[0:1]`, `[1:]` or `[:]`, always paired.
        budget: see `choose_strength`.
        nll_budget: see `choose_strength`.
        margin: see `choose_strength`.
        returned: see `choose_strength`; the first run should be among them.

    Example:
        >>> import numpy as np
        >>> def attempt(strengths, runs):
        ...     return [
        ...         Trial(s, 0.05 / (1 + s) * np.ones(3)[runs], (1 + s / 900) * np.ones(3)[runs])
        ...         for s in strengths
        ...     ]
        >>> selection = search_in_stages(attempt, budget=0.05)
        >>> selection.strength, [skipped.strength for skipped in selection.skipped]
        (30.0, [3.0, 10.0, 100.0, 300.0])
    """
    choose = partial(
        choose_strength, budget=budget, nll_budget=nll_budget, margin=margin, returned=returned
    )
    trials = list(attempt([0.0], _ALL))
    selection = choose(trials)
    if selection.trace[0].excess <= selection.limit:
        return selection
    others = len(trials[0].excess) > 1
    first = _FirstRun(attempt, trials[0].part([0]), Budgets(budget, nll_budget, margin=0.0))
    strength = first.leader()
    while strength is not None:
        rest = attempt([strength], _OTHERS) if others else []
        trials.append(first.trials[strength].joined(rest))
        selection = choose(trials)
        if selection.strength is not None:
            break
        (judgement,) = (row for row in selection.trace if row.strength == strength)
        strength = first.next_to(strength, weaker=not judgement.within_budget)
        if strength in [trial.strength for trial in trials]:
            break
    complete = {row.strength for row in selection.trace}
    if len(complete) == 1:  # none was tried on the other runs
        selection = replace(selection, reason=first.refusal())
    return first.explained(selection, complete)


class _FirstRun:
    """Strengths that were tried on the first run.

    Args:
        attempt: see `search_in_stages`.
        base: the run without a penalty.
        budgets: by which a strength is judged there.
    """

    def __init__(self, attempt: Attempt, base: Trial, budgets: Budgets) -> None:
        self._attempt, self._base, self._budgets = attempt, base, budgets
        self._tie = 0.0 if base.noise is None else _TIE * float(base.noise[0])
        self.trials: dict[float, Trial] = {}
        self._judged: dict[float, Judgement] = {}

    def leader(self) -> float | None:
        """Try strengths until the best one is bracketed; None where none can win."""
        self._look(_BEGIN)
        while (further := self._beyond()) is not None:
            self._look([further])
        return self._leading()

    def next_to(self, strength: float, *, weaker: bool) -> float | None:
        """The neighbour of a strength that can win, or None; a weaker one is tried where needed."""
        if not weaker:
            return min((s for s in self._able() if s > strength), default=None)
        below = _below(strength)
        if below is not None and below not in self.trials:
            self._look([below])
        return below if below in self._able() else None

    def refusal(self) -> str:
        """Why no strength can win."""
        if any(judgement.within_budget for judgement in self._judged.values()):
            return "no strength improves calibration on the first run within the budget"
        return "no strength is within the budget on the first run"

    def explained(self, selection: Selection, complete: set[float]) -> Selection:
        """The selection, with what was skipped, and why."""
        tried = sorted(self.trials)
        reasons = {s: self._reason(s) for s in tried if s not in complete}
        down, up = _below(tried[0]), _above(tried[-1])
        if down is not None and any(self._judged[s].within_budget for s in tried):
            reasons[down] = "not tried: a stronger one stays within the budgets on the first run"
        if up is not None:
            reasons[up] = f"not tried: {self._why_no_stronger()}"
        skipped = tuple(Skipped(s, reasons[s]) for s in sorted(reasons))
        return replace(selection, skipped=skipped)

    def _why_no_stronger(self) -> str:
        if self._leading() is not None:
            return "weaker ones leave nothing beyond noise to gain from it"
        if any(judgement.within_budget for judgement in self._judged.values()):
            return "weaker ones do not improve the first run"
        return "weaker ones cost more than the budgets allow"

    def _look(self, strengths: Sequence[float]) -> None:
        for trial in self._attempt(strengths, _FIRST):
            self.trials[trial.strength] = trial
            self._judged[trial.strength] = self._budgets.judge(trial, self._base)

    def _able(self) -> list[float]:
        return sorted(s for s, judgement in self._judged.items() if judgement.qualifies)

    def _excess(self, strength: float) -> float:
        return max(self._judged[strength].excess, 0.0)

    def _leading(self) -> float | None:
        able = self._able()
        lowest = min(map(self._excess, able), default=0.0)
        return next((s for s in able if self._excess(s) <= lowest + self._tie), None)

    def _beyond(self) -> float | None:
        """The next strength past an edge of those tried, or None where that cannot win."""
        lead = self._leading()
        if lead is None:
            affordable = any(judgement.within_budget for judgement in self._judged.values())
            return None if affordable else _below(min(self.trials))
        if lead == max(self.trials) and self._excess(lead) > self._tie:
            return _above(lead)
        return None

    def _reason(self, strength: float) -> str:
        """Why this strength was not tried on the other runs."""
        judgement, lead = self._judged[strength], self._leading()
        if not judgement.within_budget:
            return "costs more than the budgets allow on the first run"
        if not judgement.improves or lead is None:
            return "does not improve the first run"
        if strength < lead:
            return (
                f"excess {judgement.excess:.4f} on the first run, more than that of strength "
                f"{lead:g} ({self._judged[lead].excess:.4f}) beyond noise"
            )
        return f"no less excess on the first run than strength {lead:g}, beyond noise"


def _below(strength: float) -> float | None:
    return next((step for step in reversed(LADDER) if step < strength), None)


def _above(strength: float) -> float | None:
    return next((step for step in LADDER if step > strength), None)
