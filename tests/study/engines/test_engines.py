"""Engines answer alike, survive their workers, and leave no process behind."""

import os
import signal
import subprocess
import sys

import pytest

from prerank.errors import InputError
from prerank.study.engines import (
    InProcess,
    Processes,
    RayCluster,
    Task,
    TaskError,
    emit,
    open_engine,
    tell,
)
from prerank.study.engines.processes import cores, surroundings
from study.engines.jobs import (
    count_aloud,
    identity,
    marked,
    square,
    trouble,
    wait_until,
)

SEVERAL = Processes(max(2, cores()))
ENGINES = [InProcess(), SEVERAL]


def tasks(*arguments):
    return [Task(str(argument), argument) for argument in arguments]


# All engines


@pytest.mark.parametrize("engine", ENGINES, ids=["here", "several"])
def test_every_task_gets_its_answer_and_its_messages_arrive_in_their_order(engine):
    events = []
    report = engine.map(count_aloud, tasks(1, 2, 3), on_event=events.append)
    assert {name: count for name, (count, _) in report.values.items()} == {"1": 1, "2": 2, "3": 3}
    if engine is SEVERAL:  # workers share the cores
        assert {threads for _, threads in report.values.values()} == {1}
    assert (report.failures, report.left) == ((), ())
    for n in (1, 2, 3):
        own = [(e.kind, e.value) for e in events if e.task.argument == n]
        messages = [("message", number) for number in range(n)]
        assert own == [("started", None), *messages, ("finished", report.values[str(n)])]
    assert {event.attempt for event in events} == {1}
    emit("outside of a task")  # is dropped


@pytest.mark.parametrize("engine", ENGINES, ids=["here", "several"])
def test_nothing_to_do_is_done_at_once(engine):
    report = engine.map(square, [])
    assert (report.values, report.failures, report.left) == ({}, (), ())


@pytest.mark.parametrize("engine", [InProcess(), Processes(1)], ids=["here", "one"])
def test_once_told_to_stop_no_task_is_begun_and_a_worker_is_used_again(engine):
    done = []
    report = engine.map(
        identity,
        tasks(1, 2, 3),
        stop=lambda: len(done) == 2,
        on_event=lambda event: event.kind == "finished" and done.append(event.task.name),
    )
    assert list(report.values) == done == ["1", "2"]
    assert [task.name for task in report.left] == ["3"]
    assert report.failures == ()
    (process,) = set(report.values.values())
    assert (process == os.getpid()) == isinstance(engine, InProcess)


@pytest.mark.parametrize(
    "engine",
    [InProcess(retries=2), pytest.param(Processes(2), marks=pytest.mark.slow)],
    ids=["here", "two"],
)
def test_one_that_raises_is_tried_again_and_given_up_and_the_others_finish(engine):
    events = []
    report = engine.map(trouble, tasks(2, "raises", 3, "refused"), on_event=events.append)
    assert report.values == {"2": 4, "3": 9}
    found = {failure.task.name: failure for failure in report.failures}
    assert found.keys() == {"raises", "refused"}
    assert isinstance(found["raises"].error, RuntimeError)
    assert "never works" in str(found["raises"].error)
    assert found["raises"].attempts == 3
    assert isinstance(found["refused"].error, InputError)
    assert found["refused"].attempts == 1
    told = [str(event) for event in events if event.kind in ("retried", "failed")]
    assert "raises: retried, attempt 2: RuntimeError: this one never works" in told
    assert len(told) == 4


@pytest.mark.parametrize(
    ("engine", "kind"),
    [
        *((InProcess(retries=2), kind) for kind in ("started", "message", "finished", "retried")),
        (Processes(1), "message"),
    ],
    ids=["started", "message", "finished", "retried", "worker"],
)
def test_an_error_of_the_listener_ends_the_run(engine, kind):
    events = []

    def listen(event):
        events.append(event)
        if event.kind == kind:
            raise LookupError("the listener is wrong")

    todo = tasks("raises", 3) if kind == "retried" else tasks(2, 3)
    with pytest.raises(LookupError, match="the listener is wrong"):
        engine.map(trouble if kind == "retried" else count_aloud, todo, on_event=listen)
    assert [event.kind for event in events].count(kind) == 1
    assert {event.task.name for event in events} == {todo[0].name}


@pytest.mark.parametrize(
    "make",
    [
        lambda: open_engine("local", workers=2),
        lambda: open_engine("processes", address="auto"),
        lambda: open_engine(address="auto"),
        lambda: open_engine("threads"),
        lambda: open_engine("processes", workers=0),
        lambda: Processes(2, retries=-1),
    ],
)
def test_engines_that_there_are_not_are_refused(make):
    with pytest.raises(InputError):
        make()


def test_a_cluster_without_workers_is_refused():
    pytest.importorskip("ray")
    with pytest.raises(InputError, match="workers"):
        RayCluster(workers=0)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, InProcess),
        ({"tasks": 0}, InProcess),
        ({"tasks": 1}, InProcess),
        ({"tasks": 2}, Processes),
        ({"tasks": 1, "workers": 2}, Processes),
        ({"tasks": 9, "workers": 1}, InProcess),
        ({"tasks": 9, "name": "local"}, InProcess),
    ],
    ids=str,
)
@pytest.mark.parametrize("available", [1, 3])
def test_several_tasks_are_given_to_worker_processes(monkeypatch, options, kind, available):
    monkeypatch.setattr("prerank.study.engines.cores", lambda: available)
    if available == 1 and "workers" not in options:
        kind = InProcess  # one core has nothing to share
    assert type(open_engine(**options)) is kind


def test_where_there_can_be_no_workers_units_run_here(monkeypatch):
    """As on Windows."""
    monkeypatch.setattr("prerank.study.engines.processes.AVAILABLE", False)
    assert type(open_engine(tasks=9)) is InProcess
    for options in ({"workers": 2}, {"name": "processes"}):
        with pytest.raises(InputError, match="Linux or macOS: take the engine 'local'"):
            open_engine(**options)


def test_without_ray_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    with pytest.raises(InputError, match=r"RayCluster needs ray: pip install 'prerank\[ray\]'"):
        open_engine("ray")


# Processes


DEATHS = {
    "killed": "SIGKILL",
    "leaves": "exit code 7",
    "stubborn": "StubbornError: cannot travel",
    "unsendable": "cannot be sent",
}


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced_and_its_task_is_given_up():
    report = Processes(2, retries=0).map(trouble, tasks(*DEATHS, 5))
    assert report.values == {"5": 25}
    assert {failure.task.name for failure in report.failures} == DEATHS.keys()
    for failure in report.failures:
        assert isinstance(failure.error, TaskError)
        assert DEATHS[failure.task.name] in str(failure.error)


def test_a_task_whose_worker_is_killed_and_then_has_no_memory_is_tried_three_times(tmp_path):
    events = []
    todo = [Task("weak", ("unlucky", tmp_path)), *tasks(4)]
    report = Processes(1).map(trouble, todo, on_event=events.append)
    assert report.values == {"weak": "done", "4": 16}
    assert report.failures == ()
    retried = [event for event in events if event.kind == "retried"]
    assert [(event.task.name, event.attempt) for event in retried] == [("weak", 1), ("weak", 2)]
    killed, starved = (event.error for event in retried)
    assert isinstance(killed, TaskError)
    assert "SIGKILL" in str(killed)
    assert isinstance(starved, MemoryError)


@pytest.mark.slow
def test_a_task_that_never_gets_its_memory_is_given_up_after_three_attempts():
    events = []
    report = Processes(1).map(trouble, tasks("hungry", 4), on_event=events.append)
    assert report.values == {"4": 16}
    (failure,) = report.failures
    assert (failure.task.name, failure.attempts) == ("hungry", 3)
    assert isinstance(failure.error, MemoryError)
    kinds = [event.kind for event in events if event.task.name == "hungry"]
    assert kinds == ["started", "retried", "started", "retried", "started", "failed"]


def test_workers_share_the_cores():
    assert surroundings(0, 1, {})["OMP_NUM_THREADS"] == str(cores())
    asked = surroundings(0, 1, {"OMP_NUM_THREADS": "1"})
    # torch heeds the last of them: two threads on a busy machine wait for each other.
    assert (asked["OMP_NUM_THREADS"], asked["MKL_NUM_THREADS"]) == ("1", "1")
    assert surroundings(0, 10**6, {"OMP_NUM_THREADS": "64"})["OMP_NUM_THREADS"] == "1"


def test_threads_of_workers_sleep_unless_the_environment_decides():
    assert surroundings(0, 1, {})["OMP_WAIT_POLICY"] == "passive"
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
        chosen = surroundings(0, 1, {name: "7"})
        assert (chosen[name], chosen.get("OMP_WAIT_POLICY", "7")) == ("7", "7")


def test_workers_take_turns_on_the_gpus():
    given = {"CUDA_VISIBLE_DEVICES": "3,5"}
    found = [surroundings(n, 3, given)["CUDA_VISIBLE_DEVICES"] for n in range(3)]
    assert found == ["3", "5", "3"]
    assert surroundings(0, 3, {"CUDA_VISIBLE_DEVICES": ""})["CUDA_VISIBLE_DEVICES"] == ""


def test_the_old_name_of_emit_warns_and_sends_all_the_same():
    events = []
    with pytest.warns(DeprecationWarning, match="use emit"):
        InProcess().map(tell, tasks(5), on_event=events.append)
    assert [(e.kind, e.value) for e in events][1] == ("message", 5)


@pytest.mark.parametrize(
    ("function", "argument", "word"),
    [(lambda x: x, 1, "function"), (square, lambda: None, "argument of the task a")],
    ids=["function", "argument"],
)
def test_what_cannot_be_sent_is_named_and_no_process_is_left(function, argument, word, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRERANK_MARK", str(tmp_path))
        with pytest.raises(InputError, match=f"{word} cannot be sent"):
            Processes(1).map(function, [Task("a", argument)])
    assert marked(f"PRERANK_MARK={tmp_path}") == {}


# Ends

DRIVER = """
import sys
from study.engines.jobs import linger
from prerank.study.engines import Task, open_engine

engine = open_engine(sys.argv[1], workers=2)
engine.map(linger, [Task(path, path) for path in sys.argv[2:]])
"""


def workers(processes):
    """All but two processes of Ray that take their time to notice that the rest is gone."""
    agents = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
    return [title for title in processes.values() if not title.startswith(agents)]


@pytest.mark.parametrize("name", ["processes", pytest.param("ray", marks=pytest.mark.slow)])
def test_workers_end_with_a_driver_that_is_killed(tmp_path, name):
    if name == "ray":
        pytest.importorskip("ray")
    mark = f"PRERANK_MARK={tmp_path}"
    paths = [str(tmp_path / sign) for sign in "ab"]
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, name, *paths],
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(sys.path), "PRERANK_MARK": str(tmp_path)}
        | {"OMP_NUM_THREADS": "1"},
        stderr=subprocess.DEVNULL,
    )
    begun = wait_until(lambda: all(map(os.path.exists, paths)) or driver.poll() is not None)
    before = marked(mark)
    driver.send_signal(signal.SIGKILL)
    driver.wait(30)
    assert begun
    assert len(before) >= 3  # the driver and two workers
    assert wait_until(lambda: not workers(marked(mark))), marked(mark)
    assert not any(os.path.exists(f"{path}.end") for path in paths)


def test_values_come_in_the_order_of_the_arguments_or_the_first_error_is_raised():
    assert InProcess().in_order(abs, [-3, 2, -1]) == [3, 2, 1]
    assert InProcess().in_order(abs, []) == []
    with pytest.raises(TypeError, match="bad operand type"):
        InProcess().in_order(abs, [1, None])
