"""The simulation of the scheduler, and what the page claims of it."""

import numpy as np
import pytest
from scipy.stats import spearmanr

import scheduling
from prerank.study.engines import Task

STILL = scheduling.Conditions(dispatch=0.0, opening=0.0)


def test_the_longest_goes_first():
    true = {"a": 2.0, "b": 2.0, "c": 3.0}
    tasks = [Task(name, cost=seconds) for name, seconds in true.items()]
    found = scheduling.simulate(tasks, true, 2, STILL, 0)
    assert found["makespan"] == 4.0  # c, with a and b on the other worker
    assert found["bound"] == 3.5
    assert scheduling.simulate(tasks, true, 1, STILL, 0)["makespan"] == 7.0


def test_a_chain_is_a_bound():
    true = {"none": 1.0, "hdr": 5.0}
    tasks = [Task("none", cost=1.0), Task("hdr", cost=5.0, after=("none",))]
    found = scheduling.simulate(tasks, true, 100, STILL, 0)
    assert found["makespan"] == found["bound"] == 6.0
    assert found["unit"] == 5.0


def test_deaths_and_stragglers_cost_time():
    true = {str(i): 100.0 for i in range(50)}
    tasks = [Task(name, cost=1.0) for name in true]
    rough = scheduling.Conditions(straggling=0.2, dying=0.1)
    found = scheduling.simulate(tasks, true, 5, rough, 0)
    assert found["makespan"] > 1000  # what 5 workers need under calm conditions, without opening
    assert found["makespan"] >= found["bound"]
    assert 0 < found["lost"] < 0.1
    assert found["given_up"] == 0


# Where the exact study finds no evidence against a predictor it trains nothing, and its search in
# stages may stop after one of them, which no estimate can know.
@pytest.mark.parametrize(("preset", "least"), [("paper-exact", 0.4), ("paper-as-published", 0.9)])
def test_estimates_are_in_the_order_of_the_measured_seconds(preset, least):
    measured = scheduling.Measured.of(preset)
    tasks, true = measured.problem(100, 0)
    found = spearmanr([task.cost for task in tasks], [true[task.name] for task in tasks])
    assert found.statistic > least


@pytest.mark.parametrize("preset", scheduling.STUDIES)
@pytest.mark.parametrize("conditions", [scheduling.CALM, scheduling.ROUGH], ids=["calm", "rough"])
@pytest.mark.parametrize("workers", [8, 32, 256])
def test_makespans_are_near_the_bound(preset, conditions, workers):
    measured = scheduling.Measured.of(preset)
    over = []
    for seed in range(5):
        found = scheduling.simulate(*measured.problem(30, seed), workers, conditions, seed)
        assert found["makespan"] >= found["bound"]
        over.append(found["makespan"] / found["bound"] - 1)
    assert np.mean(over) <= 0.15
