"""Every way in takes sound files, refuses damaged ones, and the walls hold."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.entries import ENTRIES
from fuzz.mutations import mutate

TESTS = Path(__file__).parents[1]
CASES = int(os.environ.get("PRERANK_FUZZ_CASES", "10000"))


ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(TESTS)}


def fuzz(*arguments: object) -> subprocess.CompletedProcess[str]:
    """In a process of its own: a crash is an exit code, and limits stay behind."""
    return subprocess.run(
        [sys.executable, "-m", "fuzz.run", *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
    )


@pytest.mark.parametrize("name", ENTRIES)
def test_sound_files_are_read(name, tmp_path):
    entry = ENTRIES[name]
    corpus = entry.corpus()
    for which in corpus:
        folder = tmp_path / f"{which}.folder"
        folder.mkdir()
        for other, content in corpus.items():
            (folder / other).write_bytes(content)
        entry.seal(folder, which)
        entry.use(folder, which)


def test_damaged_files_are_refused(tmp_path):
    done = fuzz("--cases", 100, "--seed", 7, "--keep", tmp_path / "kept")
    assert done.returncode == 0, done.stderr[-3000:]
    assert [line.split(" from")[0] for line in done.stdout.splitlines()] == [
        f"{name}: 100 cases" for name in ENTRIES
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", ENTRIES)
def test_many_damaged_files_are_refused(name, tmp_path):
    done = fuzz("--entry", name, "--cases", CASES, "--keep", tmp_path / "kept")
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_case_is_a_function_of_its_number():
    data = b"x0,y0\n1,2\n3,4\n"
    first, again = (mutate(data, random.Random("a 0 1"), [data]) for _ in range(2))
    assert first == again
    assert len({mutate(data, random.Random(f"a 0 {i}"), [data]) for i in range(200)}) > 100


WALLS = """
import os, pickle, subprocess, sys, time
from pathlib import Path
from fuzz import sandbox
sandbox.SECONDS = 0.2
sandbox.build()
inside, outside = Path({folder!r}, "inside"), Path({folder!r}, "outside")
inside.mkdir(exist_ok=True)
actions = {{
    "write inside": lambda: (inside / "file").write_text("x"),
    "read outside": lambda: Path(sandbox.__file__).read_text(),
    "write outside": lambda: outside.write_text("x"),
    "write by a link": lambda: (inside / "link" / "file").write_text("x"),
    "remove outside": lambda: os.remove(outside),
    "start": lambda: subprocess.run(["true"]),
    "shell": lambda: os.system("true"),
    "unpickle": lambda: pickle.loads(pickle.dumps(Path)),
    "hang": lambda: time.sleep(5),
    "allocate": lambda: bytearray(8 << 30),
}}
(inside / "link").symlink_to({folder!r})
try:
    with sandbox.walls(inside):
        actions[{action!r}]()
except BaseException as error:
    print(type(error).__name__)
else:
    print("allowed")
"""


@pytest.mark.parametrize(
    ("action", "outcome"),
    [
        ("write inside", "allowed"),
        ("read outside", "allowed"),
        ("write outside", "Escape"),
        ("write by a link", "Escape"),
        ("remove outside", "Escape"),
        ("start", "Escape"),
        ("shell", "Escape"),
        ("unpickle", "Escape"),
        ("hang", "Hang"),
        ("allocate", "MemoryError"),
    ],
)
def test_walls(action, outcome, tmp_path):
    script = WALLS.format(folder=str(tmp_path), action=action)
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, env=ENVIRONMENT
    )
    assert done.stdout.strip() == outcome, done.stderr
