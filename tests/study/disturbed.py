"""Studies that are disturbed: started as commands, and compared with an undisturbed one."""

import json
import os
import subprocess
import sys

import pandas as pd

from prerank.study import Store
from study.tiny import rows_of


def assert_same(folder, other):
    """Every number of two studies is the same, bit for bit, and none is there twice."""
    one, two = (rows_of(Store(path).results()) for path in (folder, other))
    pd.testing.assert_frame_equal(one, two, check_exact=True)
    keys = ["dataset", "variant", "part", "prerank", "strength", "seed"]
    assert not one.duplicated(keys).any()


def logged(folder):
    path = folder / "log.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def command(plan, folder, *options, mark="none", under=(), environment=None):
    """`prerank study run`, begun in a process of its own."""
    path = folder.parent / f"{folder.name}.toml"
    path.write_text(plan.to_toml(), encoding="utf-8")
    arguments = ["study", "run", path, "--out", folder, "--device", "cpu", "--quiet", *options]
    return subprocess.Popen(
        [*under, sys.executable, "-m", "prerank", *map(str, arguments)],
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
        | {"PRERANK_MARK": str(mark), "NO_COLOR": "1", "COLUMNS": "1000"}
        | (environment or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process, code=0):
    """What the command said, once it has ended as it should."""
    output, errors = process.communicate(timeout=240)
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    return output, errors
