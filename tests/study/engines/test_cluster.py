"""Tasks on real Ray clusters, whose workers and nodes are killed."""

import os
import re
import signal
import sys
import threading

import pytest

import prerank
from prerank.errors import InputError
from prerank.study.engines import InProcess, Processes, RayCluster, Task, TaskError
from study.engines.jobs import threads, trouble, wait_for, wait_until

pytest.importorskip("ray")
pytestmark = pytest.mark.slow


def tasks(*arguments, **options):
    return [Task(str(argument), argument, **options) for argument in arguments]


@pytest.fixture(scope="module")
def cluster():
    """Two nodes of one core each, of which the second has what it calls a GPU."""
    from ray import cluster_utils

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # for workers: their tests' modules
        patch.delenv("OMP_NUM_THREADS", raising=False)  # it is the engine that keeps them to one
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        found = cluster_utils.Cluster(
            initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
        )
        found.add_node(num_cpus=1, num_gpus=1)
        yield found
        found.shutdown()


def test_tasks_on_a_cluster_are_answered_tried_again_and_given_up(cluster, tmp_path):
    engine = RayCluster(cluster.address, retries=1)
    events = []
    todo = tasks(2, 3, "raises", "refused", "killed", "stubborn", "hungry")
    todo.append(Task("weak", (tmp_path, "weak", 1)))  # its worker is killed once
    report = engine.map(trouble, todo, on_event=events.append)
    assert report.values == {"2": 4, "3": 9, "weak": "weak"}
    found = {failure.task.name: failure for failure in report.failures}
    assert {name: type(failure.error) for name, failure in found.items()} == {
        "raises": RuntimeError,
        "refused": InputError,
        "killed": TaskError,
        "stubborn": TaskError,
        "hungry": MemoryError,
    }
    assert "WorkerCrashedError" in str(found["killed"].error)
    attempts = {name: failure.attempts for name, failure in found.items()}
    assert attempts == dict.fromkeys(attempts, 2) | {"refused": 1}
    retried = sorted(event.task.name for event in events if event.kind == "retried")
    assert retried == ["hungry", "killed", "raises", "stubborn", "weak"]


def test_tasks_of_a_node_that_is_lost_are_done_on_another(cluster, tmp_path):
    weak = cluster.add_node(num_cpus=1)
    signs, lost, events = [tmp_path / name for name in "abc"], tmp_path / "lost", []

    def lose():
        assert wait_until(lambda: all(sign.exists() for sign in signs))  # one on each core
        cluster.remove_node(weak, allow_graceful=False)
        lost.touch()

    thread = threading.Thread(target=lose)
    thread.start()
    todo = [Task(sign.name, (sign, lost)) for sign in signs]
    report = RayCluster(cluster.address).map(wait_for, todo, on_event=events.append)
    thread.join()
    assert report.values == {"a": True, "b": True, "c": True}
    (retried,) = [event for event in events if event.kind == "retried"]
    assert isinstance(retried.error, TaskError)


@pytest.mark.parametrize(("gpus", "seen"), [(0.0, {None, ""}), (1.0, {"0"})])
def test_a_gpu_is_given_to_who_wishes_for_one(cluster, gpus, seen):
    values = RayCluster(cluster.address).map(threads, tasks("a", "b", gpus=gpus)).values
    assert {found[1] for found in values.values()} <= seen
    assert {found[0] for found in values.values()} == {1}


def test_a_wish_for_a_gpu_is_dropped_where_there_is_none(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    engine = RayCluster(workers=1)  # a cluster of its own, on this machine
    ((count, gpu),) = engine.map(threads, tasks("a", gpus=1.0)).values.values()
    assert (count, gpu or "") == (1, "")


def test_variables_reach_the_tasks(cluster):
    engine = RayCluster(cluster.address, environment={"PRERANK_DATA": "/somewhere"})
    assert engine.map(os.getenv, tasks("PRERANK_DATA")).values == {"PRERANK_DATA": "/somewhere"}


def test_a_connection_that_is_there_is_used_and_left(cluster):
    import ray

    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        assert RayCluster().map(abs, tasks(-3)).values == {"-3": 3}
        assert ray.is_initialized()
    finally:
        ray.shutdown()


def test_an_interrupt_waits_until_the_connection_has_ended(cluster, monkeypatch):
    import ray

    shutdown = ray.shutdown

    def interrupted():
        os.kill(os.getpid(), signal.SIGINT)
        shutdown()

    monkeypatch.setattr(ray, "shutdown", interrupted)
    with pytest.raises(KeyboardInterrupt):
        RayCluster(cluster.address).map(abs, tasks(-3))
    assert not ray.is_initialized()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("address", ["127.0.0.1:1", "[::1]:1", "ray://[::1]:1"])
def test_a_cluster_that_there_is_not_is_named(address):
    # The errors of hosts have positive numbers, those of names that nobody knows negative ones.
    with pytest.raises(InputError, match=rf"address.* {re.escape(address)}: .Errno \d+. "):
        RayCluster(address).map(abs, tasks(-3))


def test_the_memory_monitor_ends_a_task_a_bounded_number_of_times(monkeypatch):
    # At this threshold every task is one too many.
    monkeypatch.setenv("RAY_memory_usage_threshold", "0.001")
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "50")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    from study.engines.jobs import linger  # a minute, if nobody ends it

    report = RayCluster(workers=1).map(linger, tasks(os.devnull))
    (failure,) = report.failures
    assert failure.attempts == 3
    assert "OutOfMemoryError" in str(failure.error)


def test_blocks_of_lazy_arrays_are_counted_where_the_workers_are(cluster):
    xr, da = pytest.importorskip("xarray"), pytest.importorskip("dask.array")
    source = da.random.default_rng(0)
    members = source.normal(size=(20, 600, 3), chunks=(-1, 100, -1)).astype("float32")
    samples = xr.DataArray(members, dims=["number", "day", "station"]).persist()
    y = samples[0] * 1.5
    options = {"target": "station", "preranks": "marginal+scale", "generator": 0}
    here = prerank.diagnose(samples, y, engine=InProcess(), **options)
    for engine in (RayCluster(cluster.address), Processes(2)):
        there = prerank.diagnose(samples, y, engine=engine, **options)
        assert there.n == here.n == 600
        assert there.records() == here.records()  # bit for bit, wherever parts are counted
        assert there.verdict().status == "bad"
