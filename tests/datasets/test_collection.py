"""Tables in a folder: how they compare to their records, and what they may be named."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from prerank.datasets import DATASETS, Dataset, Origin, Table, find_dataset, load_table, save_table
from prerank.datasets.collection import (
    is_registered_content,
    local_table,
    local_tables,
    table_mismatch,
)
from prerank.errors import InputError
from prerank.files.dataset_tables import content_hash, table_shape

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
ORIGIN = Origin("someone/tables", "1" * 40, "two words.csv", "a" * 64, 10)
RECORD = Dataset("rivers", 20, 3, 1, ("flow",), "by name", "CC0", origin=ORIGIN)


@pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is not here")
def test_numbers_of_the_tables():
    for record in DATASETS:
        copy = local_table(record.name, DATA)
        if copy is None:
            assert not record.content
            continue
        assert copy.shape[1:] == (record.n_inputs, record.n_targets)
        assert is_registered_content(record, DATA)
        assert load_table(record.name, DATA).targets == record.targets


def test_copies(tmp_path, table):
    assert local_tables(tmp_path / "none") == {}
    for name in ("mine", "wq", "air"):
        save_table(replace(table, name=name), tmp_path)
    (tmp_path / "bio.parquet").write_bytes(b"broken")
    (tmp_path / "lost.parquet").write_bytes((tmp_path / "mine.parquet").read_bytes()[:-9])
    for name in ("other", "wage"):
        parquet.write_table(pa.table({"a": [1.0]}), tmp_path / f"{name}.parquet")  # not ours
    copies = local_tables(tmp_path)
    assert list(copies) == ["air", "wage", "wq", "bio", "lost", "mine"]
    assert {name for name, copy in copies.items() if copy.problem} == {"wage", "bio", "lost"}
    assert {name for name, copy in copies.items() if copy.foreign} == {"wage"}
    assert copies["mine"].shape == (12, 2, 1) == table_shape(copies["mine"].path)
    assert copies["bio"].shape is None
    assert "bio.parquet" in copies["bio"].problem
    assert is_registered_content(find_dataset("air"), tmp_path) is False
    assert is_registered_content(find_dataset("bio"), tmp_path) is None
    assert is_registered_content(find_dataset("scm1d"), tmp_path) is None
    right = replace(RECORD, name="mine", content=content_hash(table))
    assert is_registered_content(right, tmp_path) is True


def test_departures_from_a_record(table):
    """Known numbers decide; without them the counts do, also of rows."""
    same = replace(RECORD, n_rows=12, n_inputs=2)
    assert table_mismatch(same, table) == ""
    assert table_mismatch(replace(same, n_inputs=None), table) == ""
    assert (
        table_mismatch(replace(RECORD, content=content_hash(table)), table) == ""
    )  # another sample
    assert table_mismatch(RECORD, table) == "12 instead of 20 rows and 2 instead of 3 inputs"
    assert table_mismatch(replace(same, content="0" * 64), table) == "other numbers"


def test_the_hash_sees_numbers_alone(tmp_path, table):
    before = content_hash(table)
    save_table(table, tmp_path)
    assert content_hash(load_table("small", tmp_path)) == before
    assert content_hash(replace(table, name="other", inputs=("a", "b"))) == before
    assert content_hash(replace(table, x=table.x[::-1].copy())) != before
    assert content_hash(replace(table, x=table.y, y=table.x)) != before


def test_load_table_finds_other_spellings(tmp_path, table):
    save_table(replace(table, name="blog_data"), tmp_path)
    assert load_table("blogdata", tmp_path).name == "blog_data"
    save_table(replace(table, name="blogdata"), tmp_path)  # a file of that name comes first
    assert load_table("blogdata", tmp_path).name == "blogdata"


def test_load_table_says_how_to_get_it(tmp_path):
    with pytest.raises(InputError, match=r"PRERANK_DATA.*prerank datasets show blog_data"):
        load_table("blogdata", tmp_path)


@pytest.fixture
def table():
    x = np.arange(24, dtype=np.float32).reshape(12, 2)
    return Table("small", x, x[:, :1] + 0.5, ("depth", "bed=sand"), ("flow",))


# Names in the schema, and names of files


def test_names_go_round(tmp_path, table):
    save_table(table, tmp_path)
    again = load_table("small", tmp_path)
    assert (again.inputs, again.targets) == (table.inputs, table.targets)


@pytest.mark.parametrize("known", [b"no json", b'["a"]', b'{"a": 1, "b": 2}', b"\xff", b"null"])
def test_names_that_do_not_fit_are_ignored(tmp_path, table, known):
    path = save_table(table, tmp_path)
    frame = parquet.read_table(path)
    about = frame.schema.metadata | {b"x_columns": known}
    parquet.write_table(frame.replace_schema_metadata(about), path)
    again = load_table("small", tmp_path)
    assert again.inputs == ("x0", "x1")
    assert again.targets == ("flow",)


BAD_NAMES = ["", ".", "..", "../a", "a/b", "/a", "a\\b", "a..b", ".a", "a.", "a b", "a\0", "a\n"]


def test_names_that_could_leave_the_folder(tmp_path, table):
    for name in (*BAD_NAMES, "C:a", "a" * 101, "é" * 51, "-a"):
        with pytest.raises(InputError, match="cannot name a dataset"):
            save_table(replace(table, name=name), tmp_path / "inner")
    assert list(tmp_path.iterdir()) == []


def test_names_that_are_fine(tmp_path, table):
    for name in ("a", "a.b-c_1", "a" * 100, "später", "0"):
        assert save_table(replace(table, name=name), tmp_path).parent == tmp_path


def test_shapes_that_do_not_fit(tmp_path, table):
    for wrong in (
        replace(table, x=table.x[:5]),
        replace(table, x=table.x[:, 0]),
        replace(table, inputs=("a",)),
    ):
        with pytest.raises(InputError, match=r"x of table 'small' must be"):
            save_table(wrong, tmp_path)


def test_a_folder_that_cannot_be_made(tmp_path, table):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="cannot write"):
        save_table(table, tmp_path / "file")
