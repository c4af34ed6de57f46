"""`prerank datasets`, as a user runs it."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

import prerank
from cli.commands import call, said
from prerank.cli import app
from prerank.datasets import (
    DATASETS,
    Dataset,
    Origin,
    Table,
    find_dataset,
    load_table,
    save_table,
)
from servers import serve

TABLES = Path(__file__).resolve().parents[3] / "shared" / "data"
REGISTRY = prerank.datasets  # commands import from it when they run

ORIGINAL = "".join(["depth,flow\n", *(f"{i / 4},{i * i}\n" for i in range(40))]).encode()
RIVERS = Dataset(
    name="rivers",
    n_rows=40,
    n_inputs=1,
    n_targets=1,
    targets=("flow",),
    rule="by name",
    licence="none",
    origin=Origin(
        "someone/tables",
        "0" * 40,
        "data/rivers.csv",
        hashlib.sha256(ORIGINAL).hexdigest(),
        len(ORIGINAL),
    ),
)


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    """An empty data folder, no proxy, and a wide terminal."""
    folder = tmp_path / "data"
    for name, value in {"PRERANK_DATA": str(folder), "no_proxy": "*", "COLUMNS": "250"}.items():
        monkeypatch.setenv(name, value)
    return folder


@pytest.fixture
def rivers(monkeypatch):
    """A registry that also knows a small dataset, and a server that has it."""
    monkeypatch.setattr(REGISTRY, "find_dataset", lambda name: RIVERS)
    with serve({"/rivers.csv": ORIGINAL}) as server:
        yield server.url


def run(*arguments):
    return CliRunner().invoke(app, ["datasets", *map(str, arguments)])


def table(folder, name):
    x = np.arange(24, dtype=np.float32).reshape(12, 2)
    return save_table(Table(name, x, x[:, :1] + 0.5, ("depth", "bed=[sand]"), ("flow",)), folder)


# list


def test_list_without_any_table(data):
    done = run("list")
    assert done.exit_code == 0
    for record in DATASETS:
        assert f" {record.name} " in done.stdout
    assert "not downloadable" in done.stdout
    assert "Vekteur/multi-output-conformal-regression" in done.stdout
    assert not data.exists()


def test_list_with_tables(data):
    table(data, "air")
    table(data, "mine")
    (data / "wq.parquet").write_bytes(b"broken")
    (data / "lost.parquet").write_bytes((data / "mine.parquet").read_bytes()[:-9])
    parquet.write_table(pa.table({"a": [1.0]}), data / "other.parquet")  # not one of ours
    printed = [line for line in run("list").stdout.splitlines() if line.startswith("│")]
    lines = {line.split("│")[1].strip(): line for line in printed}
    cells = [cell.strip() for cell in lines["air"].split("│")[2:-1]]
    assert cells == ["12", "15", "6", "yes", str(data / "air.parquet")]
    assert "own" in lines["mine"]
    assert "damaged" in lines["wq"]
    cells = [cell.strip() for cell in lines["lost"].split("│")[2:-1]]
    assert cells == ["damaged", "?", "?", "own", str(data / "lost.parquet")]
    assert "other" not in lines
    assert len(lines) == 20


def test_list_as_json(tmp_path):
    table(tmp_path / "else", "mine")
    done = run("list", "--json", "--folder", tmp_path / "else")
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert len(rows) == 19
    assert rows["air"]["fetchable"] is True
    assert rows["air"]["local"] is None
    assert rows["meps_19"]["n_inputs"] is None
    assert rows["mine"] == {
        "name": "mine",
        "n_rows": 12,
        "n_inputs": 2,
        "n_targets": 1,
        "fetchable": None,
        "origin": None,
        "local": {
            "path": str(tmp_path / "else" / "mine.parquet"),
            "n_rows": 12,
            "n_inputs": 2,
            "n_targets": 1,
            "problem": "",
        },
    }


# show


@pytest.mark.parametrize("name", ["air", "scm1d", "meps_19"])
def test_show_tells_all(name):
    record = find_dataset(name)
    done = run("show", name)
    assert done.exit_code == 0
    said = " ".join(done.stdout.split())
    for fact in (record.rule, record.licence, record.deviation, record.bring, "here no"):
        assert " ".join(fact.split()) in said
    found = json.loads(run("show", name, "--json").stdout)
    assert found["targets"] == list(record.targets)
    assert found["local"] is None
    if record.origin:
        assert found["commit"] == record.origin.commit
    if record.fetchable:
        assert (found["sha256"], found["size"]) == (record.origin.sha256, record.origin.size)
    else:
        assert found["import_with"].startswith("prerank datasets import FILE --name ")


def test_show_judges_the_copy(data):
    table(data, "air")
    assert "12 rows, 2 inputs, 1 target in" in run("show", "air").stdout
    assert "with OTHER numbers" in " ".join(run("show", "air").stdout.split())
    assert json.loads(run("show", "air", "--json").stdout)["local"]["right_numbers"] is False
    (data / "air.parquet").write_bytes(b"broken")
    said = " ".join(run("show", "air").stdout.split())
    assert "cannot read" in said
    assert said.endswith("; if it is damaged, remove it, and fetch or import it again")


def test_show_a_table_of_ones_own(data):
    table(data, "mine")
    said = run("show", "mine").stdout
    assert "depth, bed=[sand]" in said
    assert "flow" in said
    (data / "mine.parquet").write_bytes(b"broken")
    done = run("show", "mine")
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: cannot read")
    assert done.stderr.endswith("; if it is damaged, remove it, and fetch or import it again\n")


def test_show_by_another_spelling():
    assert json.loads(run("show", "blogdata", "--json").stdout)["name"] == "blog_data"


# fetch


def test_fetch(data, rivers):
    done = run("fetch", "rivers", "--origin", rivers)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == f"rivers: 40 rows, 1 input, 1 target in {data / 'rivers.parquet'}\n"
    again = run("fetch", "rivers", "--origin", "http://127.0.0.1:1")  # not asked
    assert again.exit_code == 0
    assert "already there" in again.stdout
    (data / "rivers.parquet").write_bytes(b"old")
    assert run("fetch", "rivers", "--origin", rivers, "--force").exit_code == 0
    assert load_table("rivers").y.shape == (40, 1)


def test_fetch_in_place_of_a_broken_file(data, rivers):
    run("fetch", "rivers", "--origin", rivers)
    path = data / "rivers.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    done = run("fetch", "rivers", "--origin", rivers)
    assert (done.exit_code, done.stderr) == (0, "")
    said, result = done.stdout.splitlines()
    assert said.startswith(f"rivers is fetched again: cannot read {path}: ")
    assert result == f"rivers: 40 rows, 1 input, 1 target in {path}"
    assert path.read_bytes() == whole


def test_fetch_in_place_of_another_table(data, rivers):
    path = table(data, "rivers")
    done = run("fetch", "rivers", "--origin", rivers)
    wrong = "12 instead of 40 rows and 2 instead of 1 inputs"
    assert done.stdout.splitlines()[0] == f"rivers is fetched again: {path} has {wrong}"
    assert load_table("rivers").y.shape == (40, 1)


def test_fetch_cannot_mend_what_has_to_be_brought(data):
    data.mkdir()
    (data / "scm1d.parquet").write_bytes(b"broken")
    done = run("fetch", "scm1d")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: scm1d cannot be fetched: bring scm1d.arff")
    assert f"What is here cannot be used: cannot read {data / 'scm1d.parquet'}" in done.stderr


def test_fetch_into_a_folder(tmp_path, data, rivers):
    assert run("fetch", "rivers", "--origin", rivers, "--out", tmp_path / "new").exit_code == 0
    assert (tmp_path / "new" / "rivers.parquet").is_file()
    assert not data.exists()


def test_fetch_fails_in_one_line_each_and_goes_on(data):
    with serve({"/ansur2.csv": b"not it", "/air.csv": b"\n" * 770_449}) as server:
        done = run("fetch", "ansur2", "air", "wq", "scm1d", "--origin", server.url)
    assert done.exit_code == 1
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert [line[:24] for line in lines] == [
        "Error: cannot fetch ansu",
        "Error: cannot fetch air ",
        "Error: cannot fetch wq f",
        "Error: scm1d cannot be f",
    ]
    assert not data.exists()


def test_fetch_from_an_address_that_is_none():
    done = run("fetch", "air", "--origin", "http://[::1")
    assert (done.exit_code, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("Error: cannot fetch air from http://[::1/air.csv: ")


def test_fetch_all(data, rivers, monkeypatch):
    brought = [record for record in DATASETS if not record.fetchable]
    monkeypatch.setattr(REGISTRY, "DATASETS", (*brought[:2], RIVERS))
    done = run("fetch", "--all", "--origin", rivers)
    assert done.exit_code == 0, done.stderr
    assert [path.name for path in data.iterdir()] == ["rivers.parquet"]
    names = ", ".join(record.name for record in brought[:2])
    assert done.stdout.endswith(f"see `prerank datasets show NAME`: {names}\n")


@pytest.mark.skipif(not (TABLES / "bio.parquet").is_file(), reason=f"{TABLES} is not here")
def test_show_knows_the_right_numbers():
    said = " ".join(run("show", "bio", "--folder", TABLES).stdout.split())
    assert "with the right numbers" in said


# import


def test_import(tmp_path, data):
    path = tmp_path / "rivers.csv"
    lines = ["depth;bed, name;few;flow", *(f"{i / 4};mud;{i % 3 / 2};{i}" for i in range(20))]
    path.write_text("\n".join([*lines, "1;mud;1;", ";mud;1;1"]))
    done = run("import", path, "--targets", 'flow,"bed, name"')
    assert done.exit_code == 1
    reason = "column 'bed, name' holds text, such as 'mud' (22 of 22 rows, first in row 1)"
    assert done.stderr == f"Error: {path}: {reason}\n"
    assert not data.exists()
    done = run("import", path, "--targets", "flow")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines() == [
        "left out column 'few': numeric with 3 distinct values, fewer than 10",
        "left out 1 row: a target is missing",
        "left out 1 row: an input is missing",
        f"rivers: 20 rows, 2 inputs, 1 target in {data / 'rivers.parquet'}",
    ]
    again = run("import", path, "--targets", "flow").stdout.splitlines()
    assert again == [
        *done.stdout.splitlines()[:-1],
        "replaced the rivers that was there",
        done.stdout.splitlines()[-1],
    ]
    chosen = ["--inputs", "depth", "--name", "mine", "--out", tmp_path / "new"]
    assert run("import", path, "--targets", "flow", *chosen).exit_code == 0
    assert load_table("mine", tmp_path / "new").inputs == ("depth",)


def test_import_under_a_name_of_the_paper(tmp_path, data):
    path = tmp_path / "rivers.csv"
    path.write_text("".join(["depth,flow\n", *(f"{i / 4},{i}\n" for i in range(20))]))
    done = run("import", path, "--targets", "flow", "--name", "air")
    assert done.exit_code == 0
    assert done.stdout == f"air: 20 rows, 1 input, 1 target in {data / 'air.parquet'}\n"
    assert done.stderr == (
        "Note: this is not the paper's air (20 instead of 10000 rows and 1 instead of 15 inputs "
        "and 1 instead of 6 targets), so published values do not compare with it. Choose another "
        "--name for data of your own.\n"
    )
    assert run("import", path, "--targets", "flow", "--name", "mine").stderr == ""


def test_import_under_the_name_of_a_synthetic_dataset(tmp_path, data):
    done = run("import", tmp_path / "rivers.csv", "--targets", "flow", "--name", "ar1")
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: name 'ar1' is that of a synthetic dataset")
    assert not data.exists()


def test_import_without_a_header(tmp_path):
    path = tmp_path / "bare.csv"
    path.write_text("".join(f"{i / 2},{i}\n" for i in range(20)))
    assert run("import", path, "--targets", "1", "--no-header").exit_code == 0
    assert load_table("bare").inputs == ("0",)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("seconds", "column 'seconds' does not fit float32: its 40 distinct values become 1, "),
        ("same", "target 'same' is 7 in every row: there is nothing to predict"),
    ],
)
def test_import_refuses_targets_that_say_nothing(tmp_path, data, target, words):
    path = tmp_path / "rivers.csv"
    path.write_text(
        "\n".join(["depth,seconds,same", *(f"{i / 4},{10**10 + i},7" for i in range(40))])
    )
    done = run("import", path, "--targets", target, "--inputs", "depth")
    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: {path}: {words}")
    assert not data.exists()


@pytest.mark.parametrize(
    "arguments", [("none.csv", "--targets", "a"), ("none.csv", "--targets", "a", "--name", "../b")]
)
def test_import_fails_in_one_line(arguments):
    done = run("import", *arguments)
    assert done.exit_code == 1
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("Error: ")


# Usage

BAD = [
    ((), "Usage"),
    (("lists",), "lists"),
    (("show",), "NAME"),
    (("show", "aire"), "did you mean air"),
    (("fetch",), "--all"),
    (("fetch", "air", "--all"), "--all"),
    (("fetch", "air", "aire"), "did you mean air"),
    (("fetch", "air", "--out", __file__), "--out"),
    (("list", "--folder", __file__), "--folder"),
    (("import", "a.csv"), "--targets"),
    (("import", "a.csv", "--targets", ""), "--targets"),
    (("import", "a.csv", "--targets", "a,,b"), "--targets"),
    (("import", "a.csv", "--targets", "a", "--inputs", " "), "--inputs"),
]


@pytest.mark.parametrize(("arguments", "word"), BAD, ids=[" ".join(a[:3]) for a, _ in BAD])
def test_bad_arguments_exit_with_2(data, arguments, word):
    done = run(*arguments)
    assert done.exit_code == 2
    assert word in done.output
    assert not data.exists()


def test_the_list_explains_its_letters_and_show_cuts_no_word():
    assert "L: number of inputs, after encoding; D: number of targets" in said(
        call("datasets", "list")
    )
    shown = call("datasets", "show", "air", columns=60).stdout
    assert "63d90546808e08166159bac726f967d9584fd97513b47576f70bf599832c0012" in shown
    assert "10,000" in shown
    assert "max_PM2.5, max_NO2, max_O3" in shown
