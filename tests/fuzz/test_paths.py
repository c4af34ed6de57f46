"""Names and links that point elsewhere: nothing outside the given folder is read or written."""

import json
import os
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest

from fuzz.entries import array_bytes, frame, models, seal_model
from prerank.datasets import Table, import_table, load_table, save_table
from prerank.datasets.collection import local_table, local_tables
from prerank.diagnosis import Monitor
from prerank.errors import InputError
from prerank.estimators import load_model
from prerank.files import (
    CheckpointFile,
    FileLock,
    read_forecasts,
    read_json,
    read_samples,
    read_tensors,
    write_atomically,
)
from prerank.files.user_tables import read_training_table
from prerank.recalibration import CalibrationHead
from prerank.study import Plan, Store
from prerank.study.report_files import write_comparison

NAMES = [
    "../x",
    "/etc/passwd",
    "a/../../b",
    "a/b",
    "..",
    "C:\\x",
    "..\\x",
    "\\\\host\\share",
    "a\0b",
    "a\n",
    "~root",
    "$HOME",
    "file:///etc/passwd",
    "",
    ".",
    "a" * 300,
    "a" * 5000,
]


@pytest.fixture
def inside(tmp_path):
    """A folder with a table outside of it that must not be touched."""
    numbers = np.ones((3, 1), np.float32)
    save_table(Table("x", numbers, numbers, ("a",), ("b",)), tmp_path)
    folder = tmp_path / "inside"
    folder.mkdir()
    return folder


def outside(folder):
    """Everything beside a folder, with its content."""
    return {
        path: path.read_bytes() if path.is_file() else None
        for path in folder.parent.rglob("*")
        if folder not in (path, *path.parents)
    }


def use_table(name, folder):
    load_table(name, folder)


def look_at_table(name, folder):
    local_table(name, folder)


def import_as(name, folder):
    (folder / "table.csv").write_text(frame().to_csv(index=False))
    import_table(folder / "table.csv", "y0", folder / "data", name)


def write_table(name, folder):
    numbers = np.ones((3, 1), np.float32)
    save_table(Table(name, numbers, numbers, ("a",), ("b",)), folder)


def plan(name, folder):
    Plan.preset("quick").changed({"datasets": json.dumps([name])})


USES = [use_table, look_at_table, import_as, write_table, plan]


@pytest.mark.parametrize("use", USES)
def test_names_of_datasets(use, inside):
    before = outside(inside)
    for name in NAMES:
        with pytest.raises(InputError):
            use(name, inside)
        assert outside(inside) == before


def test_files_with_names_that_no_dataset_has_are_passed_over(inside):
    (inside.parent / "x.parquet").rename(inside / "my table.parquet")
    assert local_tables(inside) == {}


def test_stems_of_imported_files(inside):
    before = outside(inside)
    for stem in ("..", "a..b", "a\nb", "with space", ".hidden"):
        path = inside / f"{stem}.csv"
        path.write_text(frame().to_csv(index=False))
        with pytest.raises(InputError, match="cannot name a dataset"):
            import_table(path, "y0", inside / "data")
    assert outside(inside) == before
    assert not (inside / "data").exists()


# --- archives of arrays ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../../samples", "/samples", "a/../../samples", "C:\\samples"])
def test_names_in_archives_are_no_paths(name, inside):
    with zipfile.ZipFile(inside / "a.npz", "w") as archive:
        archive.writestr(f"{name}.npy", array_bytes((2, 3, 1), bytes(48)))
    pd.DataFrame({"y0": [0.0, 1.0, 2.0]}).to_csv(inside / "y.csv", index=False)
    before = outside(inside)
    assert read_forecasts(inside / "a.npz", inside / "y.csv").samples.shape == (2, 3, 1)
    assert outside(inside) == before
    assert sorted(os.listdir(inside)) == ["a.npz", "y.csv"]


def test_members_that_are_no_arrays(inside):
    with zipfile.ZipFile(inside / "a.npz", "w") as archive:
        archive.writestr("samples", b"text")
    pd.DataFrame({"y0": [0.0]}).to_csv(inside / "y.csv", index=False)
    with pytest.raises(InputError, match=r"a\.npz: the file is damaged"):
        read_forecasts(inside / "a.npz", inside / "y.csv")


READERS = {
    "model": load_model,
    "head": CalibrationHead.load,
    "monitor": Monitor.load,
    "plan": Plan.read,
    "study": Store,
    "studies": lambda path: write_comparison([Path(path)], Path("out.csv")),
    "json": read_json,
    "tensors": read_tensors,
    "checkpoint": lambda path: CheckpointFile(path).load(),
    "array": lambda path: read_forecasts(f"{path}.npz", None),
    "store": lambda path: read_forecasts(f"{path}.zarr", None),
    "observations": lambda path: read_forecasts("samples.csv", f"{path}.csv"),
    "samples": lambda path: read_samples(f"{path}.parquet", ()),
    "training": lambda path: read_training_table(f"{path}.csv", "y0"),
    "folder of tables": lambda path: load_table("x", path),
    "tables": local_tables,
    "import": lambda path: import_table(f"{path}.csv", "y0", "data", "name"),
    "import to": lambda path: import_table("samples.csv", "y0", path),
}


@pytest.mark.parametrize("use", READERS.values(), ids=READERS)
def test_paths_that_no_file_can_have(use, inside, monkeypatch):
    monkeypatch.chdir(inside)
    frame().to_csv("samples.csv")
    for path, words in {"a\0": "null", "a\ud800": "encode", "a" * 5000: "too long"}.items():
        with pytest.raises(InputError, match=words):
            pytest.fail(str(use(path)))
    assert os.listdir() == ["samples.csv"]


# --- netCDF files whose values lie elsewhere -------------------------------------------------


def dimensions(file):
    for name, size in (("number", 2), ("row", 8)):
        file[name] = np.arange(size)
        file[name].make_scale(name)
    for position, name in enumerate(("number", "row")):
        file["y0"].dims[position].attach_scale(file[name])


def stored_elsewhere(file, secret):
    file.create_dataset("y0", (2, 8), "u1", external=[(str(secret), 0, 16)])
    dimensions(file)


def mapped_from_elsewhere(file, secret):
    layout = h5py.VirtualLayout((2, 8), "u1")
    layout[:] = h5py.VirtualSource(str(secret), "y0", (2, 8))
    file.create_virtual_dataset("y0", layout)
    dimensions(file)


def linked_elsewhere(file, secret):
    file["y0"] = h5py.ExternalLink(str(secret), "/y0")


def linked_in_a_group(file, secret):
    file.create_group("a/b")["c"] = h5py.ExternalLink(str(secret), "/y0")


@pytest.mark.parametrize(
    "write", [stored_elsewhere, mapped_from_elsewhere, linked_elsewhere, linked_in_a_group]
)
def test_netcdf_that_reads_other_files(write, inside):
    secret = inside.parent / "secret.h5"
    with h5py.File(secret, "w") as file:
        file["y0"] = np.arange(16, dtype=np.uint8).reshape(2, 8)
    with h5py.File(inside / "a.nc", "w") as file:
        write(file, secret)
    pd.DataFrame({"row": range(8), "y0": np.arange(8.0)}).to_csv(inside / "y.csv", index=False)
    with pytest.raises(InputError, match=r"a\.nc: '.*' lies in another file"):
        read_forecasts(inside / "a.nc", inside / "y.csv")


# --- models ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def corpus():
    return models()


@pytest.fixture
def model(corpus, inside):
    for name, content in corpus.items():
        (inside / name).write_bytes(content)
    return inside


def test_names_of_weights(model):
    settings = json.loads((model / "model.json").read_text())
    (model.parent / "x").write_bytes((model / settings["weights"]).read_bytes())
    for name in NAMES:
        (model / "model.json").write_text(json.dumps(settings | {"weights": name}))
        seal_model(model, "model.json")
        with pytest.raises(InputError):
            load_model(model)


@pytest.mark.parametrize("pattern", ["model.json", "*.safetensors"])
def test_linked_files_of_a_model(pattern, model):
    path = next(model.glob(pattern))
    elsewhere = model.parent / path.name
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    with pytest.raises(InputError, match="link that leads out of"):
        load_model(model)
    before = outside(model)
    elsewhere.rename(path)
    loaded = load_model(model)
    elsewhere.write_bytes(before[elsewhere])
    path.unlink()
    path.symlink_to(elsewhere)
    if pattern == "model.json":  # it tells whose the other files are
        with pytest.raises(InputError, match="link that leads out of"):
            loaded.save(model)
        path.unlink()
    loaded.save(model)  # replaces links, and does not follow them
    assert outside(model) == before
    load_model(model)


def test_a_link_to_a_model_is_followed(model):
    link = model.parent / "link"
    link.symlink_to(model)
    load_model(link)


def test_links_in_a_ring(inside):
    (inside / "model.json").symlink_to(inside / "other.json")
    (inside / "other.json").symlink_to(inside / "model.json")
    with pytest.raises(InputError, match="cannot read"):
        load_model(inside)


# --- files that are written ------------------------------------------------------------------


def test_what_is_written_replaces_a_link(inside):
    secret = inside.parent / "x.parquet"
    before = outside(inside)
    (inside / "file").symlink_to(secret)
    write_atomically(inside / "file", lambda file: file.write_text("new"))
    assert not (inside / "file").is_symlink()
    assert outside(inside) == before


def test_locks_do_not_follow_links(inside):
    (inside / "a.lock").symlink_to(inside.parent / "made")
    with pytest.raises(OSError, match="symbolic"), FileLock(inside / "a.lock"):
        pass
    assert not (inside.parent / "made").exists()
