"""Every way in takes sound files, refuses damaged ones, and the walls hold."""

import contextlib
import io
import json
import os
import random
import subprocess
import sys
import tomllib
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import prerank
from fuzz.entries import ENTRIES, Entry
from fuzz.mutations import mutate
from fuzz.run import case

TESTS = Path(__file__).parents[1]
CASES = int(os.environ.get("PRERANK_FUZZ_CASES", "1000"))


SOURCE = Path(prerank.__file__).parents[1]
PATHS = os.pathsep.join(map(str, (SOURCE, TESTS)))
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": PATHS}


def fuzz(*arguments: object) -> subprocess.CompletedProcess[str]:
    """In a process of its own: a crash is an exit code, and limits stay behind."""
    return subprocess.run(
        [sys.executable, "-m", "fuzz.run", *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=3600,
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
    done = fuzz("--cases", 50, "--seed", 7, "--keep", tmp_path / "kept")
    assert done.returncode == 0, done.stderr[-3000:]
    assert [line.split(" from")[0] for line in done.stdout.splitlines()] == [
        f"{name}: 50 cases" for name in ENTRIES
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


@pytest.mark.parametrize(
    ("suffix", "data"),
    [
        (".json", b'{"a": [1, {"b": null}], "c": "d"}'),
        (".toml", b'a = [1, 2]\n[b]\nc = "d"\n'),
        (".parquet", ENTRIES["stored"].corpus()["a.parquet"]),
    ],
    ids=[".json", ".toml", ".parquet"],
)
def test_changed_values_leave_the_form_sound(suffix, data):
    read = {
        ".json": json.loads,
        ".toml": lambda found: tomllib.loads(found.decode()),
        ".parquet": lambda found: pq.read_table(io.BytesIO(found)),
    }[suffix]
    sound = set()
    for number in range(200):
        found = mutate(data, random.Random(f"a 0 {number}"), [data], suffix)
        with contextlib.suppress(Exception):
            read(found)
            sound.add(found)
    assert len(sound - {data}) > 40


def test_the_file_is_kept_while_it_is_read(tmp_path):
    """So that the one that ends the process stays."""
    (tmp_path / "kept").mkdir()
    rng = random.Random("import 0 2")
    assert rng.choice(["a.csv"]) == "a.csv"
    damaged = mutate(b"x0,y0", rng, [b"x0,y0"], ".csv")
    seen = []

    def use(folder, name):
        (kept,) = (tmp_path / "kept").iterdir()
        seen.append((kept.name, kept.read_bytes(), (folder / name).read_bytes()))
        if len(seen) == 2:
            raise ZeroDivisionError

    corpus = {"a.csv": b"x0,y0"}
    entry = Entry(lambda: corpus, use)
    assert case("import", entry, corpus, 0, 2, tmp_path / "kept") == "sound"
    assert list((tmp_path / "kept").iterdir()) == []
    assert case("import", entry, corpus, 0, 2, tmp_path / "kept") == "failed"
    assert seen == [("import-0-2-a.csv", damaged, damaged)] * 2
    assert [path.read_bytes() for path in (tmp_path / "kept").iterdir()] == [damaged]


WALLS = """
import os, pickle, subprocess, sys, time
from pathlib import Path
from fuzz import sandbox
sandbox.SECONDS, sandbox.PATIENCE = 0.2, 0.5
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
    "hang in C": lambda: sum(range(10**12)),
    "allocate": lambda: bytearray(8 << 30),
}}
(inside / "link").symlink_to({folder!r})
for name in {names!r}:
    try:
        with sandbox.walls(inside):
            actions[name]()
    except BaseException as error:
        print(name, type(error).__name__, sep=": ")
    else:
        print(name, "allowed", sep=": ")
"""


OUTCOMES = {
    "write inside": "allowed",
    "read outside": "allowed",
    "write outside": "Escape",
    "write by a link": "Escape",
    "remove outside": "Escape",
    "start": "Escape",
    "shell": "Escape",
    "unpickle": "Escape",
    "hang": "Hang",
    "allocate": "MemoryError",
}


def test_walls(tmp_path):
    script = WALLS.format(folder=str(tmp_path), names=[*OUTCOMES, "hang in C", "write inside"])
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        capture_output=True,
        text=True,
        env=ENVIRONMENT | {"PYTHONUNBUFFERED": "1"},
        timeout=120,
    )
    found = dict(line.split(": ") for line in done.stdout.splitlines())
    assert found == OUTCOMES, done.stderr  # code in C does not stop: the process is gone
    assert done.returncode == 1
    assert not (tmp_path / "outside").exists()
