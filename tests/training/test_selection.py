"""Choosing a strength: a pure function of paired results, and a search around it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prerank.errors import InputError
from prerank.training import Trial, choose_strength, search_strength


def trial(strength, excess, energy):
    return Trial(strength, np.array(excess, dtype=float), np.array(energy, dtype=float))


BASE = trial(0, [0.05, 0.06, 0.07], [1.0, 1.1, 1.2])


def shifted(strength, gain, cost):
    """A trial whose every pair gains and costs the same: no noise."""
    return trial(strength, BASE.excess - gain, BASE.energy * (1 + cost))


# --- the choice ------------------------------------------------------------------------------

CASES = {
    "lowest excess": ([shifted(1, 0.01, 0.0), shifted(3, 0.03, 0.02), shifted(9, 0.02, 0.01)], 3),
    "lowest excess within the budget": (
        [shifted(1, 0.01, 0.0), shifted(3, 0.02, 0.09), shifted(9, 0.04, 0.11)],
        3,
    ),
    "at the budget": ([shifted(1, 0.01, 0.0999999)], 1),
    "just past the budget": ([shifted(1, 0.01, 0.1000001)], None),
    "all past the budget": ([shifted(1, 0.03, 0.2), shifted(3, 0.04, 0.4)], None),
    "no gain": ([shifted(1, 0.0, 0.0), shifted(3, -0.01, 0.0)], None),
    "a better score is welcome": ([shifted(1, 0.01, -0.2)], 1),
    "equal excess: the weakest": ([shifted(3, 0.02, 0.0), shifted(1, 0.02, 0.05)], 1),
    # Both are below the floor: what is less than nothing is no reason for a stronger penalty.
    "below the floor: the weakest": (
        [shifted(30, 0.065, 0.004), shifted(300, 0.07, 0.011)],
        30,
    ),
    # Against 9: 0.01 more with standard error 0.0115; 1 is 0.03 above, with standard error 0.
    "within one standard error: the weakest": (
        [shifted(1, 0.01, 0.0), trial(3, [0.0, 0.03, 0.06], BASE.energy), shifted(9, 0.04, 0.0)],
        3,
    ),
    "given in any order": (
        [shifted(9, 0.02, 0.0), shifted(1, 0.03, 0.0), shifted(3, 0.01, 0.0)],
        1,
    ),
    "base alone": ([], None),
    # gains 0.05, -0.03, 0.01: mean 0.01, standard error 0.0231.
    "a gain within noise": ([trial(1, [0.0, 0.09, 0.06], BASE.energy)], None),
    # gains 0.05, 0.03, 0.01: mean 0.03, standard error 0.0115.
    "a gain beyond noise": ([trial(1, [0.0, 0.03, 0.06], BASE.energy)], 1),
    # ratio 1.0909, standard error 0.045.
    "a cost that noise may carry past": ([trial(1, BASE.excess - 0.03, [1.2, 1.1, 1.3])], None),
    "an excess that is not a number": ([trial(1, [0, 0, math.nan], BASE.energy)], None),
    "a score that is not a number": ([trial(1, BASE.excess - 0.03, [1, 1, math.nan])], None),
    "a score that is not finite": ([trial(1, BASE.excess - 0.03, [1, 1, math.inf])], None),
    "a score of minus infinity": ([trial(1, BASE.excess - 0.03, [1, 1, -math.inf])], None),
    "infinities of both signs": ([trial(1, BASE.excess, [math.inf, 1, -math.inf])], None),
    "an infinite excess": ([trial(1, [0, 0, math.inf], BASE.energy)], None),
    "an excess of minus infinity": ([trial(1, [0, 0, -math.inf], BASE.energy)], None),
    "scores whose sum is not finite": ([trial(1, BASE.excess - 0.03, [1.7e308] * 3)], None),
    "one that failed beside one that did not": (
        [trial(1, [math.nan] * 3, [math.inf] * 3), shifted(3, 0.03, 0.02)],
        3,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_choice(case):
    others, expected = CASES[case]
    for trials in ([BASE, *others], [*others, BASE]):
        selection = choose_strength(trials)
        assert selection.strength == expected
        assert [row.strength for row in selection.trace] == sorted(
            [0, *(t.strength for t in others)]
        )
        assert [row.strength for row in selection.trace if row.chosen] == (
            [0 if expected is None else expected]
        )
        assert selection.budget == 0.10


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ([shifted(1, 0.03, 0.2), shifted(3, 0.04, 0.4)], "is within the budget"),
        ([shifted(1, -0.01, 0.0), shifted(3, 0.04, 0.4)], "no strength improves"),
        ([trial(1, [0, 0, 0], [1, 1, math.inf]), shifted(3, 0.04, 0.4)], "is within the budget"),
        ([trial(1, [0, 0, 0], [1, 1, math.inf])], "no strength gives a finite energy score"),
        ([trial(1, [0, 0, math.nan], BASE.energy)], "no strength improves"),
        ([shifted(3, 0.03, 0.02)], r"strength 3 .*0\.0300 against 0\.0600.*\+2\.0%"),
    ],
)
def test_reason(others, words):
    import re

    assert re.search(words, choose_strength([BASE, *others]).reason)


def test_what_is_returned_has_to_qualify():
    """Three runs choose, the first is returned: it must be changed, better and affordable."""
    weak, strong = shifted(3, 0.01, 0.0), shifted(9, 0.04, 0.0)
    assert choose_strength([BASE, weak, strong], returned=[0]).strength == 9
    same = replace(strong, unchanged=np.array([True, False, False]))
    assert choose_strength([BASE, weak, same]).strength == 9
    assert choose_strength([BASE, weak, same], returned=[0]).strength == 3
    refused = choose_strength([BASE, same], returned=[0])
    assert (refused.strength, refused.trace[0].chosen) == (None, True)
    assert "the network that is returned as it was" in refused.reason
    worse = trial(9, [0.055, 0.0, 0.0], BASE.energy)
    dear = trial(9, BASE.excess - 0.04, BASE.energy * np.array([1.12, 1.0, 1.0]))
    for one in (worse, dear):
        assert choose_strength([BASE, one]).strength == 9
        assert choose_strength([BASE, one], returned=[0]).strength is None
    unlikely = replace(strong, nll=np.array([0.3, 0.0, 0.0]))
    base = replace(BASE, nll=np.zeros(3))
    assert choose_strength([base, unlikely], returned=[1], nll_budget=0.21).strength == 9
    assert choose_strength([base, unlikely], returned=[0], nll_budget=0.21).strength is None


@pytest.mark.parametrize(
    ("noise", "expected"), [(None, 3), ([0.051] * 3, 3), ([0.053] * 3, None), ([0, 0, 0.1], None)]
)
def test_nothing_is_corrected_without_evidence(noise, expected):
    # The mean excess of three runs is 0.06; two standard deviations of it are 2 / sqrt(3) noise.
    base = replace(BASE, noise=None if noise is None else np.array(noise, dtype=float))
    trials = [base, shifted(3, 0.06, 0.0)]
    selection = choose_strength(trials)
    assert selection.strength == expected
    assert (selection.limit > 0.06) == ("no evidence" in selection.reason) == (expected is None)
    calls = []

    def run(strengths):
        calls.append(list(strengths))
        return [t for t in trials if t.strength in strengths]

    assert search_strength(run, [3.0]).strength == expected
    assert calls == ([[0.0]] if expected is None else [[0.0], [3.0]])


@pytest.mark.parametrize("noise", [[0.1], [0.1, math.nan, 0.1], [-0.1, 0.1, 0.1]])
def test_bad_noise(noise):
    with pytest.raises(InputError, match="noise of strength 0"):
        choose_strength([replace(BASE, noise=np.array(noise))])


def test_a_score_below_zero_that_worsens_costs():
    base = replace(BASE, energy=-BASE.energy)
    (_, row) = choose_strength([base, trial(1, BASE.excess - 0.03, 0.95 * base.energy)]).trace
    assert row.energy_ratio == pytest.approx(1.05)
    assert row.within_budget


@pytest.mark.parametrize(("budget", "expected"), [(0.0, 1), (0.05, 3), (0.2, 9), (1.0, 9)])
def test_budget(budget, expected):
    others = [shifted(1, 0.01, -0.01), shifted(3, 0.02, 0.04), shifted(9, 0.03, 0.15)]
    assert choose_strength([BASE, *others], budget=budget).strength == expected


NOISY = trial(1, [0.0, 0.03, 0.06], [1.0, 1.1, 1.5])  # gain 0.03 +- 0.0115, ratio 1.0909 +- 0.074


@pytest.mark.parametrize(
    ("margin", "budget", "expected"),
    [(0.0, 0.10, 1), (1.0, 0.10, None), (1.0, 0.2, 1), (2.0, 0.3, 1), (2.7, 1.0, None)],
)
def test_margin(margin, budget, expected):
    assert choose_strength([BASE, NOISY], budget=budget, margin=margin).strength == expected


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_single_pair_that_is_not_finite(value):
    base = trial(0, [0.05], [1.0])
    for lost in (trial(1, [value], [1.0]), trial(1, [0.0], [value])):
        assert choose_strength([base, lost]).strength is None


def test_what_is_not_finite_shows_in_the_trace():
    (_, row) = choose_strength([BASE, trial(1, BASE.excess - 0.03, [1, 1, math.inf])]).trace
    assert (row.energy, row.energy_ratio) == (math.inf, math.inf)
    assert (row.within_budget, row.improves) == (False, True)
    (_, row) = choose_strength([BASE, trial(1, [0, 0, math.nan], BASE.energy)]).trace
    assert math.isnan(row.excess)
    assert (row.within_budget, row.improves) == (True, False)


def test_single_pair_has_no_noise():
    base, other = trial(0, [0.05], [1.0]), trial(1, [0.04], [1.1])
    selection = choose_strength([base, other], margin=100.0)
    assert selection.strength == 1
    assert {row.gain_se for row in selection.trace} == {0.0}
    assert {row.ratio_se for row in selection.trace} == {0.0}


def test_numbers_of_the_trace():
    rng = np.random.default_rng(0)
    size = 7
    trials = [
        trial(s, rng.uniform(0, 0.1, size), 1 + rng.uniform(0, 0.1, size)) for s in (0, 1.5, 4)
    ]
    selection = choose_strength(trials)
    table = selection.table
    for row, (_, line), one in zip(selection.trace, table.iterrows(), trials, strict=True):
        gains = [b - o for b, o in zip(trials[0].excess, one.excess, strict=True)]
        mean_gain = sum(gains) / size
        spread = sum((g - mean_gain) ** 2 for g in gains) / (size - 1)
        assert row.excess == pytest.approx(sum(one.excess) / size)
        assert row.excess_gain == pytest.approx(mean_gain)
        assert row.gain_se == pytest.approx((spread / size) ** 0.5)
        assert row.energy == pytest.approx(sum(one.energy) / size)
        # Ratio of the means, not mean of the ratios; its standard error by linearisation.
        ratio = sum(one.energy) / sum(trials[0].energy)
        rest = [o - ratio * b for b, o in zip(trials[0].energy, one.energy, strict=True)]
        spread = sum(r**2 for r in rest) / (size - 1)  # they sum to 0
        base_mean = sum(trials[0].energy) / size
        assert row.energy_ratio == pytest.approx(ratio)
        assert row.ratio_se == pytest.approx((spread / size) ** 0.5 / base_mean)
        assert line.to_dict() == {name: getattr(row, name) for name in table.columns}
    assert selection.trace[0].energy_ratio == 1
    assert selection.trace[0].excess_gain == 0


def test_pairing_removes_what_the_runs_share():
    """Splits differ a lot and the strengths in a split little: the paired error is small."""
    shared = np.array([0.0, 0.5, 1.0, 1.5])
    base = trial(0, 0.05 + shared / 10, 1 + shared)
    other = trial(1, 0.04 + shared / 10, (1 + shared) * 1.05)
    (_, row) = choose_strength([base, other]).trace
    assert row.gain_se < 1e-12
    assert row.ratio_se < 1e-12


def test_a_budget_of_likelihood():
    """Paired changes of .1, .2 and .3 nats: mean .2, standard error .0577."""
    base = replace(BASE, nll=np.array([1.0, 2.0, 3.0]))
    dear = replace(shifted(9, 0.03, 0.0), nll=base.nll + np.array([0.1, 0.2, 0.3]))
    cheap = replace(shifted(1, 0.01, 0.0), nll=base.nll - 0.1)
    for budget, expected in ((None, 9), (0.26, 9), (0.25, 1), (0.0, 1)):
        selection = choose_strength([base, cheap, dear], nll_budget=budget)
        assert (selection.strength, selection.nll_budget) == (expected, budget)
    assert [row.nll_change for row in selection.trace] == pytest.approx([0, -0.1, 0.2])
    refused = choose_strength([base, dear], nll_budget=0.0)
    assert "likelihood" in refused.reason
    with pytest.raises(InputError, match="nll_budget"):
        choose_strength([BASE], nll_budget=0.1)
    with pytest.raises(InputError, match="nll_budget must not be negative"):
        choose_strength([base], nll_budget=-0.1)


@pytest.mark.parametrize(
    ("rows", "spread", "expected"),
    [
        # Costs of 6 % in every row.
        (20, 0.0, 1.0),
        # 6 % in the mean, with a standard deviation of .3 in each row: two standard errors of
        # 3 x 20 rows are 7.7 %, of 3 x 2,000 rows .8 %.
        (20, 0.3, None),
        (2000, 0.3, 1.0),
    ],
)
def test_a_cost_is_judged_with_the_noise_of_its_rows(rows, spread, expected):
    """The three runs agree: only their rows say that the mean is a matter of chance."""
    shape = (3, rows)
    noise = spread * np.where(np.arange(rows) % 2, 1.0, -1.0)
    own = np.linspace(0.5, 1.5, rows)  # what the paired rows share cancels
    base = trial(0, [0.05, 0.06, 0.07], np.broadcast_to(own, shape))
    dear = trial(1, [0.01, 0.02, 0.03], base.energy * 1.06 + noise)
    selection = choose_strength([base, dear])
    assert selection.strength == expected
    assert selection.trace[1].energy_ratio == pytest.approx(1.06)
    error = spread / (3 * (rows - 1)) ** 0.5
    assert selection.trace[1].ratio_se == pytest.approx(error, abs=1e-9)


def test_one_wild_row_hides_no_cost():
    """All rows cost 15 % but one, which is a thousand times as large as they are."""
    energy = np.ones((3, 20))
    energy[0, 0] = 1000.0
    base = trial(0, [0.05, 0.06, 0.07], energy)
    dear = trial(1, [0.01, 0.02, 0.03], np.where(energy > 1, energy, 1.15 * energy))
    selection = choose_strength([base, dear])
    assert selection.strength is None
    assert selection.trace[1].energy_ratio == pytest.approx((59 * 1.15 + 10) / 69)
    assert choose_strength([base, replace(dear, energy=1.02 * energy)]).strength == 1
    # The wild row itself counts by its ratio.
    worse = energy * np.where(energy > 1, 2.0, 1.0)
    assert choose_strength([base, replace(dear, energy=worse)]).strength is None


@pytest.mark.parametrize("lost", [0.6, 6.0])
def test_a_few_rows_that_lose_likelihood_count(lost):
    """Heavy tails: a tenth of the rows loses, the others gain, and the mean change is 0."""
    rows = np.where(np.arange(20) % 10 == 0, lost, -lost / 9)
    base = replace(BASE, energy=np.ones((3, 20)), nll=np.zeros((3, 20)))
    changed = replace(base, strength=1.0, excess=BASE.excess - 0.03, nll=np.tile(rows, (3, 1)))
    selection = choose_strength([base, changed], nll_budget=0.25)
    assert selection.trace[1].nll_change == pytest.approx(0, abs=1e-9)
    # Two standard errors of 60 rows are .05 and .53 nats.
    assert selection.strength == (1.0 if lost < 1 else None)


def test_what_is_returned_is_judged_on_its_own_rows():
    """6 % with two standard errors of 2.7 % in 3 x 160 rows, of 4.7 % in the 160 of one run."""
    rows = 0.06 + 0.3 * np.where(np.arange(160) % 2, 1.0, -1.0)
    base = replace(BASE, energy=np.ones((3, 160)))
    dear = replace(base, strength=1.0, excess=BASE.excess - 0.03, energy=1 + np.tile(rows, (3, 1)))
    assert choose_strength([base, dear]).strength == 1
    assert choose_strength([base, dear], returned=[0]).strength is None


def test_table_columns():
    assert list(choose_strength([BASE]).table.columns) == [
        *("strength", "excess", "excess_gain", "gain_se", "energy", "energy_ratio", "ratio_se"),
        *("within_budget", "improves", "chosen", "nll_change"),
    ]


@pytest.mark.parametrize(
    ("trials", "match"),
    [
        ([], "strength 0"),
        ([shifted(1, 0.01, 0.0)], "strength 0"),
        ([BASE, BASE], "twice"),
        ([BASE, shifted(1, 0.0, 0.0), shifted(1, 0.1, 0.0)], "twice"),
        ([BASE, trial(1, [0.1, 0.2], [1.0, 1.0])], "paired"),
        ([BASE, trial(1, [0.1, 0.2, 0.3], [1.0, 1.0])], "paired"),
        ([trial(0, [[0.1]], [[1.0]])], "paired"),
        ([trial(0, [0.1, math.nan], [1.0, 1.0])], "strength 0 has an excess .* not finite"),
        ([trial(0, [0.1, 0.1], [1.0, math.inf])], "strength 0 .* not finite.*targets"),
        ([trial(0, [0.1], [-math.inf]), trial(1, [0.1], [1.0])], "not finite"),
    ],
)
def test_trials_are_checked(trials, match):
    with pytest.raises(InputError, match=match):
        choose_strength(trials)


@pytest.mark.parametrize(
    "options",
    [{"budget": -0.1}, {"margin": -1.0}, {"budget": math.nan}, {"margin": math.nan}],
    ids=str,
)
def test_limits_are_checked(options):
    with pytest.raises(InputError, match="budget and margin"):
        choose_strength([BASE], **options)


EXCESS = st.floats(-0.05, 0.5)
ENERGY = st.floats(0.1, 10.0)


@st.composite
def paired_trials(draw):
    size = draw(st.integers(1, 4))
    strengths = draw(st.lists(st.floats(0.01, 1000), min_size=0, max_size=5, unique=True))
    vectors = st.tuples(*[st.lists(v, min_size=size, max_size=size) for v in (EXCESS, ENERGY)])
    return [trial(strength, *draw(vectors)) for strength in (0.0, *strengths)]


@given(paired_trials(), st.floats(0, 0.5), st.floats(0, 3))
def test_the_chosen_one_qualifies_and_no_better_one_does(trials, budget, margin):
    selection = choose_strength(trials, budget=budget, margin=margin)

    def error(values):
        size = len(values)
        return float(np.std(values, ddof=1)) / size**0.5 if size > 1 else 0.0

    base = trials[0]
    qualifying = {}
    for one in trials[1:]:
        ratio = one.energy.mean() / base.energy.mean()
        cost = ratio + margin * error(one.energy - ratio * base.energy) / base.energy.mean()
        gain = base.excess.mean() - max(one.excess.mean(), 0)
        if cost <= 1 + budget and gain > margin * error(base.excess - one.excess):
            qualifying[one.strength] = one.excess
    if not qualifying:
        assert selection.strength is None
        return
    clamped = {strength: max(values.mean(), 0) for strength, values in sorted(qualifying.items())}
    lowest = min(clamped, key=clamped.get)
    near = {
        strength
        for strength, value in clamped.items()
        if value <= clamped[lowest] + error(qualifying[strength] - qualifying[lowest])
    }
    assert selection.strength == min(near)


@pytest.mark.parametrize(("cost", "expected"), [(0.0005, 1), (0.0015, None)])
def test_a_score_below_zero_has_a_budget_too(cost, expected):
    base = trial(0, [0.05, 0.06], [-0.01, -0.01])
    other = trial(1, [0.01, 0.02], [-0.01 + cost, -0.01 + cost])
    assert choose_strength([base, other], budget=0.1).strength == expected


def test_an_excess_below_zero_is_no_gain():
    # Less than a perfect predictor has on average: luck, or fitted to these rows.
    base = trial(0.0, [0.0005, -0.0005, 0.0003], [1.0, 1.0, 1.0])
    lucky = trial(10.0, [-0.003, -0.006, -0.0042], [1.0, 1.0, 1.0])
    assert choose_strength([base, lucky]).strength is None
    wrong = trial(0.0, [0.0105, 0.0095, 0.0103], [1.0, 1.0, 1.0])
    assert choose_strength([wrong, lucky]).strength == 10.0


# --- the search ------------------------------------------------------------------------------


class Runs:
    """A fake `run`, with an excess and a cost that are functions of the strength."""

    def __init__(self, excess, cost):
        self.calls = []
        self._excess, self._cost = excess, cost

    def __call__(self, strengths):
        self.calls.append(list(strengths))
        return [
            trial(s, BASE.excess * self._excess(s), BASE.energy * (1 + self._cost(s)))
            for s in strengths
        ]

    @property
    def tried(self):
        return [s for call in self.calls for s in call]


def valley(best):
    """Lowest at `best`, on a logarithmic scale; 1 at strength 0."""
    return lambda s: 1.0 if s == 0 else min(1.0, 0.1 + 0.2 * abs(math.log(s / best)))


AUTO = [0.0, 3.0, 10.0, 30.0, 100.0, 300.0]


def free(strength):
    return 0.0


@pytest.mark.parametrize("best", [3.0, 30.0, 100.0])
def test_a_best_one_inside_the_grid_ends_the_search(best):
    runs = Runs(valley(best), free)
    assert search_strength(runs).strength == best
    assert runs.calls == [AUTO[:1], AUTO[1:]]


@pytest.mark.parametrize("best", [400.0, 600.0, 1000.0])
def test_extends_upwards_until_bracketed(best):
    runs = Runs(valley(best), free)
    selection = search_strength(runs)
    none, first, *later = runs.calls
    assert none + first == AUTO
    assert all(len(call) == 1 for call in later)
    beyond = [call[0] for call in later]
    assert beyond == sorted(beyond)
    # The last one is worse than the one before: the best is bracketed.
    assert selection.strength == ([300.0, *beyond])[-2]
    assert best / 2 < selection.strength < best * 2
    steps = np.diff(np.log10([300.0, *beyond]))
    assert ((steps > 0.4) & (steps < 0.6)).all()  # about half a decade each
    assert [row.strength for row in selection.trace] == [*AUTO, *beyond]


def test_does_not_extend_past_the_largest():
    runs = Runs(lambda s: 1 / (1 + s), free)
    selection = search_strength(runs)
    assert 1000 <= max(runs.tried) <= 3000
    assert selection.strength == max(runs.tried)
    assert len(runs.tried) == len(set(runs.tried)) < 12


def test_stops_upwards_where_the_budget_ends():
    runs = Runs(lambda s: 1 / (1 + s), lambda s: 0.0002 * s)
    selection = search_strength(runs)
    assert selection.strength == 300.0
    assert len(runs.calls) == 3
    assert runs.calls[2][0] > 500


def test_extends_downwards_while_none_is_affordable():
    runs = Runs(lambda s: 1 / (1 + s), lambda s: 0.0 if s == 0 else 0.05 + 0.3 * s)
    selection = search_strength(runs)
    below = [call[0] for call in runs.calls[2:]]
    assert below == sorted(below, reverse=True)
    assert selection.strength == below[-1]
    assert 0.05 <= below[-1] <= 1 / 6  # the largest affordable one is 1/6
    assert [row.strength for row in selection.trace] == [0.0, *below[::-1], *AUTO[1:]]


def test_does_not_extend_past_the_smallest():
    runs = Runs(lambda s: 1 / (1 + s), lambda s: 0.0 if s == 0 else 1.0)
    selection = search_strength(runs)
    assert selection.strength is None
    assert "is within the budget" in selection.reason
    assert 0.03 <= min(s for s in runs.tried if s > 0) <= 0.1
    assert len(runs.tried) < 12


def test_does_not_look_further_where_nothing_helps():
    runs = Runs(lambda s: 1.0, free)
    selection = search_strength(runs)
    assert selection.strength is None
    assert runs.calls == [AUTO[:1], AUTO[1:]]


@pytest.mark.parametrize("grid", [[5.0], [5, 1], (0.0, 1.0, 5.0), np.array([1.0, 5.0]), [1, 1, 5]])
def test_a_given_grid_is_not_extended(grid):
    runs = Runs(lambda s: 1 / (1 + s), free)
    selection = search_strength(runs, grid)
    assert runs.calls == [[0.0], sorted({*map(float, grid)} - {0.0})]
    assert selection.strength == 5.0


def test_budget_and_margin_are_passed_on():
    def run(strengths):
        found = {0.0: BASE, 1.0: NOISY}
        return [found[s] for s in strengths]

    assert search_strength(run, [1.0]).strength is None
    found = search_strength(run, [1.0], budget=0.2)
    assert found.strength == 1.0
    assert found.budget == 0.2
    assert search_strength(run, [1.0], margin=0.0).strength == 1.0


def test_an_unknown_word_is_refused_before_anything_runs():
    runs = Runs(free, free)
    with pytest.raises(InputError, match="automatic"):
        search_strength(runs, "automatic")
    assert runs.calls == []
