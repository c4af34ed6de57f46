"""CSV, ARFF and Parquet files of one's own."""

import csv
import io
import math
import re
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import parquet

from prerank.datasets import SYNTHETIC, find_dataset, import_table, load_table
from prerank.errors import InputError
from prerank.files.arff import read_arff
from prerank.files.column_files import parse_columns, read_columns, sniff_delimiter

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

FRAME = pd.DataFrame(
    {
        "depth": [i / 4 for i in range(30)],
        "river bed": ["mud" if i % 2 else "coarse gravel" for i in range(30)],
        "flow": [float(i * i) for i in range(30)],
        "flood": [i % 3 for i in range(30)],
    }
)
ARFF = "\n".join(
    [
        "% about rivers",
        "@RELATION 'all rivers'",
        "",
        "@attribute depth real",
        "@ATTRIBUTE 'river bed' {mud, \"coarse gravel\"}",
        "@attribute flow\tNUMERIC",
        "@Attribute flood integer",
        "@DATA",
        *(f"{a}, '{b}',{c},{d}" for a, b, c, d in FRAME.itertuples(index=False)),
        "% the end",
    ]
)


def write(folder, suffix):
    path = folder / f"rivers{suffix}"
    if suffix == ".parquet":
        FRAME.to_parquet(path)
    elif suffix == ".arff":
        path.write_text(ARFF)
    else:
        delimiter = {".csv": ",", ".txt": ";", ".tsv": "\t"}[suffix]
        FRAME.to_csv(path, sep=delimiter, index=False)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".txt", ".tsv", ".arff", ".parquet"])
def test_formats_agree(tmp_path, suffix):
    out = tmp_path / "out"
    done = import_table(write(tmp_path, suffix), ["flow", "flood"], out)
    assert done.name == "rivers"
    assert done.path == out / "rivers.parquet"
    assert (done.n_rows, done.removed, done.rows_without_target) == (30, {}, 0)
    assert [file.name for file in out.iterdir()] == ["rivers.parquet"]
    table = load_table("rivers", out)
    assert done.inputs == table.inputs == ("depth", "river bed=coarse gravel", "river bed=mud")
    assert done.targets == table.targets == ("flow", "flood")
    bed = [[i % 2 == 0, i % 2 == 1] for i in range(30)]
    np.testing.assert_array_equal(table.x[:, 0], np.float32(FRAME["depth"]))
    np.testing.assert_array_equal(table.x[:, 1:], np.float32(bed))
    np.testing.assert_array_equal(table.y, np.float32(FRAME[["flow", "flood"]]))


def test_chosen_inputs_name_and_one_target(tmp_path):
    done = import_table(write(tmp_path, ".csv"), "flow", tmp_path, "mine", ["flood", "depth"])
    assert (done.path.name, done.inputs, done.targets) == (
        "mine.parquet",
        ("flood", "depth"),
        ("flow",),
    )


def test_what_is_left_out_is_told(tmp_path):
    frame = FRAME.assign(few=[0.1, 0.2, 0.3] * 10, note=[f"text {i}" for i in range(30)])
    frame.loc[[3, 4], "flow"] = None
    frame.loc[[4, 5, 6], "depth"] = None
    path = tmp_path / "gaps.csv"
    frame.to_csv(path)  # with row numbers
    done = import_table(path, "flow", tmp_path)
    assert set(done.removed) == {"", "few", "note"}
    assert (done.n_rows, done.rows_without_target, done.rows_without_input) == (26, 2, 2)


def test_a_file_without_header(tmp_path):
    path = tmp_path / "bare.csv"
    FRAME.to_csv(path, index=False, header=False)
    done = import_table(path, ["2"], tmp_path, header=False)
    assert done.inputs == ("0", "1=coarse gravel", "1=mud", "3")
    for suffix in (".arff", ".parquet"):
        with pytest.raises(InputError, match="only a CSV file can be without a header"):
            import_table(write(tmp_path, suffix), ["2"], tmp_path, "x", header=False)


def test_a_new_import_replaces_the_old(tmp_path):
    path = write(tmp_path, ".csv")
    assert not import_table(path, "flow", tmp_path).replaced
    assert import_table(path, "flood", tmp_path).replaced
    assert load_table("rivers", tmp_path).targets == ("flood",)


@pytest.mark.parametrize("name", SYNTHETIC)
def test_names_of_synthetic_datasets(tmp_path, name):
    """A study would not use the table."""
    path = write(tmp_path, ".csv")
    with pytest.raises(InputError, match=rf"name '{name}' is .* choose another name"):
        import_table(path, "flow", tmp_path / "out", name)
    with pytest.raises(InputError, match=f"name '{name}' is "):
        import_table(path.rename(tmp_path / f"{name}.csv"), "flow", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mine", ""),
        ("ansur2", "30 instead of 1986 rows and 3 instead of 1 inputs"),
        ("meps19", "30 instead of 15785 rows"),
    ],
)
def test_a_name_of_the_paper_for_another_table(tmp_path, name, words):
    done = import_table(write(tmp_path, ".csv"), ["flow", "flood"], tmp_path, name)
    assert done.departure == words


def test_other_spellings_of_names(tmp_path):
    done = import_table(write(tmp_path, ".csv"), "flow", tmp_path, "blogdata")
    assert done.path.name == "blog_data.parquet"


def test_a_file_is_not_replaced_by_its_own_encoding(tmp_path):
    path = write(tmp_path, ".parquet")
    before = path.read_bytes()
    with pytest.raises(InputError, match="choose another name"):
        import_table(path, "flow", tmp_path)
    assert path.read_bytes() == before
    import_table(path, "flow", tmp_path, "encoded")


@pytest.mark.parametrize("name", ["", "..", "../up", "a/b", "a\\b", ".hidden", "with space"])
def test_names_that_could_leave_the_folder(tmp_path, name):
    path = write(tmp_path, ".csv")
    with pytest.raises(InputError, match="cannot name a dataset"):
        import_table(path, "flow", tmp_path / "out", name)
    assert list(tmp_path.iterdir()) == [path]


ROWS = "".join(f"{i / 2},{i},{i % 4}\n" for i in range(20))
BAD = {
    "empty": ("a.csv", b"", "the file is empty"),
    "blank": ("a.csv", b" \n\n", "the file is empty"),
    "header alone": ("a.csv", b"a,b,y\n", "0 rows are left of 0"),
    "no such target": (
        "a.csv",
        f"a,b,why\n{ROWS}",
        r"no column 'y' for the targets; there are a, b",
    ),
    "near target": ("a.csv", f"a,b,Y\n{ROWS}", "did you mean Y"),
    "same names": ("a.csv", f"y,a,y\n{ROWS}", "several columns are named 'y'"),
    "ragged": ("a.csv", f"a,b,y\n{ROWS}1,2\n", "not a CSV file with as many values"),
    "text": ("a.csv", f"a,b,y\n{ROWS}1,2,many\n", "column 'y' holds text, such as 'many'"),
    "nothing": ("a.csv", "a,y\n" + "".join(f"{i},\n" for i in range(20)), "'y' are missing"),
    "few rows": ("a.csv", "a,y\n" + "1,2\n" * 9, "9 rows are left of 9"),
    "one column": ("a.csv", "y\n" + "1\n" * 20, "no input to learn from"),
    "one value": ("a.csv", "a,y\n" + "".join(f"{i},7\n" for i in range(20)), "target 'y' is 7 in"),
    "seconds": (
        "a.csv",
        "a,y\n" + "".join(f"{i},{1_700_000_000 + i}\n" for i in range(40)),
        r"column 'y' does not fit float32: its 40 distinct values become 1\b",
    ),
    "seconds of an input": (
        "a.csv",
        "a,y\n" + "".join(f"{1_700_000_000 + i},{i}\n" for i in range(40)),
        "column 'a' does not fit float32",
    ),
    "same names of inputs": (
        "a.csv",
        "c,c=m,y\n" + "".join(f"{'mf'[i % 2]},{i},{i}\n" for i in range(20)),
        "level 'm' of column 'c' and column 'c=m'",
    ),
    "latin": ("a.csv", "höhe,y\n".encode("latin-1"), r"not UTF-8 text \(byte 1\)"),
    "utf-16": ("a.csv", f"a,b,y\n{ROWS}".encode("utf-16"), "not UTF-8 text"),
    "another suffix": ("a.xlsx", b"PK", r"ends in '\.xlsx' cannot be read"),
    "no suffix": ("a", b"a,y\n", "ends in '' cannot be read"),
    "no parquet": ("a.parquet", b"a,y\n", "not a Parquet file"),
    "empty parquet": ("a.parquet", b"", "not a Parquet file"),
    "half parquet": ("a.parquet", b"PAR1" + b"\0" * 50 + b"PAR1", "not a Parquet file"),
    "no arff": ("a.arff", b"a,y\n1,2\n", r"line 1: 'a,y' is neither @relation"),
    "empty arff": ("a.arff", b"", "the file is empty"),
}


@pytest.mark.parametrize("case", BAD)
def test_files_that_cannot_be_used(tmp_path, case):
    file, content, words = BAD[case]
    path = tmp_path / file
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=words) as caught:
        import_table(path, "y", tmp_path / "out", "name")
    assert str(path) in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("suffix", [".csv", ".arff", ".parquet"])
def test_files_that_are_not_there(tmp_path, suffix):
    with pytest.raises(InputError, match=r"cannot read .*none.*No such file"):
        import_table(tmp_path / f"none{suffix}", "y", tmp_path)
    (tmp_path / f"folder{suffix}").mkdir()
    with pytest.raises(InputError, match=r"cannot read .*folder.*directory"):
        import_table(tmp_path / f"folder{suffix}", "y", tmp_path)


# CSV


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


@pytest.mark.parametrize("word", ["", "?", "NA", "N/A", "nan", "NaN", "NULL", "null", "None", " ?"])
def test_missing_values(word):
    columns = parse_columns(f"a,b,c\n{word},{word},1\n1,x,1\n".encode(), "a.csv")
    assert columns.to_pydict() == {"a": [None, 1], "b": [None, "x"], "c": [1, 1]}


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


@given(st.binary(max_size=200) | st.text(st.sampled_from('ab1.,;\t"\n\r?\0 é'), max_size=80))
def test_hostile_csv(content):
    only_documented_errors(content, ".csv")


# ARFF


def test_arff_details():
    columns = read_arff(
        "@relation x\n"
        "@attribute 'it\\'s' numeric\n"
        '@attribute "double ""numeric\n'
        "@attribute bed{mud,'coarse, gravel',\"?\"}\n"
        "@attribute day date 'yyyy-MM-dd'\n"
        "@attribute note string\n"
        "@data\n"
        "1.5,2,mud,2020-01-01,'tab\\there'\r\n"
        "  -1e3 , ? , 'coarse, gravel' , ?, \"don't\"  \n"
        "% 1,2,3\n"
        '?,inf,"?",2020-01-03, plain\n'.replace('"double ""numeric', '"double " numeric')
    ).to_pydict()
    assert columns == {
        "it's": [1.5, -1000, None],
        "double ": [2, None, math.inf],
        "bed": ["mud", "coarse, gravel", "?"],
        "day": ["2020-01-01", None, "2020-01-03"],
        "note": ["tab\there", "don't", "plain"],
    }


def test_arff_with_tabs_and_without_rows():
    head = "@relation x\n@attribute a real\n@attribute b integer\n@data\n"
    assert read_arff(head + "1\t2\n3\t4\n").to_pydict() == {"a": [1, 3], "b": [2, 4]}
    assert read_arff(head).num_rows == 0


HEAD = "@relation x\n@attribute a numeric\n@attribute b {u, v}\n@data\n"
BAD_ARFF = {
    "too few values": (HEAD + "1\n", "line 5: 1 values, where 2 attributes"),
    "too many values": (HEAD + "1,u\n2,v,3\n", "line 6: 3 values, where 2 attributes"),
    "no number": (HEAD + "one,u\n", "line 5: 'a' is numeric, and 'one' is not"),
    "a number for people": (HEAD + "1_000,u\n", "'a' is numeric, and '1_000' is not"),
    "no level": (HEAD + "1,w\n", "line 5: 'b' has no level 'w'"),
    "open quote": (HEAD + "1,'u\n", "line 5: the quote before 'u' is never closed"),
    "after a quote": (HEAD + "1,'u'v\n", "line 5: 'v' follows a closing quote"),
    "sparse": (HEAD + "{0 1, 1 u}\n", "line 5: sparse rows"),
    "weights": (HEAD + "1,u,{5}\n", "line 5: 3 values"),
    "no data": ("@relation x\n@attribute a numeric\n", "no @data section"),
    "no attributes": ("@relation x\n@data\n1\n", "line 2: @data comes before any @attribute"),
    "no name": ("@attribute\n@data\n", "line 1: an @attribute without a name"),
    "no type": ("@attribute a\n@data\n", "line 1: attribute 'a' has the type ''"),
    "no levels": ("@attribute a {}\n@data\n", "has the type '{}'"),
    "open levels": ("@attribute a {u, v\n@data\n", "not supported"),
    "relational": ("@attribute a relational\n@data\n", "'relational', which is not supported"),
    "open name": ("@attribute 'a numeric\n@data\n", "line 1: the quote before 'a numeric'"),
    "a long line": ("x" * 1000, r"line 1: 'x{40}\.\.\.' is neither"),
}


@pytest.mark.parametrize("case", BAD_ARFF)
def test_bad_arff(case):
    text, words = BAD_ARFF[case]
    with pytest.raises(InputError, match=words):
        read_arff(text)


def quoted(text, quote):
    return quote + re.sub(r"([\\'\"])", r"\\\1", text) + quote


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("C",)), max_size=6)


@given(
    st.lists(TEXTS.filter(bool), min_size=2, max_size=2, unique=True),
    st.lists(st.tuples(st.none() | FLOATS, st.none() | TEXTS), max_size=6),
    st.sampled_from("'\""),
)
def test_arff_goes_round(names, rows, quote):
    levels = sorted({text for _, text in rows if text is not None} | {"other"})
    lines = [
        "@RELATION r",
        f"@attribute {quoted(names[0], quote)} numeric",
        f"@attribute {quoted(names[1], quote)} {{{','.join(quoted(v, quote) for v in levels)}}}",
        "@data",
        *(
            f"{'?' if a is None else repr(a)},{'?' if b is None else quoted(b, quote)}"
            for a, b in rows
        ),
    ]
    columns = read_arff("\n".join(lines)).to_pydict()
    assert columns == {names[0]: [a for a, _ in rows], names[1]: [b for _, b in rows]}


@given(
    st.text(st.sampled_from("@%?{}'\"\\, \t\nax1"), max_size=60),
    st.sampled_from(["", "@attribute ", HEAD]),
)
def test_hostile_arff(text, head):
    only_documented_errors(head + text, ".arff")


# Parquet


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


# Originals of the study


@pytest.mark.parametrize("file", ["ansur2.csv", "air.csv", "scpf.arff"])
def test_an_original_can_be_imported_by_hand(tmp_path, file):
    path = DATA / "raw" / file
    if not path.is_file():
        pytest.skip(f"{path} is not here")
    record = find_dataset(path.stem)
    done = import_table(path, record.targets, tmp_path)
    assert done.departure == ""
    found, expected = load_table(done.name, tmp_path), load_table(done.name, DATA)
    assert found.inputs == expected.inputs
    np.testing.assert_array_equal(found.x, expected.x)
    np.testing.assert_array_equal(found.y, expected.y)


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
