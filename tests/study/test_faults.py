"""Studies on bad days: processes that are killed, disks that are full, files that are broken."""

import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from prerank.errors import InputError
from prerank.study import Plan, Store, run_study
from prerank.study.engines import Processes
from prerank.study.engines.processes import cores
from study.disturbed import assert_same, command, ended, logged
from study.engines.jobs import marked, wait_until
from study.tiny import contents, rows_of, tiny, write_table

PLAN = tiny(datasets=("triple", "pair"), variants=("none", "marginal", "hdr"))
LONG = tiny(datasets=("cubes", "cubed"), variants=("none", "marginal", "hdr"), max_epochs=12)
QUICK = Plan.preset("quick").changed(
    {"datasets": '["ar1"]', "training.max_epochs": "1", "n_samples": "20", "n_null": "20"}
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A data folder: `triple` and `pair`; `cubes` and `cubed`, which no normal law describes."""
    folder = tmp_path_factory.mktemp("data")
    write_table(folder, "triple", 3)
    write_table(folder, "pair", 2)
    write_table(folder, "cubes", 3, power=3)
    write_table(folder, "cubed", 2, power=3)
    return folder


@pytest.fixture(autouse=True)
def _data(data, monkeypatch):
    monkeypatch.setenv("PRERANK_DATA", str(data))


def finished(data, folder, plan):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRERANK_DATA", str(data))
        assert run_study(plan, folder).left == ()
    return folder


def trained(folder):
    """The folder of a study whose every unit was trained with all strengths, to the last epoch."""
    store = Store(folder)
    penalised = store.results().query("variant != 'none'")
    for _, unit in penalised.groupby(["dataset", "variant"]):
        assert set(unit.strength) == {0.0, *store.plan.strengths}
        assert (unit.query("strength > 0").epochs == store.plan.training.max_epochs).all()
    return folder


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """Folder of an undisturbed study."""
    return finished(data, tmp_path_factory.mktemp("whole"), PLAN)


@pytest.fixture(scope="module")
def long(data, tmp_path_factory):
    """One that lasts long enough to be disturbed: there is something to correct in every unit."""
    return trained(finished(data, tmp_path_factory.mktemp("long"), LONG))


@pytest.fixture(scope="module")
def quick(data, tmp_path_factory):
    """The quick study of one dataset, of one epoch and few draws."""
    return trained(finished(data, tmp_path_factory.mktemp("quick"), QUICK))


# A unit that raises


def test_a_unit_that_raises_is_told_and_the_others_are_done(whole, tmp_path):
    plan = tiny(datasets=("absent", "triple"), variants=PLAN.variants)
    events = []
    with pytest.raises(InputError, match=r"absent\.parquet"):
        run_study(plan, tmp_path, on_event=events.append)
    assert [unit.dataset for unit in Store(tmp_path).left()] == ["absent"] * 3
    assert [(e.kind, e.attempt) for e in events if e.task.argument.dataset == "absent"] == [
        ("started", 1),
        ("failed", 1),
        ("failed", 0),
        ("failed", 0),
    ]
    assert [entry["unit"] for entry in logged(tmp_path)] == [
        f"absent--{variant}" for variant in plan.variants
    ]
    one, two = (Store(path).results().query("dataset == 'triple'") for path in (tmp_path, whole))
    pd.testing.assert_frame_equal(rows_of(one), rows_of(two), check_exact=True)


# Killed


def kill(pid):
    os.kill(pid, signal.SIGKILL)


def starve(pid):
    """Give a process no more memory than it has."""
    used = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[0])
    _, most = resource.prlimit(pid, resource.RLIMIT_AS)
    resource.prlimit(pid, resource.RLIMIT_AS, (used * resource.getpagesize(), most))


@pytest.mark.slow
@pytest.mark.parametrize(("harm", "word"), [(kill, "SIGKILL"), (starve, "memory|alloc")])
def test_a_worker_that_is_harmed_in_a_unit_goes_on_from_its_checkpoint(
    long, tmp_path, monkeypatch, capfd, harm, word
):
    monkeypatch.setenv("PRERANK_MARK", str(tmp_path))
    mark, harmed, epochs, retried = f"PRERANK_MARK={tmp_path}", [], {1: [], 2: []}, []

    def listen(event):
        if event.kind == "retried":
            retried.append(str(event))
        if event.kind != "message" or event.task.name != "cubed--hdr":
            return
        _, training = event.value
        epochs[event.attempt].append(training.epoch)
        if training.epoch >= 5 and not harmed:  # four epochs are in the checkpoint
            ours = [
                p for p, title in marked(mark).items() if "prerank.study.engines.processes" in title
            ]
            harmed.extend(ours)
            harm(*ours)

    outcome = run_study(LONG, tmp_path, checkpoint_every=0.0, engine=Processes(1), on_event=listen)
    assert len(harmed) == 1
    assert outcome.left == ()
    assert len(retried) == 1
    # Code in Rust (safetensors) ends its process where it gets no memory, so that the event names
    # SIGABRT alone; the process itself says why.
    why = retried[0] + capfd.readouterr().err * ("SIGABRT" in retried[0])
    assert re.search(word, why)
    assert [entry["kind"] for entry in logged(tmp_path)] == ["retried"]
    assert epochs[1][0] == 1
    assert all(epoch >= 5 for epoch in epochs[2])  # it was not begun again
    assert max(epochs[1] + epochs[2]) == LONG.training.max_epochs
    assert_same(tmp_path, long)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["SIGKILL", "SIGINT"])
def test_a_driver_that_ends_leaves_a_study_that_goes_on_and_no_process(long, tmp_path, how):
    folder = tmp_path / "study"
    driver = command(LONG, folder, mark=tmp_path)
    mark = f"PRERANK_MARK={tmp_path}"
    assert wait_until(lambda: list(folder.glob("results/*.parquet")) or driver.poll() is not None)
    workers = [t for t in marked(mark).values() if "prerank.study.engines.processes" in t]
    assert bool(workers) == (cores() > 1)  # units were left for more than one
    driver.send_signal(signal.Signals[how])
    driver.communicate(timeout=30)
    assert driver.returncode == (130 if how == "SIGINT" else -signal.SIGKILL)
    assert wait_until(lambda: not marked(mark), 20), marked(mark)
    before = {name: value for name, value in contents(folder).items() if "results/" in name}
    left = Store(folder).left()
    assert left
    outcome = run_study(LONG, folder)
    assert set(outcome.finished) == set(left)
    after = contents(folder)
    done = [name for name in before if not name.startswith("results/.")]
    assert all(after[name] == before[name] for name in done)  # what was done was not done again
    assert_same(folder, long)


# The disk


NO_LARGE_FILES = ["sh", "-c", 'ulimit -f 20; exec "$@"', "sh"]  # 20 blocks of 512 bytes


@pytest.mark.slow
def test_files_that_do_not_fit_fail_their_units_and_room_lets_the_study_go_on(whole, tmp_path):
    folder, options = tmp_path / "study", ("--engine", "processes", "--workers", 1)
    _, errors = ended(command(PLAN, folder, *options, under=NO_LARGE_FILES), code=1)
    assert "File too large" in errors
    assert len(Store(folder).left()) == len(Store(folder).units)
    assert not list(folder.glob("results/*"))  # not even half of a file
    assert max(entry["attempt"] for entry in logged(folder)) == 3
    ended(command(PLAN, folder, *options))
    assert_same(folder, whole)


@pytest.mark.slow
def test_a_full_disk_fails_units_and_room_lets_the_study_go_on(whole, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    small = ["mount", "-t", "tmpfs", "-o", "size=64k", "prerank-test", str(disk)]
    if os.geteuid() or subprocess.run(small, capture_output=True, check=False).returncode:
        pytest.skip("a small disk can be had by root alone")
    try:
        _, errors = ended(command(PLAN, disk / "study", "--workers", 1), code=1)
        assert "No space left" in errors
        left = Store(disk / "study").left()
        assert left
        subprocess.run(["mount", "-o", "remount,size=16m", disk], check=True)
        ended(command(PLAN, disk / "study", "--workers", 1))
        assert_same(disk / "study", whole)
    finally:
        subprocess.run(["umount", disk], check=True)


# Broken files


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0xFF
    path.write_bytes(content)


def test_broken_results_are_found_removed_and_made_again(whole, tmp_path):
    names = ["results/pair--marginal.parquet", "results/triple--hdr.parquet"]
    names += ["results/triple--none.parquet", "base/triple.safetensors"]
    store = Store(tmp_path, PLAN)
    for damage in (cut, flip):
        for name, (_, content) in contents(whole).items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        for name in names:
            damage(tmp_path / name)
        with pytest.raises(InputError, match="|".join(names)):
            store.results()
        found = [str(path.relative_to(tmp_path)) for path in store.remove_broken()]
        assert sorted(found) == sorted(names)
    run_study(PLAN, tmp_path)
    assert_same(tmp_path, whole)
    assert store.remove_broken() == {}


# Several at once


@pytest.mark.slow
def test_two_runners_with_workers_share_a_folder_and_no_row_is_lost_or_doubled(long, tmp_path):
    folder = tmp_path / "study"
    runners = [command(LONG, folder, "--workers", 2) for _ in range(2)]
    codes, counts = [], []
    for runner in runners:
        output, errors = runner.communicate(timeout=240)
        assert runner.returncode in (0, 3), errors  # 3: the other one still works on some
        codes.append(runner.returncode)
        counts.append(int(re.search(r"(\d+) (?:of them|done) by this call", output)[1]))
    assert 0 in codes
    assert sum(counts) == len(Store(folder).units)  # each was done once
    assert Store(folder).left() == []
    assert_same(folder, long)


# Ray


@pytest.fixture(scope="module")
def cluster(data):
    """A cluster of two nodes with one core each, on this machine."""
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        found = cluster_utils.Cluster(
            initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
        )
        found.add_node(num_cpus=1)
        yield found
        found.shutdown()


def ray_options(cluster):
    return "--engine", "ray", "--address", cluster.address


@pytest.mark.slow
def test_a_quick_study_whose_ray_workers_are_killed_loses_nothing(quick, cluster, tmp_path):
    folder, rng = tmp_path / "study", np.random.default_rng(4)
    mark = f"PRERANK_MARK={tmp_path}"
    driver = command(QUICK, folder, *ray_options(cluster), mark=tmp_path)
    killed: list[str] = []
    while len(killed) < 2 and driver.poll() is None:
        time.sleep(rng.uniform(0.1, 0.5))
        # Workers at a unit bear its name. Each may die twice: the third attempt is the last.
        busy = {pid: title for pid, title in marked(mark).items() if "--" in title}
        busy = {pid: t for pid, t in busy.items() if t.startswith("ray::") and killed.count(t) < 2}
        if busy:
            pid = rng.choice(sorted(busy))
            os.kill(pid, signal.SIGKILL)
            killed.append(busy[pid])
    output, errors = ended(driver)
    assert "All 6 units are done, 6 of them by this call" in output
    assert len(killed) == 2
    retried = sorted(entry["unit"] for entry in logged(folder) if entry["kind"] == "retried")
    assert retried == sorted(title.removeprefix("ray::") for title in killed)
    assert errors.count("retried") == len(killed)
    assert_same(folder, quick)


@pytest.mark.slow
def test_a_driver_of_ray_that_is_interrupted_leaves_a_study_that_goes_on(long, cluster, tmp_path):
    mark = f"PRERANK_MARK={tmp_path}"
    folder = tmp_path / "study"
    driver = command(LONG, folder, *ray_options(cluster), mark=tmp_path)
    assert wait_until(lambda: list(folder.glob("results/*.parquet")) or driver.poll() is not None)
    driver.send_signal(signal.SIGINT)
    said = ended(driver, code=130)  # also when a task returns at this moment
    assert said == ("", "Error: interrupted: nothing half done is left\n")
    assert wait_until(lambda: not marked(mark), 60), marked(mark)  # Ray ends a lost driver's work
    assert Store(folder).left()
    ended(command(LONG, folder, *ray_options(cluster), mark=tmp_path))
    assert_same(folder, long)
