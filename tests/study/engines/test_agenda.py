"""Every task begins after what it needs, longest first, and fails a bounded number of times."""

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prerank.errors import InputError
from prerank.study.engines import Agenda, Task, TaskError
from prerank.study.engines.agenda import chain_costs


@st.composite
def task_lists(draw):
    """Tasks that need some of those before them."""
    costs = draw(st.lists(st.floats(0, 100), min_size=1, max_size=12))
    tasks = []
    for number, cost in enumerate(costs):
        needed = draw(st.sets(st.sampled_from(range(number)), max_size=3)) if number else set()
        tasks.append(Task(str(number), cost=cost, after=tuple(map(str, sorted(needed)))))
    return tasks


def simulated(tasks, workers, **options):
    """Begin and end of each task on workers of equal speed."""
    agenda, now, running, times = Agenda(tasks, **options), 0.0, [], {}
    while agenda.open:
        while len(running) < workers and (task := agenda.next()) is not None:
            heapq.heappush(running, (now + task.cost, task.name, task))
            times[task.name] = (now, now + task.cost)
        now, _, task = heapq.heappop(running)
        agenda.finish(task, None)
    return times


@given(task_lists(), st.integers(1, 5), st.booleans())
def test_every_task_is_done_once_and_after_what_it_needs(tasks, workers, longest_first):
    times = simulated(tasks, workers, longest_first=longest_first)
    assert sorted(times) == sorted(task.name for task in tasks)
    for task in tasks:
        assert all(times[name][1] <= times[task.name][0] for name in task.after)


@given(task_lists(), st.integers(1, 5))
def test_the_makespan_is_within_the_bound_of_any_greedy_schedule(tasks, workers):
    # Graham: (2 - 1/W) times the best, which is at least total / W and the longest chain.
    end = max(finish for _, finish in simulated(tasks, workers).values())
    total = sum(task.cost for task in tasks)
    chain = max(chain_costs({task.name: task for task in tasks}).values())
    assert end <= total / workers + (1 - 1 / workers) * chain + 1e-9
    assert end >= max(total / workers, chain) - 1e-9


@given(st.lists(st.floats(0, 100), min_size=1, max_size=20))
def test_independent_tasks_begin_with_the_longest(costs):
    agenda = Agenda([Task(str(n), cost=cost) for n, cost in enumerate(costs)])
    begun = [agenda.next().cost for _ in costs]
    assert begun == sorted(costs, reverse=True)
    assert agenda.next() is None


def test_a_short_task_that_many_long_ones_need_comes_first():
    tasks = [Task("base", cost=1), Task("tuned", cost=5, after=("base",)), Task("other", cost=4)]
    agenda = Agenda(tasks)
    assert [agenda.next().name, agenda.next().name] == ["base", "other"]
    assert agenda.next() is None  # the rest has to wait


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_task_that_always_fails_is_given_up(retries):
    agenda = Agenda([Task("a")], retries=retries)
    kinds = []
    while agenda.open:
        task = agenda.next()
        kinds += [event.kind for event in agenda.fail(task, OSError("full"))]
    assert kinds == ["retried"] * retries + ["failed"]
    (failure,) = agenda.report().failures
    assert failure.attempts == retries + 1


def test_what_is_refused_is_not_tried_again():
    agenda = Agenda([Task("a")], retries=5)
    (event,) = agenda.fail(agenda.next(), InputError("no such dataset"))
    assert (event.kind, event.attempt) == ("failed", 1)


def test_followers_of_a_failed_task_are_given_up_and_others_go_on():
    tasks = [
        Task("base"),
        Task("left", after=("base",)),
        Task("right", after=("base",)),
        Task("both", after=("left", "right")),
        Task("alone"),
    ]
    agenda = Agenda(tasks, retries=0, longest_first=False)
    events = agenda.fail(agenda.next(), OSError("full"))
    assert [event.task.name for event in events] == ["base", "left", "right", "both"]
    assert all(isinstance(event.error, TaskError) for event in events[1:])
    agenda.finish(agenda.next(), 3)
    assert not agenda.open
    report = agenda.report()
    assert report.values == {"alone": 3}
    assert [failure.attempts for failure in report.failures] == [1, 0, 0, 0]


@pytest.mark.parametrize("cost", [float("nan"), float("inf")])
def test_a_cost_that_gives_no_order_is_refused(cost):
    with pytest.raises(InputError, match="cost of the task a"):
        Task("a", cost=cost)


@pytest.mark.parametrize(
    ("tasks", "word"),
    [
        ([Task("a"), Task("a")], "same name"),
        ([Task("a", after=("b",))], "no task b"),
        ([Task("a", after=("b",)), Task("b", after=("a",))], "wait for each other"),
        ([Task("a", after=("a",))], "wait for each other"),
    ],
)
@pytest.mark.parametrize("longest_first", [True, False])
def test_tasks_that_cannot_be_ordered_are_refused(tasks, word, longest_first):
    with pytest.raises(InputError, match=word):
        Agenda(tasks, longest_first=longest_first)
