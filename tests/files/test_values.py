"""JSON and tensors come back as they were written, and say so when they are broken."""

import json

import pytest
import torch
from safetensors.torch import save_file

from prerank.errors import InputError
from prerank.files import read_json, read_tensors, write_json, write_tensors

# --- round trips -----------------------------------------------------------------------------


def test_json_round_trip(tmp_path):
    value = {"a": [1, {"b": None}], "c": True, "d": [], "e": [0.1 + 0.2, 1e-300], "f": "déjà, vu"}
    path = write_json(tmp_path / "file.json", value)
    assert read_json(path) == json.loads(path.read_text(encoding="utf-8")) == value


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
    with pytest.raises(
        InputError, match="absent.* folder|absent.*Is a directory" if kind == "folder" else "absent"
    ):
        read(path)


def test_a_file_in_the_way_of_a_folder(tmp_path):
    (tmp_path / "file").write_text("here")
    with pytest.raises(OSError, match="file"):
        write_json(tmp_path / "file" / "x.json", {})
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "value", [{"x": float("nan")}, {"x": float("inf")}, {"x": {1, 2}}, object()]
)
def test_what_json_cannot_hold_leaves_the_old_file(tmp_path, value):
    target = write_json(tmp_path / "file.json", {"x": 1})
    with pytest.raises((ValueError, TypeError)):
        write_json(target, value)
    assert [path.name for path in tmp_path.iterdir()] == ["file.json"]
    assert read_json(target) == {"x": 1}


def test_a_failing_tensor_write_leaves_the_old_file(tmp_path):
    target = write_tensors(tmp_path / "file", {"a": torch.ones(2)}, {})
    with pytest.raises(Exception, match=r"metadata|str|argument"):
        write_tensors(target, {"a": torch.zeros(2)}, {"number": 3})
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert torch.equal(read_tensors(target)[0]["a"], torch.ones(2))
