"""Running commands, in a process of their own or in this one, and what they may leave behind."""

import json
import os
import pty
import re
import resource
import select
import subprocess
import sys
import time
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path

from typer.testing import CliRunner

import prerank
from prerank.cli import app

SOURCE = Path(prerank.__file__).parents[1]
QUICK = ("--method", "network", "--max-epochs", "3", "--components", "1")
NONE = ("--strength", "0", *QUICK)
SETTINGS = {
    "PYTHONPATH": str(SOURCE),
    "COLUMNS": "200",
    "OMP_NUM_THREADS": "1",
    "PYTHONIOENCODING": "utf-8",
    "NO_COLOR": "1",
}
PROGRESS = re.compile(
    r"About [\d.]+ (s|min|h) (in all:|for \d+ units? on) .*"
    r"|[ 1]?[ \d]\d% .*; about .* left"
)
COMMAND = (sys.executable, "-m", "prerank")


def run(*arguments, cwd, **environment):
    """A process of its own, as a user starts it."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        env=os.environ | SETTINGS | environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


SEVERAL = """
import json, sys
from prerank.__main__ import main
for sys.argv[1:] in json.loads(sys.argv[1]):
    try:
        main()
    except SystemExit as end:
        code = end.code
    for stream in (sys.stdout, sys.stderr):
        print(f"\\0{code}\\0", end="", file=stream, flush=True)
"""


def run_several(*commands, cwd):
    """Several commands, one after the other, in a process of their own."""
    words = json.dumps([[str(word) for word in command] for command in commands])
    done = subprocess.run(
        [sys.executable, "-c", SEVERAL, words],
        cwd=cwd,
        env=os.environ | SETTINGS,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    output, errors = (text.split("\0")[:-1] for text in (done.stdout, done.stderr))
    assert len(output) == len(errors) == 2 * len(commands)
    return [
        subprocess.CompletedProcess(command, int(code), told, error)
        for command, code, told, error in zip(
            commands, output[1::2], output[::2], errors[::2], strict=True
        )
    ]


def interrupted(*arguments, cwd, number, ready, limit=60):
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
    shown, sent, end = b"", False, time.monotonic() + limit
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
        output, _ = process.communicate(timeout=limit)
    finally:
        process.kill()
        os.close(ours)
    assert sent
    return process.returncode, output, shown.decode()


def call(*arguments, columns=200):
    """The same in this process, which is quick."""
    done = CliRunner(env={"COLUMNS": str(columns)}).invoke(app, [str(word) for word in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def fit(table, *options, targets="flow,load", out="model"):
    """`prerank fit` without a penalty, unless options say more."""
    return call("fit", table, "--targets", targets, "--out", out, *(options or NONE))


def without_progress(text):
    """What a command printed on standard error, without the lines on its progress."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not PROGRESS.fullmatch(line.rstrip("\n")))


def said(done):
    """What a command that worked printed, with single spaces; besides, it may tell its progress."""
    code = done.exit_code if hasattr(done, "exit_code") else done.returncode
    assert code == 0, done.stderr
    assert without_progress(done.stderr) == ""
    return " ".join(done.stdout.split())


def record(done):
    """The one JSON value that a command printed, all of whose numbers are finite."""

    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    return json.loads(done.stdout, parse_constant=refuse)


def refused(done):
    """The line that says why nothing was done; another may say what works."""
    code = done.exit_code if hasattr(done, "exit_code") else done.returncode
    assert (code, done.stdout) == (1, ""), done.stderr
    text = without_progress(done.stderr)
    assert text.startswith("Error: ")
    assert text.endswith("\n")
    assert "Traceback" not in text
    line, *more = text.removeprefix("Error: ").splitlines()
    assert all(other.startswith("This works: prerank ") for other in more), done.stderr
    assert len(more) < 2
    return line.strip()


@contextmanager
def small_files(size=1000):
    """Let no file be larger than so many bytes: writing fails midway, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def contents(folder):
    """Bytes of all files below a folder, None for the folders, hidden ones too."""
    return {
        path.relative_to(folder).as_posix(): None if path.is_dir() else path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
    }


class Reader(HTMLParser):
    """A page whose tags are all closed: its text, its headline and its mood."""

    def __init__(self, path):
        super().__init__(convert_charrefs=True)
        self.open, self.text, self.headline, self.mood = [], "", "", ""
        self.within = ""
        self.feed(Path(path).read_text(encoding="utf-8"))
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.within = dict(attrs).get("class") or ""
        if self.within.startswith("verdict "):
            self.mood = self.within.removeprefix("verdict ")
        if tag not in {"meta", "link", "img", "br", "wbr"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        self.within = ""

    def handle_data(self, data):
        if self.within in ("headline", "headline long"):
            self.headline += data
        if "style" not in self.open and "script" not in self.open:
            self.text += data
