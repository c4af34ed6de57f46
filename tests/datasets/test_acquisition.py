"""Downloads from a real server, which behaves well or badly, and imports of local files."""

import hashlib
import itertools
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyarrow import parquet

from prerank.datasets import (
    DATASETS,
    SYNTHETIC,
    Dataset,
    FetchError,
    Origin,
    Table,
    fetch,
    find_dataset,
    import_table,
    load_table,
    save_table,
)
from prerank.datasets.collection import local_mismatch
from prerank.errors import InputError, InputTypeError, PrerankError
from prerank.files.dataset_tables import content_hash
from servers import serve, start

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

ROWS = [(i / 4, ("mud", "sand", "rock")[i % 3], i % 5 / 2, i, i * i) for i in range(40)]
RIVERS = "\n".join(["depth,bed,few,number,flow", *(",".join(map(str, r)) for r in ROWS), ""])
ORIGINAL = RIVERS.encode()
RECORD = Dataset(
    name="rivers",
    n_rows=40,
    n_inputs=4,
    n_targets=1,
    targets=("flow",),
    rule="by name",
    licence="none",
    origin=Origin(
        repository="someone/tables",
        commit="0" * 40,
        path="data/rivers.csv",
        sha256=hashlib.sha256(ORIGINAL).hexdigest(),
        size=len(ORIGINAL),
    ),
    ignored=("number",),
    sorted_inputs=True,
)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def good():
    with serve({"/rivers.csv": ORIGINAL, "/deep/down/rivers.csv": ORIGINAL}) as server:
        yield server


# Good manners


def test_a_table_arrives(tmp_path, good):
    counts = []
    path = fetch(RECORD, tmp_path / "new", origin=good.url, on_bytes=counts.append)
    assert path == tmp_path / "new" / "rivers.parquet"
    assert sum(counts) == len(ORIGINAL)
    assert [file.name for file in path.parent.iterdir()] == ["rivers.parquet"]
    table = load_table("rivers", path.parent)
    assert table.inputs == ("bed=mud", "bed=rock", "bed=sand", "depth")  # few has 5 values
    assert table.targets == ("flow",)
    np.testing.assert_array_equal(table.x[:, 3], np.float32([row[0] for row in ROWS]))
    np.testing.assert_array_equal(table.y[:, 0], np.float32([row[4] for row in ROWS]))


def test_what_is_there_is_not_downloaded_again(tmp_path, good):
    path = mine(tmp_path, 40, 4, 1)
    before = path.read_bytes()
    assert fetch(RECORD, tmp_path, origin=good.url) == path
    assert path.read_bytes() == before
    assert good.requests == []
    fetch(RECORD, tmp_path, origin=good.url, force=True)
    assert good.requests == ["/rivers.csv"]
    assert load_table("rivers", tmp_path).targets == ("flow",)


def mine(folder, rows, inputs, targets, name="rivers"):
    """A table of one's own where the fetched one would lie."""
    x, y = np.ones((rows, inputs), np.float32), np.ones((rows, targets), np.float32)
    names = [f"mine {i}" for i in range(inputs + targets)]
    return save_table(Table(name, x, y, (*names[:inputs],), (*names[inputs:],)), folder)


@pytest.mark.parametrize("size", [0, -1])
def test_a_file_cut_short_is_downloaded_again(tmp_path, good, size):
    path = fetch(RECORD, tmp_path, origin=good.url)
    whole = path.read_bytes()
    path.write_bytes(whole[:size])
    assert local_mismatch(RECORD, tmp_path).startswith(f"cannot read {path}: ")
    assert fetch(RECORD, tmp_path, origin=good.url) == path
    assert path.read_bytes() == whole
    assert good.requests == ["/rivers.csv"] * 2


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((39, 4, 1), "39 instead of 40 rows"),
        ((40, 3, 1), "3 instead of 4 inputs"),
        ((41, 4, 2), "41 instead of 40 rows and 2 instead of 1 targets"),
    ],
)
def test_a_table_of_another_shape_is_downloaded_again(tmp_path, good, shape, words):
    path = mine(tmp_path, *shape)
    assert local_mismatch(RECORD, tmp_path) == f"{path} has {words}"
    fetch(RECORD, tmp_path, origin=good.url)
    assert local_mismatch(RECORD, tmp_path) == ""
    assert load_table("rivers", tmp_path).targets == ("flow",)


def test_a_broken_file_stays_when_there_is_no_other(tmp_path):
    path = tmp_path / "rivers.parquet"
    path.write_bytes(b"broken")
    with serve({}) as server, pytest.raises(FetchError, match="404"):
        fetch(RECORD, tmp_path, origin=server.url)
    assert path.read_bytes() == b"broken"


def test_what_was_brought_may_have_other_rows(tmp_path):
    """`taxi` here is another sample; nobody wrote down the inputs of `meps_19`."""
    for name, shape in {"taxi": (12, 4, 2), "meps_19": (12, 7, 2)}.items():
        path = mine(tmp_path, *shape, name)
        assert fetch(name, tmp_path) == path
    mine(tmp_path, 12, 4, 3, "taxi")
    with pytest.raises(InputError, match=r"bring .* cannot be used: .* 3 instead of 2 targets"):
        fetch("taxi", tmp_path)


def test_the_tables_of_the_study_fit_their_records():
    if not DATA.is_dir():
        pytest.skip(f"{DATA} is not here")
    assert {
        record.name: local_mismatch(record, DATA)
        for record in DATASETS
        if local_mismatch(record, DATA)
    } == {}


def test_a_mirror_may_lie_deeper_or_on_disk(tmp_path, good):
    fetch(RECORD, tmp_path / "a", origin=f"{good.url}/deep/down/")
    assert good.requests == ["/deep/down/rivers.csv"]
    (tmp_path / "rivers.csv").write_bytes(ORIGINAL)
    fetch(RECORD, tmp_path / "b", origin=tmp_path.as_uri())
    a, b = ((tmp_path / folder / "rivers.parquet").read_bytes() for folder in "ab")
    assert a == b


def test_the_folder_of_the_environment(tmp_path, good, monkeypatch):
    monkeypatch.setenv("PRERANK_DATA", str(tmp_path / "data"))
    assert fetch(RECORD, origin=good.url) == tmp_path / "data" / "rivers.parquet"


def test_a_redirection_is_followed(tmp_path):
    def elsewhere(handler):
        start(handler, 0, 302, Location="/there")

    with serve({"/rivers.csv": elsewhere, "/there": ORIGINAL}) as server:
        assert fetch(RECORD, tmp_path, origin=server.url).is_file()


def test_pieces_without_a_length(tmp_path):
    def pieces(handler):
        start(handler)
        for at in range(0, len(ORIGINAL), 100):
            handler.wfile.write(ORIGINAL[at : at + 100])

    with serve({"/rivers.csv": pieces}) as server:
        assert fetch(RECORD, tmp_path, origin=server.url).is_file()


@pytest.fixture(scope="module")
def originals():
    """The public originals, served."""
    raw = DATA / "raw"
    if not raw.is_dir():
        pytest.skip(f"{raw} is not here")
    with serve({f"/{file.name}": file.read_bytes() for file in raw.iterdir()}) as server:
        yield server


def test_the_tables_of_the_study_are_reproduced(tmp_path, originals):
    for record in DATASETS:
        if not record.fetchable:
            continue
        path = fetch(record.name, tmp_path, origin=originals.url)
        found, expected = parquet.read_table(path), parquet.read_table(DATA / path.name)
        assert found.schema.equals(expected.schema, check_metadata=True)
        for name in expected.column_names:
            assert found[name].to_numpy().tobytes() == expected[name].to_numpy().tobytes()


# Bad manners


def half(handler):
    start(handler, len(ORIGINAL))
    handler.wfile.write(ORIGINAL[: len(ORIGINAL) // 2])


def half_without_a_length(handler):
    start(handler)
    handler.wfile.write(ORIGINAL[: len(ORIGINAL) // 2])


def nothing(handler):
    start(handler)


def endless(handler):
    start(handler)
    for _ in itertools.count():
        handler.wfile.write(ORIGINAL)


def enormous(handler):
    start(handler, 10**15)
    endless(handler)


def broken_pieces(handler):
    start(handler, Transfer_Encoding="chunked")
    handler.wfile.write(b"5\r\ndepth\r\nzz\r\n")


def silence(handler):
    handler.server.over.wait(10)


def stalled(handler):
    half(handler)
    handler.wfile.flush()
    handler.server.over.wait(10)


def dripping(handler):
    start(handler, len(ORIGINAL))
    for byte in ORIGINAL:
        handler.wfile.write(bytes([byte]))
        if handler.server.over.wait(0.05):
            return


def dripping_head(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
    while not handler.server.over.wait(0.05):
        handler.wfile.write(b"x")


def no_http(handler):
    handler.wfile.write(b"220 ftp.example.org ready\r\n")


def in_circles(handler):
    start(handler, 0, 302, Location=handler.path)


def to_a_file(handler):
    start(handler, 0, 302, Location="file:///etc/hostname")


def endless_head(handler):
    handler.send_response(200)
    for number in range(1000):
        handler.send_header(f"X-{number}", "x")
    handler.end_headers()


def failing(handler):
    handler.send_error(500, "out of order")


FORGED = ORIGINAL.replace(b"mud", b"MUD")
BAD = {
    "404": (None, "the server answers 404 Not Found. Name another address by --origin"),
    "500": (failing, "the server answers 500 out of order"),
    "another file of that size": (FORGED, "SHA-256 is"),
    "another file": (b"<html>please log in</html>", "has 26 bytes, the original"),
    "an announced giant": (enormous, "has 1000000000000000 bytes"),
    "an endless file": (endless, "has more than"),
    "half a file": (half, "ended after"),
    "half a file, no length": (half_without_a_length, "ended after"),
    "an empty file": (nothing, "ended after 0 of"),
    "broken pieces": (broken_pieces, "Check the connection"),
    "silence": (silence, "nothing came for 0.3 s. Try again later, or from Python with a"),
    "silence half-way": (stalled, "nothing came for 0.3 s"),
    "a byte now and then": (dripping, "bytes came in"),
    "a head now and then": (dripping_head, "only 0 of"),
    "another protocol": (no_http, "Check the connection"),
    "circles": (in_circles, "302"),
    "a way into the file system": (to_a_file, "302"),
    "an endless head": (endless_head, "headers"),
}


# Long enough for a busy machine where the case is not about time.
TIMEOUTS = {silence: 0.3, stalled: 0.3, dripping: 0.5, dripping_head: 0.5}


@pytest.mark.parametrize("case", BAD)
def test_failures_leave_what_was_there(tmp_path, case):
    answer, words = BAD[case]
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "rivers.parquet").write_bytes(b"old")
    timeout = TIMEOUTS.get(answer, 5)
    began = time.monotonic()
    with serve({} if answer is None else {"/rivers.csv": answer}) as server:
        with pytest.raises(FetchError) as caught:
            fetch(RECORD, folder, origin=server.url, timeout=timeout, force=True)
        assert f"cannot fetch rivers from {server.url}/rivers.csv: " in str(caught.value)
    assert time.monotonic() - began < 5
    assert words in str(caught.value)
    assert isinstance(caught.value, PrerankError)
    assert isinstance(caught.value, OSError)
    assert isinstance(caught.value, ValueError)
    left = [(file.name, file.read_bytes()) for file in tmp_path.rglob("*") if file.is_file()]
    assert left == [("rivers.parquet", b"old")]


def test_no_server(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(FetchError, match=r"fetch rivers from .*refused.*Check the conn.* --origin"):
        fetch(RECORD, tmp_path, origin=f"http://127.0.0.1:{port}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="queues of connections differ elsewhere")
def test_a_server_that_never_accepts(tmp_path):
    """The connection waits in a full queue."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(server.getsockname())
        with pytest.raises(FetchError, match=r"nothing came for 0\.2 s"):
            fetch(
                RECORD, tmp_path, timeout=0.2, origin=f"http://127.0.0.1:{server.getsockname()[1]}"
            )
        for filler in fillers:
            filler.close()


def test_addresses_that_lead_nowhere(tmp_path):
    origins = ("http://127.0.0.1:99999", "http://bad host", "http://[::1", "http:///", "file:///no")
    for origin in origins:
        with pytest.raises(PrerankError):
            fetch(RECORD, tmp_path, origin=origin, timeout=2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("scheme", ["file", "FILE"])
def test_a_folder_that_does_not_hold_it(tmp_path, scheme):
    words = r"cannot fetch .*: .*No such file.*\. Check that the file is there .* by --origin"
    with pytest.raises(FetchError, match=words) as caught:
        fetch(RECORD, tmp_path, origin=f"{scheme}://{tmp_path.as_posix()}")
    assert "connection" not in str(caught.value)


def test_addresses_of_another_kind(tmp_path):
    for origin in ("", "mirror", "/data/raw", "ftp://host", "data:text/csv,a"):
        with pytest.raises(InputError, match="origin must be an address that begins with http"):
            fetch(RECORD, tmp_path, origin=origin)


def test_an_interrupted_download(tmp_path, good):
    def interrupt(count):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(RECORD, tmp_path, origin=good.url, on_bytes=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_errors_of_the_callback_are_not_the_networks(tmp_path, good):
    def fail(count):
        raise ValueError("mine")

    with pytest.raises(ValueError, match=r"^mine$"):
        fetch(RECORD, tmp_path, origin=good.url, on_bytes=fail)


def test_a_folder_that_cannot_be_written(tmp_path, good):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match=r"rivers came from .*, but: cannot write"):
        fetch(RECORD, tmp_path / "file", origin=good.url)


def test_a_record_that_does_not_fit_its_file(tmp_path, good):
    wrong = replace(RECORD, targets=("flwo",))
    with pytest.raises(InputError, match=r"rivers came from .*, but: .*did you mean flow"):
        fetch(wrong, tmp_path, origin=good.url)
    assert list(tmp_path.iterdir()) == []


def test_numbers_that_come_out_otherwise(tmp_path, good):
    fetch(RECORD, tmp_path, origin=good.url)
    right = content_hash(load_table("rivers", tmp_path))
    fetch(replace(RECORD, content=right), tmp_path / "a", origin=good.url)
    with pytest.raises(InputError, match="other numbers"):
        fetch(replace(RECORD, content="0" * 64), tmp_path / "b", origin=good.url)
    assert not (tmp_path / "b").exists()


def test_a_record_whose_name_leaves_the_folder(tmp_path, good):
    with pytest.raises(InputError, match="cannot name a dataset"):
        fetch(replace(RECORD, name="../rivers"), tmp_path, origin=good.url)


def test_those_that_have_to_be_brought(tmp_path):
    for record in (record for record in DATASETS if not record.fetchable):
        with pytest.raises(InputError, match=rf"{record.name} cannot be fetched: bring ") as caught:
            fetch(record.name, tmp_path)
        assert record.bring in str(caught.value)
        assert f"prerank datasets show {record.name}" in str(caught.value)


@pytest.mark.parametrize(("timeout", "error"), [(0, InputError), ("long", InputTypeError)])
def test_bad_timeouts(tmp_path, timeout, error):
    with pytest.raises(error, match="timeout"):
        fetch(RECORD, tmp_path, timeout=timeout)


def test_an_unknown_dataset(tmp_path):
    with pytest.raises(InputError, match="did you mean air"):
        fetch("aire", tmp_path)


# Imports

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


def test_names_of_synthetic_datasets(tmp_path):
    """A study would not use the table."""
    path = write(tmp_path, ".csv")
    for name in SYNTHETIC:
        with pytest.raises(InputError, match=rf"name '{name}' is .* choose another name"):
            import_table(path, "flow", tmp_path / "out", name)
        path = path.rename(tmp_path / f"{name}.csv")
        with pytest.raises(InputError, match=f"name '{name}' is "):
            import_table(path, "flow", tmp_path / "out")
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
    assert done.mismatch == words


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


LINES = "".join(f"{i / 2},{i},{i % 4}\n" for i in range(20))
BAD_FILES = {
    "empty": ("a.csv", b"", "the file is empty"),
    "header alone": ("a.csv", b"a,b,y\n", "0 rows are left of 0"),
    "no such target": (
        "a.csv",
        f"a,b,why\n{LINES}",
        r"no column 'y' for the targets; there are a, b",
    ),
    "same names": ("a.csv", f"y,a,y\n{LINES}", "several columns are named 'y'"),
    "ragged": ("a.csv", f"a,b,y\n{LINES}1,2\n", "not a CSV file with as many values"),
    "few rows": ("a.csv", "a,y\n" + "1,2\n" * 9, "9 rows are left of 9"),
    "one value": ("a.csv", "a,y\n" + "".join(f"{i},7\n" for i in range(20)), "target 'y' is 7 in"),
    "seconds": (
        "a.csv",
        "a,y\n" + "".join(f"{i},{1_700_000_000 + i}\n" for i in range(40)),
        r"column 'y' does not fit float32: its 40 distinct values become 1\b",
    ),
    "latin": ("a.csv", "höhe,y\n".encode("latin-1"), r"not UTF-8 text \(byte 1\)"),
    "utf-16": ("a.csv", f"a,b,y\n{LINES}".encode("utf-16"), "not UTF-8 text"),
    "another suffix": ("a.xlsx", b"PK", r"ends in '\.xlsx' cannot be read"),
    "no suffix": ("a", b"a,y\n", "ends in '' cannot be read"),
    "no parquet": ("a.parquet", b"a,y\n", "not a Parquet file"),
    "empty parquet": ("a.parquet", b"", "not a Parquet file"),
    "no arff": ("a.arff", b"a,y\n1,2\n", r"line 1: 'a,y' is neither @relation"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_files_that_cannot_be_used(tmp_path, case):
    file, content, words = BAD_FILES[case]
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


@pytest.mark.parametrize("file", ["ansur2.csv", "scpf.arff"])
def test_an_original_can_be_imported_by_hand(tmp_path, file):
    path = DATA / "raw" / file
    if not path.is_file():
        pytest.skip(f"{path} is not here")
    record = find_dataset(path.stem)
    done = import_table(path, record.targets, tmp_path)
    assert done.mismatch == ""
    found, expected = load_table(done.name, tmp_path), load_table(done.name, DATA)
    assert found.inputs == expected.inputs
    np.testing.assert_array_equal(found.x, expected.x)
    np.testing.assert_array_equal(found.y, expected.y)
