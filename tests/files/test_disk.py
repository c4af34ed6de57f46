"""Files are whole or absent, bad places are refused, and locks are held by one."""

import fcntl
import os
import resource
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from cli.commands import contents
from prerank.errors import InputError
from prerank.files import (
    FileLock,
    check_file,
    disk,
    read_json,
    write_atomically,
    write_json,
    write_tensors,
    writing,
)


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """An empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_folders_made_on_the_way_are_taken_back(place):
    def make():
        Path("a/b").mkdir(parents=True)
        raise OSError(28, "No space left on device")

    with (
        pytest.raises(InputError, match=r"cannot write a/b/c\.csv: No space left"),
        writing(Path("a/b/c.csv")),
    ):
        make()
    assert contents(place) == {}


def test_folders_that_were_there_stay(place):
    def make():
        Path("a/b").mkdir()
        raise KeyboardInterrupt

    Path("a").mkdir()
    with pytest.raises(KeyboardInterrupt), writing(Path("a/b/c.csv")):
        make()
    assert list(contents(place)) == ["a"]


def test_files(place):
    Path("there.csv").write_text("old")
    check_file(Path("there.csv"), Path("other.csv"))
    check_file(Path("deep/new.csv"), Path("there.csv"))
    assert list(contents(place)) == ["there.csv"]
    for out, words in {
        "there.csv": "is read by this command",
        "/dev/null": "is not a file: it is not replaced",
        "there.csv/new.csv": "Not a directory",
    }.items():
        with pytest.raises(InputError, match=words):
            check_file(Path(out), Path("there.csv"))


def names(folder):
    return sorted(os.listdir(folder))


# --- atomic ----------------------------------------------------------------------------------


class BrokenError(Exception):
    pass


@pytest.mark.parametrize("error", [BrokenError, KeyboardInterrupt, OSError])
@pytest.mark.parametrize("old", [None, "old content"])
def test_a_failing_write_leaves_what_was_there(tmp_path, error, old):
    target = tmp_path / "file.txt"
    if old is not None:
        target.write_text(old)

    def half(path):
        path.write_text("half of the new")
        assert path.parent == tmp_path  # the same file system: a rename is one step
        raise error

    with pytest.raises(error):
        write_atomically(target, half)
    assert names(tmp_path) == ([] if old is None else ["file.txt"])
    if old is not None:
        assert target.read_text() == old


def test_the_old_file_is_there_until_the_end(tmp_path):
    target = tmp_path / "file.txt"
    target.write_text("old")

    def write(path):
        path.write_text("new")
        assert target.read_text() == "old"

    assert write_atomically(target, write) == target
    assert target.read_text() == "new"
    assert names(tmp_path) == ["file.txt"]


def test_folders_are_made(tmp_path):
    target = tmp_path / "a" / "b" / "file.json"
    write_json(target, {"x": 1})
    assert read_json(target) == {"x": 1}
    write_json(str(target), {"x": 2})
    assert read_json(str(target)) == {"x": 2}


def test_of_several_writers_the_first_wins(tmp_path):
    target = tmp_path / "file.txt"

    def write(path):  # the other one comes between
        write_atomically(target, lambda other: other.write_text("first"), keep=True)
        path.write_text("second")

    write_atomically(target, write, keep=True)
    assert target.read_text() == "first"
    assert names(tmp_path) == ["file.txt"]


def test_the_first_wins_where_files_have_one_name_only(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError("no links on this file system")

    monkeypatch.setattr(os, "link", refuse)
    target = tmp_path / "file.txt"
    for content in ("first", "second"):
        write_atomically(target, lambda path, c=content: path.write_text(c), keep=True)
    assert target.read_text() == "first"
    assert names(tmp_path) == ["file.txt"]


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
def test_files_have_the_permissions_of_others_and_the_umask_is_left_alone(tmp_path, monkeypatch):
    (tmp_path / "other").touch()
    monkeypatch.setattr(os, "umask", None)  # files that other threads make would have its mode
    target = write_tensors(tmp_path / "file", {"a": torch.ones(2)}, {})
    assert target.stat().st_mode == (tmp_path / "other").stat().st_mode


def test_importing_does_not_touch_the_umask(monkeypatch):
    monkeypatch.setattr(os, "umask", None)
    runpy.run_path(str(Path(disk.__file__)))


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
def test_the_umask_of_the_moment_counts(tmp_path):
    for mask in (0o022, 0o077):
        before = os.umask(mask)
        try:
            target = write_json(tmp_path / "file.json", 1)
        finally:
            os.umask(before)
        assert target.stat().st_mode & 0o777 == 0o666 & ~mask


# --- locks -----------------------------------------------------------------------------------


def test_a_lock_is_held_by_one_at_a_time(tmp_path):
    path = tmp_path / "deep" / "unit.lock"
    with FileLock(path) as first:
        assert first
        with FileLock(path) as second:
            assert not second
        with FileLock(path) as third:  # a refusal lets nothing go
            assert not third
        with FileLock(tmp_path / "other.lock") as other:
            assert other
    with FileLock(str(path)) as later:
        assert later


def test_an_error_lets_a_lock_go(tmp_path):
    lock = FileLock(tmp_path / "unit.lock")
    with pytest.raises(BrokenError), lock:
        raise BrokenError
    for _ in range(2):  # it can be taken again and again
        with lock as held:
            assert held


def test_an_interrupt_that_comes_with_a_lock_releases_it(tmp_path):
    """Nobody else could: the block has not begun."""
    path = tmp_path / "unit.lock"

    def held(_, event, __):
        if event == "call":
            return held
        if open_files(path):
            raise BrokenError
        return held

    before = sys.gettrace()
    sys.settrace(held)
    try:
        with pytest.raises(BrokenError) as found, FileLock(path, wait=True):
            pass
    finally:
        sys.settrace(before)
    with FileLock(path) as other:  # although `found` still has the frames
        assert other
    assert found


def open_files(path):
    """Whether this process has a file open."""
    handles = Path("/proc/self/fd").iterdir()
    return any(os.path.realpath(handle) == str(path) for handle in handles)


def test_the_file_of_a_lock_stays_as_it_is(tmp_path):
    path = tmp_path / "unit.lock"
    path.write_text("kept")
    with FileLock(path):
        pass
    assert path.read_text() == "kept"
    assert names(tmp_path) == ["unit.lock"]


def test_a_refusal_of_the_same_lock_lets_nothing_go(tmp_path):
    lock = FileLock(tmp_path / "unit.lock")
    with lock as first:
        assert first
        with lock as second:
            assert not second
        with FileLock(tmp_path / "unit.lock") as other:
            assert not other


def test_a_lock_is_that_of_the_file_at_its_path(tmp_path, monkeypatch):
    """Here the folder is replaced between the opening of the file and its lock."""
    path, moved = tmp_path / "model" / ".lock", []
    take = fcntl.flock

    def late(handle, how):
        if not moved:
            moved.append(path.parent.rename(tmp_path / "old"))
            path.parent.mkdir()
        return take(handle, how)

    monkeypatch.setattr(fcntl, "flock", late)
    for wait in (True, False):
        with FileLock(path, wait=wait) as held:
            assert held
            assert moved
            with FileLock(path) as other:
                assert not other
        moved.pop().rename(tmp_path / "elsewhere" if wait else tmp_path / "gone")


HOLDER = """
import resource
import runpy
import sys

# The module alone, since a whole import takes seconds.
FileLock = runpy.run_path(sys.argv[1])["FileLock"]
with FileLock(sys.argv[2]) as held:
    print(held, flush=True)
    sys.stdin.read()
"""


def test_a_killed_process_leaves_its_lock_to_others(tmp_path):
    path = tmp_path / "unit.lock"
    source = Path(sys.modules["prerank"].__file__).parents[1]
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, disk.__file__, path],
        env=os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "True\n"
        with FileLock(path) as held:
            assert not held
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    with FileLock(path) as held:
        assert held


@pytest.mark.parametrize("room", [1024, 300_000])
def test_a_place_without_room(tmp_path, room):
    """Found before there is anything to write: a limit of the process stands for a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        with pytest.raises(InputError, match=r"cannot write .*model\.bin: "):
            check_file(tmp_path / "model.bin")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
