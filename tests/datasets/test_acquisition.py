"""Downloads from a real server, which behaves well or badly."""

import hashlib
import itertools
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from prerank.datasets import (
    DATASETS,
    Dataset,
    FetchError,
    Origin,
    Table,
    fetch,
    load_table,
    save_table,
)
from prerank.datasets.collection import local_mismatch
from prerank.errors import InputError, InputTypeError, PrerankError
from prerank.files.dataset_tables import content_hash
from servers import serve, start

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
FETCHABLE = [record for record in DATASETS if record.fetchable]

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


@pytest.mark.parametrize("size", [0, 3, 100, -1])
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


@pytest.mark.parametrize("record", FETCHABLE, ids=lambda record: record.name)
def test_the_tables_of_the_study_are_reproduced(tmp_path, originals, record):
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
@pytest.mark.parametrize("force", [False, True])
def test_failures_leave_nothing_behind(tmp_path, case, force):
    answer, words = BAD[case]
    folder = tmp_path / "data"
    if force:  # what was there before stays
        folder.mkdir()
        (folder / "rivers.parquet").write_bytes(b"old")
    timeout = TIMEOUTS.get(answer, 5)
    began = time.monotonic()
    with serve({} if answer is None else {"/rivers.csv": answer}) as server:
        with pytest.raises(FetchError) as caught:
            fetch(RECORD, folder, origin=server.url, timeout=timeout, force=force)
        assert f"cannot fetch rivers from {server.url}/rivers.csv: " in str(caught.value)
    assert time.monotonic() - began < 5
    assert words in str(caught.value)
    assert isinstance(caught.value, PrerankError)
    assert isinstance(caught.value, OSError)
    assert isinstance(caught.value, ValueError)
    left = [(file.name, file.read_bytes()) for file in tmp_path.rglob("*") if file.is_file()]
    assert left == ([("rivers.parquet", b"old")] if force else [])


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


@pytest.mark.parametrize(
    "origin", ["http://127.0.0.1:99999", "http://bad host", "http://[::1", "http:///", "file:///no"]
)
def test_addresses_that_lead_nowhere(tmp_path, origin):
    with pytest.raises(PrerankError):
        fetch(RECORD, tmp_path, origin=origin, timeout=2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("scheme", ["file", "FILE"])
def test_a_folder_that_does_not_hold_it(tmp_path, scheme):
    words = r"cannot fetch .*: .*No such file.*\. Check that the file is there .* by --origin"
    with pytest.raises(FetchError, match=words) as caught:
        fetch(RECORD, tmp_path, origin=f"{scheme}://{tmp_path.as_posix()}")
    assert "connection" not in str(caught.value)


@pytest.mark.parametrize("origin", ["", "mirror", "/data/raw", "ftp://host", "data:text/csv,a"])
def test_addresses_of_another_kind(tmp_path, origin):
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


@pytest.mark.parametrize("record", [d for d in DATASETS if not d.fetchable], ids=lambda d: d.name)
def test_those_that_have_to_be_brought(tmp_path, record):
    with pytest.raises(InputError, match=rf"{record.name} cannot be fetched: bring ") as caught:
        fetch(record.name, tmp_path)
    assert record.bring in str(caught.value)
    assert f"prerank datasets show {record.name}" in str(caught.value)


@pytest.mark.parametrize(
    ("timeout", "error"), [(0, InputError), (-1, InputError), ("long", InputTypeError)]
)
def test_bad_timeouts(tmp_path, timeout, error):
    with pytest.raises(error, match="timeout"):
        fetch(RECORD, tmp_path, timeout=timeout)


def test_an_unknown_dataset(tmp_path):
    with pytest.raises(InputError, match="did you mean air"):
        fetch("aire", tmp_path)
