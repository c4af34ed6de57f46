"""`prerank fit`: good tables become a model and its report, bad ones a line."""

import os
import pty
import re
import select
import signal
import subprocess
import time

import numpy as np
import pandas as pd
import pytest

import prerank
from cli.commands import (
    COMMAND,
    QUICK,
    SETTINGS,
    Reader,
    call,
    contents,
    record,
    refused,
    run,
    said,
    small_files,
)

NONE = ("--strength", "0", *QUICK)


def fit(table, *options, targets="flow,load", out="model"):
    return call("fit", table, "--targets", targets, "--out", out, *(options or NONE))


def predicted(folder, rows):
    """Of a model that comes from a file."""
    return prerank.load_model(folder).predict(rows)


# Good tables


def test_help_names_commands_and_codes(place):
    words = said(run("--help", cwd=place))
    for name in ("fit", "predict", "diagnose", "explain", "demo", "datasets", "study"):
        assert f" {name} " in words
    assert "Exit codes: 0 done, 1 refused" in words


@pytest.mark.parametrize("command", ["fit", "predict", "diagnose", "explain"])
def test_help_of_commands(command):
    words = said(call(command, "--help"))
    assert words.startswith(f"Usage: prerank {command} ")
    assert "--json" in words


def test_fit_tells_what_it_did_and_found(fitted):
    done, folder = fitted
    lines = said(done)
    assert "Trained on 80 rows, 20 held out. Penalty: strength 5." in lines
    assert re.search(r"Energy score on held-out rows: 0\.\d{4} ", lines)
    assert "rows to tell" in lines  # 20 are too few
    assert "Model: model; report: model/report.html" in lines
    assert "Next: prerank predict model NEW.csv --out predictions.parquet" in lines
    assert sorted(path.name for path in folder.iterdir()) == ["model", "rivers.csv"]
    names = sorted(path.name for path in (folder / "model").iterdir())
    assert names[1:] == ["model.json", "report.html"]
    assert names[0].endswith(".safetensors")


def test_the_page_names_verdict_data_and_settings(fitted):
    done, folder = fitted
    page = Reader(folder / "model" / "report.html")
    assert page.headline in done.stdout
    assert page.mood == "unclear"
    for words in ("Model of rivers.csv", "Before and after the penalty", "strength", "depth, bed"):
        assert words in page.text


def test_the_model_predicts_from_python(fitted, rivers):
    _, folder = fitted
    model = prerank.load_model(folder / "model")
    assert model.strength_ == 5
    assert model.target_names_ == ("flow", "load")
    assert list(model.feature_names_in_) == ["depth", "bed", "wet"]
    found = model.predict(rivers[["depth", "bed", "wet"]])
    assert found.shape == (100, 2)
    assert np.corrcoef(found[:, 0], rivers.depth)[0, 1] > 0.5


def test_a_seed_gives_the_same_model_again(fitted, rivers, write, undrawn):
    _, folder = fitted
    options = ("--strength", "5", *QUICK)
    said(fit(write(rivers), *options))
    said(fit("table.csv", *options, "--seed", "1", out="other"))
    same, other = (
        {name for name in contents(out) if name.endswith(".safetensors")}
        for out in ("model", "other")
    )
    assert same < set(contents(folder / "model"))
    assert other != same
    x = rivers[["depth", "bed", "wet"]]
    assert (predicted("model", x) == predicted(folder / "model", x)).all()


def test_a_parquet_file_one_target_and_no_penalty(rivers, undrawn):
    rivers.drop(columns="load").to_parquet("rivers.parquet")
    words = said(fit("rivers.parquet", *NONE, targets="flow"))
    assert "Penalty: strength 0." in words
    assert prerank.load_model("model").target_names_ == ("flow",)
    assert Reader("model/report.html").headline in words


def test_semicolons_and_a_selected_strength(rivers, write):
    table = write(rivers, sep=";")
    done = fit(table, "--strength", "auto", "--json", *QUICK)
    found = record(done)
    assert done.exit_code == 0
    assert done.stderr == ""
    assert set(found) == {
        *("model", "report", "strength", "energy_score", "n_train"),
        *("n", "verdict", "findings", "skipped"),
    }
    assert (found["n_train"], found["n"]) == (80, 20)
    assert found["energy_score"] > 0
    assert found["verdict"]["mood"] == "unclear"
    whole = [row for row in found["findings"] if row["component"] == "all"]
    assert [row["prerank"] for row in whole][:2] == ["marginal", "location"]
    assert "dependency" in found["skipped"]
    model = prerank.load_model("model")
    assert model.selection_ is not None
    assert model.strength_ == found["strength"]
    page = Reader(found["report"])
    assert page.headline == found["verdict"]["headline"]
    assert "Selection of the strength" in page.text
    assert model.selection_.reason


def test_quiet_prints_nothing(rivers, write, undrawn):
    done = fit(write(rivers), *NONE, "--quiet", out="new/folder/model")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
    assert (prerank.load_model("new/folder/model").n_outputs_) == 2


def test_rows_with_missing_values_are_dropped_on_request(rivers, write, undrawn):
    gaps = rivers.copy()
    gaps.loc[3, "flow"] = np.nan
    gaps.loc[5, "bed"] = None
    line = refused(fit(write(gaps), *NONE))
    assert "'bed' (1, first in row 6), 'flow' (1, first in row 4)" in line
    assert "--drop-missing" in line
    assert "Trained on 78 rows, 20 held out" in said(fit("table.csv", *NONE, "--drop-missing"))


def test_inputs_are_chosen_or_ignored(rivers, write, undrawn):
    dated = rivers.assign(day=pd.date_range("2020-01-01", periods=100))
    assert "column 'day' holds dates" in refused(fit(write(dated)))
    said(fit("table.csv", *NONE, "--ignore", "day,bed"))
    assert list(prerank.load_model("model").feature_names_in_) == ["depth", "wet"]
    said(fit("table.csv", *NONE, "--inputs", "depth", "--force"))
    assert list(prerank.load_model("model").feature_names_in_) == ["depth"]


# Bad tables: every one is refused in one line, and leaves nothing


def with_value(rivers, name, row, value):
    table = rivers.astype({name: object})
    table.loc[row, name] = value
    return table


def repeated(rivers):
    table = rivers.copy()
    table.columns = ["depth", "bed", "bed", "flow", "load"]
    return table


TABLES = {
    "text in a target": (
        lambda r: with_value(r, "flow", 3, "low"),
        "column 'flow' holds text, such as 'low' (1 of 100 rows, first in row 4): targets must be",
    ),
    "decimal commas": (
        lambda r: r.assign(flow=r.flow.astype(str).str.replace(".", ",")),
        "decimals need a point",
    ),
    "missing": (lambda r: with_value(r, "depth", 0, np.nan), "'depth' (1, first in row 1)"),
    "no value at all": (lambda r: r.assign(flow=np.nan), "'flow' has no value in any row"),
    "infinite input": (lambda r: with_value(r, "depth", 2, np.inf), "'depth' is infinite"),
    "infinite target": (lambda r: with_value(r, "load", 2, -np.inf), "'load' is infinite"),
    "too large": (lambda r: r.assign(load=r.load * 1e200), "'load' is infinite or too large"),
    "header alone": (lambda r: r[:0], "no row below"),
    "too few rows": (lambda r: r[:20], "20 rows are too few to train, select and judge: 30 at"),
    "dates": (lambda r: r.assign(day="2020-02-28"), "column 'day' holds dates or times: ignore it"),
    "times": (lambda r: r.assign(at="12:30:00"), "column 'at' holds dates or times"),
    "identifiers": (
        lambda r: pd.concat([r] * 15).assign(site=[f"site {k}" for k in range(1500)]),
        "column 'site' has 1200 different texts",
    ),
    "constant target": (lambda r: r.assign(load=2.5), "target 'load' is 2.5 in every row"),
    "repeated names": (repeated, "several columns are named 'bed'"),
    "no input": (lambda r: r[["flow", "load"]], "there is no input to learn from"),
}


@pytest.mark.parametrize("case", TABLES)
def test_tables_that_are_refused(case, rivers, write, place):
    change, words = TABLES[case]
    write(change(rivers), sep=";")
    before = contents(place)
    line = refused(fit("table.csv"))
    assert words in line
    if case not in ("too few rows", "identifiers"):
        assert line.startswith("table.csv: ")
    assert contents(place) == before


FILES = {
    "empty": ("table.csv", b"", "table.csv: the file is empty"),
    "blank": ("table.csv", b"\n \n", "table.csv: the file is empty"),
    "ragged": ("table.csv", b"depth,flow,load\n1,2\n3,4,5,6\n", "as many values in each row"),
    "not text": ("table.csv", b"depth,flow,load\n\xff\xfe,1,2\n", "not UTF-8 text"),
    "no Parquet": ("table.parquet", b"depth,flow\n1,2\n", "not a Parquet file"),
    "unknown": ("table.xlsx", b"PK", "ends in '.xlsx' cannot be read: known are .csv"),
    "not there": ("table.csv", None, "cannot read table.csv: No such file or directory"),
}


@pytest.mark.parametrize("case", FILES)
def test_files_that_are_refused(case, place):
    name, data, words = FILES[case]
    if data is not None:
        (place / name).write_bytes(data)
    before = contents(place)
    assert words in refused(fit(name))
    assert contents(place) == before


@pytest.mark.parametrize("name", ["folder", "folder.csv", "folder.parquet"])
def test_a_folder_is_no_table(name, place):
    (place / name).mkdir()
    assert refused(fit(name)) == f"cannot read {name}: Is a directory"


OPTIONS = {
    "unknown target": (("--targets", "flwo,load"), "no column 'flwo' for the targets. Did you m"),
    "unknown input": (("--inputs", "dpth"), "no column 'dpth' for the inputs. Did you mean 'dep"),
    "unknown ignored": (("--ignore", "name"), "no column 'name' for the ignored columns. The col"),
    "target twice": (("--targets", "flow,flow"), "targets name flow twice"),
    "target as input": (("--inputs", "depth,flow"), "flow: a target cannot be an input"),
    "target ignored": (("--ignore", "flow"), "flow: a target cannot be an input, or ignored"),
    "input ignored": (("--inputs", "depth", "--ignore", "depth"), "depth: an input cannot be ign"),
    "prerank": (("--preranks", "hdrr"), "unknown prerank 'hdrr'. Did you mean 'hdr'?"),
    "prerank of more targets": (
        ("--preranks", "dependency", "--strength", "1"),
        "dependency needs at least 3 targets",
    ),
    "negative strength": (("--strength", "-1"), "strength must be at least 0 or 'auto', got -1.0"),
    "strength nan": (("--strength", "nan"), "strength must be at least 0"),
    "endless strength": (("--strength", "inf"), "strength must be at least 0"),
    "device": (("--device", "gpuu"), "device='gpuu' cannot be used"),
    "no device": (("--device", "cuda:99"), "device='cuda:99' cannot be used"),
    "held out": (("--held-out", "0.9"), "is too few: at least"),
    "below a file": (("--out", "table.csv/model"), "cannot write table.csv/model: Not a directory"),
    "nowhere": (("--out", "/proc/model"), "cannot write /proc/model: "),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_options_that_are_refused(case, rivers, write, place):
    options, words = OPTIONS[case]
    table = write(rivers[:60])
    before = contents(place)
    given = ("--targets", "flow,load", "--out", "model", *NONE, *options)
    assert words in refused(call("fit", table, *given))
    assert contents(place) == before


BAD_USAGE = [
    ("--strength", "lots"),
    ("--held-out", "1"),
    ("--held-out", "nan"),
    ("--budget", "-0.1"),
    ("--components", "0"),
    ("--max-epochs", "0"),
    ("--seed", "-1"),
    ("--seed", str(2**32)),
    ("--targets", ""),
    ("--targets", "flow,,load"),
    ("--inputs", ""),
    ("--ignore", " "),
    ("--out", "table.csv"),
    ("--frobnicate", "1"),
]


@pytest.mark.parametrize("words", BAD_USAGE, ids=" ".join)
def test_usage_that_is_not_known(words, rivers, write, place):
    table = write(rivers[:60])
    before = contents(place)
    done = call("fit", table, "--targets", "flow,load", "--out", "model", *NONE, *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words[0] in done.stderr
    assert "Traceback" not in done.stderr
    assert contents(place) == before


def test_arguments_that_are_missing():
    for words in ((), ("table.csv",), ("table.csv", "--targets", "a")):
        assert call("fit", *words).exit_code == 2


# The folder


def test_a_model_is_replaced_on_request_alone(fitted, rivers, write, undrawn):
    said(fit(write(rivers)))
    before = contents("model")
    line = refused(fit("table.csv"))
    assert line == "model is already there: choose another folder, or replace it (--force)"
    assert contents("model") == before
    said(fit("table.csv", *NONE, "--seed", "7", "--force"))
    after = contents("model")
    assert len(after) == len(before) == 3
    assert set(after) != set(before)
    assert sorted(os.listdir()) == ["model", "table.csv"]


FOREIGN = {
    "a file": ({"notes.txt": "mine"}, "something else than a model (notes.txt)"),
    "many files": (dict.fromkeys("abcde", ""), "something else than a model (a, b, c, ...)"),
    "a hidden file": ({".git": "mine"}, "something else than a model (.git)"),
    "a model of others": ({"model.json": '{"layers": 3}'}, "no model of prerank's"),
    "others' weights": ({"0123.safetensors": ""}, "no model of prerank's"),
    "a page": ({"report.html": "mine"}, "no model of prerank's"),
    "no JSON": ({"model.json": "{"}, "no model of prerank's"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_what_is_no_model_is_never_deleted(case, rivers, write, place):
    files, words = FOREIGN[case]
    (place / "model").mkdir()
    for name, text in files.items():
        (place / "model" / name).write_text(text)
    write(rivers)
    before = contents(place)
    assert "already there" in refused(fit("table.csv"))
    assert words in refused(fit("table.csv", *NONE, "--force"))
    assert contents(place) == before


def test_a_model_with_other_files_is_not_deleted(fitted, place):
    _, folder = fitted
    (place / "model").mkdir()
    for name, data in contents(folder / "model").items():
        (place / "model" / name).write_bytes(data)
    (place / "model" / "predictions.csv").write_text("row\n")
    before = contents(place)
    line = refused(fit(folder / "rivers.csv", *NONE, "--force"))
    assert line == "model holds something else than a model (predictions.csv): it is not replaced"
    assert contents(place) == before


def test_empty_folders_and_links_become_models(rivers, write, place, undrawn):
    (place / "there").mkdir()
    (place / "link").symlink_to("there")
    (place / "ahead").symlink_to("new")
    table = write(rivers)
    said(fit(table, *NONE, "--force", out="link"))
    said(fit(table, *NONE, out="ahead"))
    for out in ("link", "there", "ahead", "new"):
        assert prerank.load_model(out).n_outputs_ == 2
    assert sorted(os.listdir()) == ["ahead", "link", "new", "table.csv", "there"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_must_not_be_written(rivers, write, place):
    table = write(rivers)
    closed = place / "closed"
    closed.mkdir(mode=0o555)
    assert refused(fit(table, out="closed/model")) == "cannot write closed/model: Permission denied"
    assert contents(closed) == {}


def failing(*_, **__):
    raise OSError(5, "Input/output error")


@pytest.mark.parametrize("force", [False, True], ids=["new", "forced"])
def test_a_page_that_cannot_be_written_leaves_what_was(
    force, fitted, rivers, write, place, undrawn, monkeypatch
):
    table = write(rivers)
    if force:
        said(fit(table, out="new/model"))
    before = contents(place)
    monkeypatch.setattr("prerank.report.pages.write_page", failing)
    done = fit(table, *NONE, *["--force"][: int(force)], "--seed", "3", out="new/model")
    assert refused(done) == "cannot write new/model: Input/output error"
    assert contents(place) == before


def test_a_full_disk(fitted, place):
    _, folder = fitted
    words = ("--targets", "flow,load", "--out", "new/model", *NONE)
    with small_files():  # of the child, too
        done = run("fit", folder / "rivers.csv", *words, cwd=place)
    line = refused(done)
    assert line.startswith("cannot write new/model: ")
    assert "File too large" in line
    assert contents(place) == {}


# Interrupts


def interrupted(*arguments, cwd, number, ready):
    """Start a command on a terminal, send a signal when it is ready, and say how it ended."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        env=os.environ | SETTINGS | {"TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    shown, sent, end = b"", False, time.monotonic() + 60
    try:
        while time.monotonic() < end:
            if select.select([ours], [], [], 0.01)[0]:
                try:
                    shown += os.read(ours, 65_536)
                except OSError:  # the other end is closed
                    break
            if not sent and ready(shown):
                process.send_signal(number)
                sent = True
        output, _ = process.communicate(timeout=10)
    finally:
        process.kill()
        os.close(ours)
    assert sent
    return process.returncode, output, shown.decode()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_an_interrupted_training_leaves_nothing(number, fitted, place):
    _, folder = fitted
    words = ("--targets", "flow,load", "--out", "new/model")
    code, output, shown = interrupted(
        *("fit", folder / "rivers.csv", *words),
        cwd=place,
        number=number,
        ready=lambda shown: b"training, " in shown,
    )
    assert (code, output) == (130, b"")
    assert "Error: interrupted: nothing half done is left" in shown
    assert "Traceback" not in shown
    assert contents(place) == {}


def test_an_interrupt_while_writing_leaves_the_old_model(fitted, place):
    _, folder = fitted
    (place / "model").mkdir()
    for name, data in contents(folder / "model").items():
        (place / "model" / name).write_bytes(data)
    before = contents(place)
    words = ("--targets", "flow,load", "--out", "model", "--force", *NONE)
    code, output, shown = interrupted(
        *("fit", folder / "rivers.csv", *words),
        cwd=place,
        number=signal.SIGTERM,
        ready=lambda _: list(place.glob(".model.*/new/*.safetensors")),
    )
    assert (code, output) == (130, b"")
    assert "Error: interrupted" in shown
    assert contents(place) == before
