"""Headers that claim more than a file holds: refused before anything is allocated."""

import json
import resource
import shutil
import struct
import zipfile
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import prerank
from fuzz.entries import array_bytes, seal_model
from prerank.datasets import import_table, load_table
from prerank.errors import InputError
from prerank.estimators import load_model
from prerank.files import check_size, read_forecasts, read_json, read_tensors
from prerank.files.user_tables import read_training_table
from prerank.models import FlowNetwork, MixtureNetwork
from prerank.study import Plan, Store

GIB = 2**30


@contextmanager
def limited():
    """No more than 2 GiB beyond what the process has, so that an attempt fails at once."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2 * GIB, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture
def bounded():
    """The same around a whole test."""
    with limited():
        yield


@pytest.fixture
def plain_memory():
    """The allocator of pyarrow 21 reserves ten times the addresses that it uses."""
    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    yield
    pa.set_memory_pool(before)


@pytest.fixture
def observed(tmp_path):
    pd.DataFrame({"row": range(8), "y0": np.arange(8.0)}).to_csv(tmp_path / "y.csv", index=False)
    return tmp_path / "y.csv"


SHAPES = [(2**28,), (2**62, 2**62), (2**31, 2**31, 4)]


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_arrays(suffix, shape, observed, tmp_path):
    path = tmp_path / f"a{suffix}"
    data = array_bytes(shape, bytes(64))
    if suffix == ".npy":
        path.write_bytes(data)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("samples.npy", data)
    with pytest.raises(InputError, match=rf"a\{suffix}: the file claims to hold"):
        read_forecasts(path, observed)


@pytest.mark.usefixtures("bounded")
def test_netcdf(observed, tmp_path):
    with h5py.File(tmp_path / "a.nc", "w") as file:  # no chunk of it is there
        file.create_dataset("y0", (2**20, 2**20), "f8", chunks=(1024, 1024))
    with pytest.raises(InputError, match=r"a\.nc: the file claims to hold 24576\.0 GiB"):
        read_forecasts(tmp_path / "a.nc", observed)


def many_rows():
    column = pa.array(np.zeros(2**20, np.int8))  # a run of equal values takes some bytes
    return pa.table(dict.fromkeys([*(f"x{i}" for i in range(128)), "y0"], column))


def long_text():
    places = pa.array(np.zeros(3000, np.int32))  # a text of 1 MiB that is stored once
    text = pa.DictionaryArray.from_arrays(places, pa.array(["a" * 2**20]))
    return pa.table({"x0": np.arange(3000.0), "x1": text, "y0": np.arange(3000.0)})


def long_bytes():
    part = pa.table({"x0": pa.nulls(50, pa.binary(2**20)), "y0": np.arange(50.0)})
    return pa.concat_tables([part] * 30)


def long_lists():
    ends = pa.array(np.arange(0, 2**19 + 1, 2**9, dtype=np.int32))
    values = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(256), 2**19, [None, pa.py_buffer(bytes(2**27))]
    )
    lists = pa.ListArray.from_arrays(ends, values)
    return pa.concat_tables([pa.table({"x0": lists, "y0": np.arange(2.0**10)})] * 12)


def read_as_result(path):
    store = Store(path.parent / "study", Plan.preset("quick"))
    (store.folder / "results").mkdir(exist_ok=True)
    shutil.copy(path, store.folder / "results" / f"{store.units[0].stem}.parquet")
    store.results()


READERS = {
    "import": lambda path: import_table(path, "y0", path.parent / "data"),
    "stored table": lambda path: load_table("a", path.parent),
    "result": read_as_result,
}
# Who reads it, with and without the schema that Arrow adds: all readers meet the cheapest file.
PARQUET = {
    "many rows": (many_rows, "1\\.0", READERS),
    "long text": (long_text, "2\\.9", ["import", "result"]),
    "long bytes": (long_bytes, "1\\.5", ["stored table"]),
    "long lists": (long_lists, "1\\.\\d", ["import"]),
}


@pytest.mark.usefixtures("plain_memory")
@pytest.mark.parametrize("case", PARQUET)
def test_parquet(case, tmp_path):
    """A small file of a large table."""
    build, size, readers = PARQUET[case]
    path = tmp_path / "a.parquet"
    pq.write_table(build(), path, compression="zstd", store_schema=case == "many rows")
    assert path.stat().st_size < 2**20
    words = rf"\.parquet: the file claims to hold {size} GiB"
    for reader in readers:
        with limited(), pytest.raises(InputError, match=words):
            READERS[reader](path)


@pytest.mark.parametrize("column", [[["a"]] * 20, [{"a": "b"}] * 20, [[{"a": b"b"}]] * 20])
def test_text_in_lists_and_records(column, tmp_path):
    rows = np.arange(20.0)
    pq.write_table(pa.table({"x0": rows, "x1": column, "y0": rows}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"a\.parquet: column 'x1\..*leave it out"):
        import_table(tmp_path / "a.parquet", "y0", tmp_path / "data")


def test_what_pandas_noted_in_a_file_is_not_read(tmp_path):
    rows = np.arange(20.0)
    table = pa.table({"x0": rows, "y0": rows}).replace_schema_metadata({b"pandas": b"{\xe4"})
    pq.write_table(table, tmp_path / "a.parquet")
    assert list(read_training_table(tmp_path / "a.parquet", ["y0"]).inputs) == ["x0"]


def safetensors(header, body=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


TENSORS = {
    "more than there is": safetensors(
        {"a": {"dtype": "F64", "shape": [2**40], "data_offsets": [0, 2**43]}}
    ),
    "a shape of another size": safetensors(
        {"a": {"dtype": "F64", "shape": [2**40], "data_offsets": [0, 8]}}, bytes(8)
    ),
    "a size without a number": safetensors(
        {"a": {"dtype": "F64", "shape": [2**62, 2**62], "data_offsets": [0, 8]}}, bytes(8)
    ),
    "a header without an end": struct.pack("<Q", 2**60) + b"{}",
    "a header of brackets": safetensors(b"[" * 10**5 + b"]" * 10**5),
}


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("name", TENSORS)
def test_tensors(name, tmp_path):
    (tmp_path / "a.safetensors").write_bytes(TENSORS[name])
    with pytest.raises(InputError, match=r"a\.safetensors"):
        read_tensors(tmp_path / "a.safetensors")


def test_json_of_brackets(tmp_path):
    (tmp_path / "a.json").write_text("[" * 10**5 + "]" * 10**5)
    with pytest.raises(InputError, match=r"a\.json.*recursion"):
        read_json(tmp_path / "a.json")


CLASSES = {
    "mixture": (prerank.MixtureRegressor, {"n_components": 2}),
    "flow": (prerank.FlowRegressor, {"bins": 4}),
}
NETWORKS = [
    {"hidden": [10**5, 10**5]},
    {"hidden": [10**9]},
    {"hidden": [4] * 10**5},
    {"n_inputs": 10**9},
    {"n_targets": 10**6},
]


@pytest.fixture(scope="module", params=CLASSES)
def fitted(request):
    rng = np.random.default_rng(0)
    build, options = CLASSES[request.param]
    model = build(**options, method="none", hidden=(4,), max_epochs=1, random_state=0)
    return model.fit(rng.normal(size=(40, 2)), rng.normal(size=(40, 2)))


def refuse(folder, settings, words):
    (folder / "model.json").write_text(json.dumps(settings))
    seal_model(folder, "model.json")
    with pytest.raises(InputError, match=rf"not a complete model.*{words}"):
        load_model(folder)


@pytest.mark.usefixtures("bounded")
def test_networks(fitted, tmp_path):
    fitted.save(tmp_path)
    settings = json.loads((tmp_path / "model.json").read_text())
    for sizes in NETWORKS:
        own = {name: value for name, value in sizes.items() if name in settings["parameters"]}
        forged = {
            "network": settings["network"] | sizes,
            "parameters": settings["parameters"] | own,
        }
        refuse(tmp_path, settings | forged, r"shape \(1, ")


CLAIMS = [
    {"n_features_in": 0},
    {"n_features_in": 10**9},
    {"n_outputs": 7},
    {"target_names": ["a"]},
    {"feature_names_in": ["a", "b", "c"]},
]


def test_numbers_that_do_not_fit_the_network(fitted, tmp_path):
    fitted.save(tmp_path)
    settings = json.loads((tmp_path / "model.json").read_text())
    for claim in CLAIMS:
        refuse(tmp_path, settings | claim, "(numbers of inputs|n_features_in is 0)")


def test_a_floor_too_large_for_an_integer():
    assert MixtureNetwork(1, 1, scale_floor=10**20).scale_floor == 1e20


def test_flows_know_their_size_before_they_are_built():
    for sizes, hidden in product([(1, 1), (3, 2), (2, 6)], [(3,), (5, 7), (2, 3, 4)]):
        network = FlowNetwork(*sizes, bins=5, hidden=hidden)
        assert network.n_parameters == len(network.initial(0))


def test_what_a_file_may_hold(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"")
    check_size(path, GIB)
    with pytest.raises(InputError, match="claims"):
        check_size(path, GIB + 1)
    path.write_bytes(bytes(2**21))
    check_size(path, 1032 * 2**21)  # what deflate can do
    with pytest.raises(InputError, match="claims"):
        check_size(path, 1032 * 2**21 + 1)
