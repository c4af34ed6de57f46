"""How long a study will take, before it starts."""

import time

import numpy as np
import pytest
import torch

from prerank.study import HEAD, NONE, Plan, Unit, run_study
from prerank.study.timetable import expected_seconds
from study.tiny import tiny

QUICK = Plan.preset("quick")


def units(plan, *variants, datasets=("ar1",)):
    return [Unit(dataset, variant) for dataset in datasets for variant in variants]


def least_seconds(plans, variants, workers=(1, 1)):
    """Two expected times, in turns, with little of what others add who use the machine."""
    pair = [
        (plan, units(plan, *names), number)
        for plan, names, number in zip(plans, variants, workers, strict=True)
    ]
    times = [[expected_seconds(plan, own, workers=n) for plan, own, n in pair] for _ in range(4)]
    return np.min(times, axis=0)


def test_nothing_takes_no_time_and_changes_no_threads():
    assert expected_seconds(QUICK, []) == 0
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        expected_seconds(QUICK, units(QUICK, NONE))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("change", "factor"),
    [
        ({"training.max_epochs": "5"}, 1 / 4),  # of 32 that are expected, 5
        ({"seeds": "[0]"}, 2 / 3),  # a stack of one is not three times as fast
        ({"training.batch_size": "64"}, 0.9),  # four times as many steps, each faster
    ],
)
def test_what_is_multiplied_changes_the_time_in_its_direction(change, factor):
    plan = QUICK.changed({"n_samples": "10"})  # judging takes next to nothing
    before, after = least_seconds((plan, plan.changed(change)), 2 * [(NONE, "hdr")])
    # The rest of the noise is a factor of 2 at most.
    assert after < 2 * factor * before if factor <= 2 / 3 else after > factor * before / 2


def test_dearer_variants_and_protocols_are_expected_to_take_longer():
    plan = QUICK.changed({"protocol": '"published"', "strengths": '"auto"'})
    marginal, copula = least_seconds((plan, plan), (["marginal"], ["copula"]))
    # The steps of a copula take 100 times as long, by `RATIOS`; judging takes the same.
    assert copula > 5 * marginal


def test_a_head_takes_its_runs_and_its_fits():
    plan = tiny(variants=(NONE, HEAD), datasets=("ar1",), seeds=(0, 1), max_epochs=1)
    few, more = least_seconds((plan, plan), ([NONE], [NONE, HEAD]))
    assert more > 2 * few


def test_a_head_alone_takes_its_unpenalised_runs_too():
    plan = tiny(variants=(NONE, HEAD), datasets=("ar1",), max_epochs=100)
    plan = plan.changed({"training.batch_size": "4"})  # the runs take ten times as long as the fit
    alone = plan.changed({"variants": '["head"]'})  # no unit is one of them
    without, needed = least_seconds((plan, alone), ([HEAD], [HEAD]))
    assert needed > 2 * without


def test_units_of_one_dataset_wait_for_its_unpenalised_runs():
    plan = QUICK.changed({"variants": '["none", "hdr"]'})
    one, many = least_seconds((plan, plan), 2 * [(NONE, "hdr")], workers=(1, 8))
    assert many > one / 2  # a chain: eight workers help as little as one


@pytest.mark.slow
def test_the_estimate_is_good_to_a_factor_of_three(tmp_path):
    # Without outliers, nothing is wrong with the unpenalised runs, and no penalty is tried.
    plan = QUICK.changed({"datasets": '["outliers"]', "variants": '["none", "marginal", "hdr"]'})
    own = units(plan, *plan.variants)
    before = expected_seconds(plan, own)
    start = time.perf_counter()
    run_study(plan, tmp_path)
    spent = time.perf_counter() - start
    # Others may use the machine meanwhile: it is measured again, and either may be the one.
    estimates = before, expected_seconds(plan, own)
    assert min(estimates) / 3 < spent < 3 * max(estimates)
