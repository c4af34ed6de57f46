"""Files are whole or absent, come back as they were written, and say so when they are broken."""

import json
import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from prerank.errors import InputError
from prerank.files import (
    FileLock,
    disk,
    read_json,
    read_tensors,
    write_atomically,
    write_json,
    write_tensors,
)


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


def test_a_write_that_ends_replaces_the_file(tmp_path):
    target = tmp_path / "file.txt"
    for content in ("one", "two"):
        found = write_atomically(target, lambda path, content=content: path.write_text(content))
        assert found == target
        assert target.read_text() == content
        assert names(tmp_path) == ["file.txt"]


def test_the_old_file_is_there_until_the_end(tmp_path):
    target = tmp_path / "file.txt"
    target.write_text("old")

    def write(path):
        path.write_text("new")
        assert target.read_text() == "old"

    write_atomically(target, write)
    assert target.read_text() == "new"


def test_folders_are_made(tmp_path):
    target = tmp_path / "a" / "b" / "file.json"
    write_json(target, {"x": 1})
    assert read_json(target) == {"x": 1}
    write_json(str(target), {"x": 2})
    assert read_json(str(target)) == {"x": 2}


@pytest.mark.parametrize(
    "value", [{"x": float("nan")}, {"x": float("inf")}, {"x": {1, 2}}, object()]
)
def test_what_json_cannot_hold_leaves_the_old_file(tmp_path, value):
    target = write_json(tmp_path / "file.json", {"x": 1})
    with pytest.raises((ValueError, TypeError)):
        write_json(target, value)
    assert names(tmp_path) == ["file.json"]
    assert read_json(target) == {"x": 1}


def test_a_failing_tensor_write_leaves_the_old_file(tmp_path):
    target = write_tensors(tmp_path / "file", {"a": torch.ones(2)}, {})
    with pytest.raises(Exception, match=r"metadata|str|argument"):
        write_tensors(target, {"a": torch.zeros(2)}, {"number": 3})
    assert names(tmp_path) == ["file"]
    assert torch.equal(read_tensors(target)[0]["a"], torch.ones(2))


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
@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
def test_the_umask_of_the_moment_counts(tmp_path, mask):
    before = os.umask(mask)
    try:
        target = write_json(tmp_path / "file.json", 1)
    finally:
        os.umask(before)
    assert target.stat().st_mode & 0o777 == 0o666 & ~mask


# --- round trips -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [None, 1, 0.1 + 0.2, 1e-300, "déjà, vu", [], {"a": [1, {"b": None}], "c": True}],
    ids=str,
)
def test_json_round_trip(tmp_path, value):
    path = write_json(tmp_path / "file.json", value)
    assert read_json(path) == value


def test_json_is_sorted_text(tmp_path):
    one, two = (
        write_json(tmp_path / name, value).read_bytes()
        for name, value in (("a", {"x": 1, "y": 2}), ("b", {"y": 2, "x": 1}))
    )
    assert one == two
    assert one.endswith(b"}\n")


TENSORS = {
    "float64": torch.tensor([0.1, -torch.inf, torch.nan], dtype=torch.float64),
    "float32": torch.arange(12.0).reshape(3, 4) / 7,
    "int64": torch.tensor([2**62, -1]),
    "bool": torch.tensor([[True, False]]),
    "empty": torch.zeros(0, 3),
    "scalar": torch.tensor(3.0),
    "transposed": torch.arange(6.0).reshape(2, 3).mT,
    "view": torch.arange(10.0)[2:7:2],
    "gradient": torch.ones(2, requires_grad=True),
}


def test_tensor_round_trip(tmp_path):
    about = {"epoch": "3", "what": "déjà"}
    path = write_tensors(tmp_path / "file", TENSORS, about)
    found, told = read_tensors(path)
    assert told == about
    assert set(found) == set(TENSORS)
    for name, value in TENSORS.items():
        assert found[name].dtype == value.dtype
        assert found[name].shape == value.shape
        torch.testing.assert_close(found[name], value.detach(), rtol=0, atol=0, equal_nan=True)
        assert not found[name].requires_grad


def test_tensors_that_share_memory(tmp_path):
    whole = torch.arange(12.0).reshape(3, 4)
    tensors = {
        "whole": whole,
        "again": whole,
        "row": whole[1],
        "flat": whole.view(-1),
        "overlap": whole.view(-1)[2:9],
        "transposed": whole.mT,
        "expanded": whole[0].expand(5, 4),
    }
    found, _ = read_tensors(write_tensors(tmp_path / "file", tensors, {}))
    for name, value in tensors.items():
        assert torch.equal(found[name], value)
    found["whole"] += 1  # they are separate ones now
    assert torch.equal(found["again"], whole)


def test_nothing_is_told_where_nothing_was_written(tmp_path):
    path = write_tensors(tmp_path / "file", {"a": torch.ones(1)}, {})
    assert read_tensors(path)[1] == {}


def test_read_tensors_do_not_depend_on_the_file(tmp_path):
    path = write_tensors(tmp_path / "file", {"a": torch.ones(1000)}, {})
    found, _ = read_tensors(path)
    path.write_bytes(b"\0" * path.stat().st_size)
    assert torch.equal(found["a"], torch.ones(1000))
    found["a"] += 1  # and they can be changed


# --- broken files ----------------------------------------------------------------------------


def broken_tensor_file(path, how):
    whole = write_tensors(path, {"a": torch.arange(100.0)}, {"x": "y"}).read_bytes()
    contents = {
        "empty": b"",
        "cut": whole[: len(whole) // 2],
        "cut in the header": whole[:12],
        "text": b"not a tensor file at all",
        "longer": whole + b"\0",
        "header": whole[:8] + b"\xff" * 20 + whole[28:],
    }
    path.write_bytes(contents[how])


@pytest.mark.parametrize("how", ["empty", "cut", "cut in the header", "text", "longer", "header"])
def test_broken_tensor_files(tmp_path, how):
    path = tmp_path / "weights.safetensors"
    broken_tensor_file(path, how)
    with pytest.raises(InputError, match=r"weights\.safetensors"):
        read_tensors(path)


def test_a_flipped_bit_is_noticed(tmp_path):
    path = write_tensors(
        tmp_path / "file", {"a": torch.arange(3.0), "b": torch.ones(2)}, {"x": "y"}
    )
    whole = path.read_bytes()
    places = range(whole.index(b'"sha256":"') + 10, len(whole))
    for place in places:  # of the digest, the names, shapes and numbers
        if whole[place : place + 1].isspace():
            continue  # that fills up the header
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(InputError, match="file"):
            read_tensors(path)


def test_files_without_a_digest_are_read(tmp_path):
    save_file({"a": torch.ones(2)}, tmp_path / "file", metadata={"x": "y"})
    assert read_tensors(tmp_path / "file")[1] == {"x": "y"}


@pytest.mark.parametrize("content", [b"", b"{", b'{"a": 1', b"\xff\xfe\x00", b"[1, 2] tail"])
def test_broken_json_files(tmp_path, content):
    path = tmp_path / "settings.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"settings\.json"):
        read_json(path)


@pytest.mark.parametrize("read", [read_json, read_tensors])
@pytest.mark.parametrize("kind", ["missing", "folder"])
def test_no_file(tmp_path, read, kind):
    path = tmp_path / "absent"
    if kind == "folder":
        path.mkdir()
    with pytest.raises(InputError, match="absent"):
        read(path)


def test_a_file_in_the_way_of_a_folder(tmp_path):
    (tmp_path / "file").write_text("here")
    with pytest.raises(OSError, match="file"):
        write_json(tmp_path / "file" / "x.json", {})
    assert names(tmp_path) == ["file"]


def test_it_is_plain_json(tmp_path):
    path = write_json(tmp_path / "file.json", {"a": [1.5]})
    assert json.loads(Path(path).read_text(encoding="utf-8")) == {"a": [1.5]}


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
    with pytest.raises(BrokenError), FileLock(tmp_path / "unit.lock"):
        raise BrokenError
    with FileLock(tmp_path / "unit.lock") as held:
        assert held


def test_a_lock_can_be_taken_again_and_again(tmp_path):
    lock = FileLock(tmp_path / "unit.lock")
    for _ in range(3):
        with lock as held:
            assert held


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


HOLDER = """
import sys
from prerank.files import FileLock

with FileLock(sys.argv[1]) as held:
    print(held, flush=True)
    sys.stdin.read()
"""


def test_a_killed_process_leaves_its_lock_to_others(tmp_path):
    path = tmp_path / "unit.lock"
    source = Path(sys.modules["prerank"].__file__).parents[1]
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, path],
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
