"""Estimated costs put the units of a study in the order of their work."""

import math

import pytest

from prerank.study import NONE, Plan, Store, Unit
from prerank.study.runner import RATIOS, count_rows, study_tasks, unit_cost
from study.tiny import LABELS, tiny

QUICK = Plan.preset("quick")


@pytest.mark.parametrize("protocol", ["exact", "published"])
def test_every_prerank_of_the_paper_has_a_measured_ratio(protocol):
    ratios = {label: by_protocol[protocol] for label, by_protocol in RATIOS.items()}
    assert ratios.keys() == set(LABELS)
    assert min(ratios.values()) > 1
    assert max(ratios, key=ratios.get) == "copula"


@pytest.mark.parametrize("variant", ["none", *LABELS, "marginal+hdr", "pca(0.8)+copula"])
def test_costs_grow_with_everything_that_is_multiplied(variant):
    cost = unit_cost(QUICK, variant, 3000)
    twice = {
        "seeds": "[0, 1, 2, 3, 4, 5]",
        "training.max_epochs": "80",
        "training.batch_size": "128",
    }
    for entry, value in twice.items():
        # 1,920 training rows are 7 batches of 256 and 15 of 128.
        factor = 15 / 7 if "batch" in entry else 2
        assert unit_cost(QUICK.changed({entry: value}), variant, 3000) == pytest.approx(
            factor * cost
        )
    if variant != NONE:
        more = QUICK.changed({"strengths": "[1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0]"})
        assert unit_cost(more, variant, 3000) == pytest.approx(2 * cost)  # with 0, 8 for 4
        assert cost > unit_cost(QUICK, NONE, 3000)


def test_two_terms_cost_more_than_either_and_less_than_both():
    one, two, both = (unit_cost(QUICK, v, 3000) for v in ("marginal", "hdr", "marginal+hdr"))
    assert max(one, two) < both < one + two


@pytest.mark.parametrize("rows", [1, 10, 300])
def test_few_rows_still_cost_a_step(rows):
    assert unit_cost(QUICK, NONE, rows) == len(QUICK.seeds) * QUICK.training.max_epochs


def test_rows_are_counted_without_reading_them(data, monkeypatch):
    monkeypatch.setenv("PRERANK_DATA", str(data))
    assert [count_rows(name) for name in ("ar1", "pair")] == [3000, 300]
    assert count_rows("absent") > 0  # it may lie where the work is done


def test_tasks_are_what_is_left_and_wait_for_unpenalised_runs(tmp_path):
    store = Store(tmp_path, tiny())
    tasks = study_tasks(store, store.left(), gpus=1.0)
    assert [task.argument for task in tasks] == store.units
    assert {task.gpus for task in tasks} == {1.0}
    for task in tasks:
        base = Unit(task.argument.dataset, NONE)
        assert task.after == (() if task.argument == base else (base.stem,))
        assert math.isfinite(task.cost)
    store.skip(store.units[0], "no reason")
    assert [task.after for task in study_tasks(store, store.left())[:2]] == [(), ()]


def test_unpenalised_runs_that_the_plan_does_not_name_are_added(tmp_path):
    store = Store(tmp_path, tiny(datasets=("ar1",), variants=("marginal",)))
    names = [task.name for task in study_tasks(store, store.left())]
    assert names == ["ar1--none", "ar1--marginal"]


def test_published_units_wait_for_nothing(tmp_path):
    store = Store(tmp_path, tiny(protocol="published", strengths="auto"))
    assert {task.after for task in study_tasks(store, store.left())} == {()}
