"""CSV and Parquet files as columns: what is read, and that hostile files are refused."""

import csv
import io
import tempfile
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from prerank.datasets import import_table
from prerank.errors import InputError
from prerank.files.column_files import parse_columns, read_columns, sniff_delimiter


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("a,b\n1,2\n", ","),
        ("a;b\n1;2\n", ";"),
        ("a\tb\n1\t2\n", "\t"),
        ("a;b\n1,5;2,5\n1,7;2,7\n", ";"),
        ('"x;y;z",b\n1,2\n', ","),
        ("size, in m;b\n1;2\n3;4\n", ";"),
        ("a\n1\n", ","),
        ("", ","),
        ("a;b", ";"),
        ("a,b,c;d\n1,2,3;4\n", ","),
        ('"0",";;"\n"",""\n', ","),
        ('"a";"b\nc,d,e"\n' + "1;2\n" * 30_000, ";"),
        ("a\tb\n" + "1\t'2'\n" * 3 + "1\t2,3,4,5", "\t"),
    ],
)
def test_delimiters(text, delimiter):
    assert sniff_delimiter(text) == delimiter


def test_types_come_from_the_whole_file():
    """A first megabyte of whole numbers does not decide."""
    rows = b"1,1,1\n" * 300_000
    columns = parse_columns(b"a,b,c\n" + rows + b"1.5,word,\n", "a.csv")
    assert [str(kind) for kind in columns.schema.types] == ["double", "string", "int64"]
    assert columns["c"].null_count == 1


def test_missing_values():
    for word in ("", "?", "NA", "N/A", "nan", "NaN", "NULL", "null", "None", " ?"):
        columns = parse_columns(f"a,b,c\n{word},{word},1\n1,x,1\n".encode(), "a.csv")
        assert columns.to_pydict() == {"a": [None, 1], "b": [None, "x"], "c": [1, 1]}, word


def test_quotes_line_ends_and_byte_order_mark():
    data = '\ufeff"a ""b""",c\r\n"line\r\nbreak, comma",09\r\nx, 2.5 \r\n'.encode()
    columns = parse_columns(data, "A.CSV")
    assert columns.to_pydict() == {'a "b"': ["line\r\nbreak, comma", "x"], "c": [9.0, 2.5]}


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=8)
FLOATS = st.floats(allow_nan=False, width=64)


@st.composite
def csv_files(draw):
    names = draw(st.lists(NAMES, min_size=2, max_size=4, unique_by=str.strip))
    rows = draw(st.integers(1, 8))
    columns = {}
    for name in names:
        cell = draw(
            st.sampled_from([st.none() | FLOATS, st.none() | st.sampled_from(["x;", "y,'"])])
        )
        columns[name.strip()] = draw(st.lists(cell, min_size=rows, max_size=rows))
    return columns, draw(st.sampled_from(",;\t")), draw(st.sampled_from(["\n", "\r\n"]))


@settings(max_examples=60)
@given(csv_files())
@example(({"0": [None], ";;": [None]}, ",", "\n"))
def test_csv_goes_round(file):
    columns, delimiter, end = file
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow("" if v is None else v if isinstance(v, str) else repr(v) for v in row)
    found = parse_columns(text.getvalue().encode(), "a.csv").to_pydict()
    assert list(found) == list(columns)
    for name, values in columns.items():
        assert found[name] == values, name


# Hostile files

FRAME = pd.DataFrame(
    {
        "depth": [i / 4 for i in range(30)],
        "river bed": ["mud" if i % 2 else "coarse gravel" for i in range(30)],
        "flow": [float(i * i) for i in range(30)],
        "flood": [i % 3 for i in range(30)],
    }
)


@given(st.binary(max_size=200) | st.text(st.sampled_from('ab1.,;\t"\n\r?\0 é'), max_size=80))
def test_hostile_csv(content):
    only_documented_errors(content, ".csv")


HEAD = "@relation x\n@attribute a numeric\n@attribute b {u, v}\n@data\n"


@given(
    st.text(st.sampled_from("@%?{}'\"\\, \t\nax1"), max_size=60),
    st.sampled_from(["", "@attribute ", HEAD]),
)
def test_hostile_arff(text, head):
    only_documented_errors(head + text, ".arff")


@given(st.binary(max_size=60), st.integers(0, 10_000), st.booleans())
@example(b"\x80", 783, True)  # in the name of a column
@example(b"\x80", 261, True)  # in a text
def test_hostile_parquet(noise, place, within):
    """Files of noise, and good files with some bytes replaced."""
    buffer = pa.BufferOutputStream()
    parquet.write_table(pa.Table.from_pandas(FRAME), buffer)
    good = buffer.getvalue().to_pybytes()
    place %= len(good)
    broken = good[:place] + noise + good[place + len(noise) :]
    only_documented_errors(broken if within else b"PAR1" + noise + b"PAR1", ".parquet")


def only_documented_errors(content, suffix):
    """Whatever stands in a file, reading it gives columns or an `InputError`."""
    data = content if isinstance(content, bytes) else content.encode()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"hostile{suffix}")
        path.write_bytes(data)
        try:
            columns = read_columns(path)
        except InputError:
            return
        assert len(set(columns.column_names)) == len(columns.column_names)
        for target in columns.column_names:
            try:
                import_table(path, target, folder, "out")
            except InputError:
                assert not Path(folder, "out.parquet").exists()
            else:
                Path(folder, "out.parquet").unlink()
        left = [file.name for file in Path(folder).iterdir()]
        assert left == [path.name]


def test_odd_types_and_names_are_read_or_refused(tmp_path):
    numbers = pa.array(range(30), pa.float64())
    views = pa.table(
        {"y": numbers, "bed": pa.array(["sand", "clay", "mud"] * 10, pa.string_view())}
    )
    parquet.write_table(views, tmp_path / "views.parquet")
    assert read_columns(tmp_path / "views.parquet")["bed"].type == pa.string()
    zoned = pa.table(
        {"y": numbers, "day": pa.array(range(30), pa.timestamp("s", "Europe/Nowhere"))}
    )
    parquet.write_table(zoned, tmp_path / "zoned.parquet")
    with pytest.raises(InputError, match=r"zoned\.parquet: .*Europe/Nowhere"):
        read_columns(tmp_path / "zoned.parquet")
    (tmp_path / "wide.csv").write_text("y," + "x" * 200_000 + "\n1,2\n")
    with pytest.raises(InputError, match=r"wide\.csv: its first row"):
        read_columns(tmp_path / "wide.csv")
