"""`prerank fit`: bad tables, options and files are refused in one line, and nothing is left."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from cli.commands import NONE, call, contents, fit, refused, run

# Tables


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
        "column 'flow' holds text, such as 'low' (1 of 100 rows, first in row 4) for a target: ",
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
    "header alone": (lambda r: r[:0], "has no rows"),
    "too few rows": (lambda r: r[:20], "20 rows are too few to train, select and judge: 30 at"),
    "dates": (
        lambda r: r.assign(day="2020-02-28"),
        "'day' holds dates or times: leave it out (--ignore 'day')",
    ),
    "times": (lambda r: r.assign(at="12:30:00"), "column 'at' holds dates or times"),
    "identifiers": (
        lambda r: pd.concat([r] * 15).assign(site=[f"site {k}" for k in range(1500)]),
        "column 'site' has 1500 different texts in 1500 rows, as names of cases have: leave it out "
        "(--ignore 'site'), or group its texts",
    ),
    "constant target": (lambda r: r.assign(load=2.5), "target 'load' is 2.5 in every row"),
    "repeated names": (repeated, "several columns are named 'bed'"),
    "no input": (lambda r: r[["flow", "load"]], "there is no input to learn from"),
}


def test_tables_that_are_refused(rivers, write, place):
    for case, (change, words) in TABLES.items():
        write(change(rivers), sep=";")
        before = contents(place)
        line = refused(fit("table.csv"))
        assert words in line, case
        assert line.startswith("table.csv: ") or case == "too few rows"
        assert contents(place) == before, case


FILES = {
    "empty": ("table.csv", b"", "table.csv: the file is empty"),
    "blank": ("table.csv", b"\n \n", "table.csv: the file is empty"),
    "ragged": ("table.csv", b"depth,flow,load\n1,2\n3,4,5,6\n", "as many values in each row"),
    "not text": ("table.csv", b"depth,flow,load\n\xff\xfe,1,2\n", "not UTF-8 text"),
    "no Parquet": ("table.parquet", b"depth,flow\n1,2\n", "not a Parquet file"),
    "unknown": ("table.xlsx", b"PK", "ends in '.xlsx' cannot be read: known are .csv"),
    "not there": ("table.csv", None, "cannot read table.csv: No such file or directory"),
}


def test_files_that_are_refused(place):
    for case, (name, data, words) in FILES.items():
        if data is not None:
            (place / name).write_bytes(data)
        before = contents(place)
        assert words in refused(fit(name)), case
        assert contents(place) == before, case
        (place / name).unlink(missing_ok=True)


def test_a_folder_is_no_table(place):
    for name in ("folder", "folder.csv", "folder.parquet"):
        (place / name).mkdir()
        assert refused(fit(name)) == f"cannot read {name}: Is a directory"


OPTIONS = {
    "unknown target": (("--targets", "flwo"), "no column 'flwo' for the targets; did you m"),
    "unknown input": (("--inputs", "dpth"), "no column 'dpth' for the inputs; did you mean dep"),
    "unknown ignored": (("--ignore", "name"), "no column 'name' for the ignored columns"),
    "target twice": (
        ("--targets", "flow,flow"),
        "targets name flow more than once: name each once",
    ),
    "target as input": (
        ("--inputs", "depth,flow"),
        "flow: named for the targets and for",
    ),
    "target ignored": (("--ignore", "flow"), "flow: named for the targets and for the ign"),
    "input ignored": (("--inputs", "depth", "--ignore", "depth"), "depth: named for the ignored "),
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


def test_options_that_are_refused(rivers, write, place):
    table = write(rivers[:60])
    before = contents(place)
    for case, (options, words) in OPTIONS.items():
        given = ("--targets", "flow,load", "--out", "model", *NONE, *options)
        assert words in refused(call("fit", table, *given)), case
        assert contents(place) == before, case


BAD_USAGE = [
    ("--strength", "lots"),
    ("--held-out", "1"),
    ("--held-out", "nan"),
    ("--budget", "-0.1"),
    ("--budget", "nan"),
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


def test_usage_that_is_not_known(rivers, write, place):
    table = write(rivers[:60])
    before = contents(place)
    for words in BAD_USAGE:
        done = call("fit", table, "--targets", "flow,load", "--out", "model", *NONE, *words)
        assert (done.exit_code, done.stdout) == (2, ""), words
        assert words[0] in done.stderr
        assert "Traceback" not in done.stderr
        assert contents(place) == before, words


def test_arguments_that_are_missing():
    for words in ((), ("table.csv",), ("table.csv", "--targets", "a")):
        assert call("fit", *words).exit_code == 2


# Processes that end early

READ = """
import os
import pyarrow.csv
from prerank.files.column_files import read_csv

before = len(os.listdir("/proc/self/task"))
read_csv(b"a,b" + b"\\n1,2" * 100, ",")
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_reading_starts_no_threads_for_the_columns():
    """One that still starts when the process ends aborts it; a reader of bytes is all there is."""
    done = subprocess.run([sys.executable, "-c", READ], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 1


@pytest.mark.slow
def test_a_refusal_is_never_an_abort(place):
    # With threads, 5 of 14 aborted: 12 refusals would come with a probability of .005.
    (place / "header.csv").write_text("a,b\n")
    for _ in range(12):
        done = run("fit", "header.csv", "--targets", "a", "--out", "model", cwd=place)
        assert "header.csv" in refused(done)
