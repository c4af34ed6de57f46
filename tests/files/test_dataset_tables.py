"""Tables in Parquet files."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from prerank.datasets import Table, data_folder, load_table, save_table
from prerank.errors import InputError
from prerank.files.dataset_tables import table_shape

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def write(folder, columns, name="small"):
    folder.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(columns).to_parquet(folder / f"{name}.parquet")


def test_round_trip(tmp_path):
    # Out of order, with two digits, another type and a column that is neither input nor target.
    columns = {
        "y1": [1.5, 2.5, 3.5],
        "x10": [7, 8, 9],
        "id": ["a", "b", "c"],
        "y0": [0.1, 0.2, 0.3],
    }
    columns |= {"x2": [True, False, True], "x0": np.array([1, 2, 3], dtype=np.float32)}
    write(tmp_path, columns)
    table = load_table("small", tmp_path)
    assert table.name == "small"
    assert table.inputs == ("x0", "x2", "x10")
    assert table.targets == ("y0", "y1")
    assert table.x.dtype == table.y.dtype == np.float32
    np.testing.assert_array_equal(table.x, [[1, 1, 7], [2, 0, 8], [3, 1, 9]])
    np.testing.assert_array_equal(table.y, np.float32([[0.1, 1.5], [0.2, 2.5], [0.3, 3.5]]))


@pytest.mark.parametrize(
    "columns",
    [
        {"a": [1.0], "b": [2.0]},
        {"x0": [1.0]},
        {"y0": [1.0]},
        {"X0": [1.0], "y_0": [2.0]},
    ],
    ids=str,
)
def test_wrong_columns(tmp_path, columns):
    write(tmp_path, columns)
    with pytest.raises(InputError, match=r"small\.parquet: it needs columns x0"):
        load_table("small", tmp_path)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["a", "b"], "holds text"),
        ([[1.0], [2.0]], "holds list"),
        ([pd.Timestamp(0), pd.Timestamp(1)], "holds text or times"),
        ([1.0, None], "1 missing"),
        ([1.0, np.inf], "infinite"),
        ([1e300, 1.0], "too large for float32"),
    ],
    ids=str,
)
def test_columns_that_are_no_finite_numbers(tmp_path, values, words):
    for name in ("x0", "y0"):
        write(tmp_path, {"x0": [1.0, 2.0], "y0": [1.0, 2.0]} | {name: values})
        with pytest.raises(InputError, match=rf"small\.parquet: column '{name}'.*{words}"):
            load_table("small", tmp_path)


@pytest.mark.parametrize("name", ["x²", "x٣", "x" + "9" * 5000, "x1\n"])
def test_names_that_are_no_numbered_columns(tmp_path, name):
    write(tmp_path, {name: [3.0], "x0": [1.0], "y0": [2.0]})
    assert load_table("small", tmp_path).inputs == ("x0",)
    assert table_shape(tmp_path / "small.parquet") == (1, 1, 1)


def test_several_columns_of_one_name(tmp_path):
    table = pa.Table.from_arrays([pa.array([1.0])] * 3, ["x0", "x0", "y0"])
    parquet.write_table(table, tmp_path / "small.parquet")
    with pytest.raises(InputError, match=r"small\.parquet: several columns are named 'x0'"):
        load_table("small", tmp_path)


def test_original_names_of_brackets(tmp_path):
    about = {b"x_columns": b"[" * 10**5}
    table = pa.table({"x0": [1.0], "y0": [2.0]}).replace_schema_metadata(about)
    parquet.write_table(table, tmp_path / "small.parquet")
    assert load_table("small", tmp_path).inputs == ("x0",)


def test_missing_file(tmp_path):
    with pytest.raises(InputError, match=r"none\.parquet.*PRERANK_DATA"):
        load_table("none", tmp_path)


@pytest.mark.parametrize("content", [b"", b"not parquet at all", b"PAR1" + b"\0" * 40 + b"PAR1"])
def test_broken_file(tmp_path, content):
    (tmp_path / "small.parquet").write_bytes(content)
    with pytest.raises(InputError, match=r"small\.parquet") as caught:
        load_table("small", tmp_path)
    assert "PRERANK_DATA" not in str(caught.value)  # another folder would not help
    assert str(caught.value).endswith("; if it is damaged, remove it, and fetch or import it again")
    assert ".;" not in str(caught.value)


def test_no_flipped_bit_changes_the_numbers(tmp_path):
    x, y = np.random.default_rng(0).normal(size=(2, 20, 1)).astype(np.float32)
    path = save_table(Table("small", x, y, ("a",), ("b",)), tmp_path)
    whole, refused = path.read_bytes(), 0
    footer = 8 + int.from_bytes(whole[-8:-4], "little")  # says where the numbers are, and ends it
    for place in range(4, len(whole) - footer):
        content = bytearray(whole)
        content[place] ^= 1 << place % 8
        path.write_bytes(content)
        try:
            table = load_table("small", tmp_path)
        except InputError:
            refused += 1
        else:
            np.testing.assert_array_equal(table.x, x)
            np.testing.assert_array_equal(table.y, y)
    assert refused > x.nbytes + y.nbytes


def test_folder_from_the_environment(tmp_path, monkeypatch):
    write(tmp_path / "a", {"x0": [1.0], "y0": [2.0]})
    write(tmp_path / "cache" / "prerank", {"x0": [3.0], "y0": [2.0]})
    monkeypatch.setenv("PRERANK_DATA", str(tmp_path / "a"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert load_table("small").x.item() == 1.0
    monkeypatch.delenv("PRERANK_DATA")
    assert load_table("small").x.item() == 3.0
    monkeypatch.setenv("PRERANK_DATA", "")  # as good as not set
    assert load_table("small").x.item() == 3.0
    assert load_table("small", tmp_path / "a").x.item() == 1.0
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_folder() == tmp_path / ".cache" / "prerank"


@pytest.mark.skipif(not (DATA / "households.parquet").is_file(), reason=f"{DATA} is not here")
def test_a_real_dataset():
    table = load_table("households", DATA)
    assert table.y.shape == (7207, 4)
    assert len(table.x) == 7207
    assert np.isfinite(table.x).all()
    assert np.isfinite(table.y).all()
    assert table.targets == ("inc", "food", "house", "utili")
    assert (table.y.std(0) > 0).all()
