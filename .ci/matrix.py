"""The fast tests on several Pythons, with the lowest and the newest versions that are declared.

`matrix.py --uv UV --python 3.11 3.12 --ends lowest newest --out FOLDER` makes one environment after
another below FOLDER and prints a table. The lowest versions are the bounds in pyproject.toml of
what prerank runs with; the tools of the tests are as new as those allow. FOLDER keeps the versions
(*.txt), what pytest said (*.log) and the table (matrix.md). Words after `--` go to pytest, in the
place of the fast tests.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
# How uv resolves, and what pytest is told: old libraries warn of what newer ones below them retire.
ENDS = {
    "lowest": ("lowest-direct", ("-W", "default::DeprecationWarning")),
    "newest": ("highest", ()),
}
EXTRAS = ("app", "flows", "ray", "netcdf")
SHOWN = ("torch", "numpy", "scipy", "pandas", "scikit-learn", "ray")
# What is locked is tested where it is installed.
TESTS = ("tests", "src", "docs", "README.md", "--ignore=tests/supply")

# Several GB that tests without a GPU do not need; .ci/hollow_cuda.py stands in for them.
CUDA = """
cuda-toolkit
cuda-bindings
nvidia-cudnn-cu13
nvidia-cusparselt-cu13
nvidia-nccl-cu13
nvidia-nvshmem-cu13
triton
"""


class StepError(Exception):
    """A step that ended with another status than 0; its output is in the log."""


def cell(uv: str, python: str, end: str, out: Path, words: list[str]) -> dict[str, str]:
    """One row of the table: versions and counts, or the step that failed."""
    name = f"{python}-{end}"
    env, log, lock = out / f"venv-{name}", out / f"{name}.log", out / f"{name}.txt"
    interpreter = env / "bin" / "python"
    excluded = out / "excluded.txt"
    excluded.write_text(CUDA)
    row = {"Python": python, "versions": end}
    resolution, warnings = ENDS[end]

    def step(title: object, *command: object, also: int = 0) -> None:
        with log.open("a") as file:
            file.write(f"== {title}\n")
            file.flush()
            done = subprocess.run(
                [str(word) for word in command],
                cwd=ROOT,
                env=os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"},
                stdout=file,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if done.returncode not in (0, also):
            raise StepError(str(title))

    log.unlink(missing_ok=True)
    try:
        step("make the environment", uv, "venv", "--clear", "--python", python, env)
        step(
            *("resolve", uv, "pip", "compile", "pyproject.toml", "--quiet", "--upgrade"),
            *(word for extra in EXTRAS for word in ("--extra", extra)),
            *("--python", interpreter, "--resolution", resolution),
            *("--excludes", excluded, "--no-header", "--no-annotate", "--output-file", lock),
        )
        versions = dict(line.split("==") for line in lock.read_text().splitlines())
        row |= {name: versions[name].split()[0] for name in SHOWN}
        step(
            *("install", uv, "pip", "install", "--python", interpreter, "--constraints", lock),
            *("--excludes", excluded, "--editable", ".[dev]"),
        )
        step("load torch without CUDA", interpreter, ".ci/hollow_cuda.py", uv)
        report = out / f"{name}.xml"
        step(
            *("test", interpreter, "-m", "pytest", "-p", "no:cacheprovider", *warnings),
            *(f"--junitxml={report}", *(words or TESTS)),
            also=1,
        )
        row |= counted(report)
    except StepError as error:
        row["failed"] = f"could not {error}"
    finally:
        shutil.rmtree(env, ignore_errors=True)
    return row


def counted(report: Path) -> dict[str, str]:
    """How many tests passed, failed and were skipped, as pytest wrote it."""
    suite = ElementTree.parse(report).getroot()[0]
    names = ("tests", "failures", "errors", "skipped")
    tests, failures, errors, skipped = (int(suite.attrib[name]) for name in names)
    failed = failures + errors
    passed = tests - failed - skipped
    return {"passed": str(passed), "failed": str(failed), "skipped": str(skipped)}


def table(rows: list[dict[str, str]]) -> str:
    """Markdown, one line for each environment."""
    head = ["Python", "versions", *SHOWN, "passed", "failed", "skipped"]
    lines = [head, ["---"] * len(head), *([row.get(key, "") for key in head] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Go through the cells, and end with 1 if one of them did not pass."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uv", default="uv")
    parser.add_argument("--python", nargs="+", default=["3.11", "3.12", "3.13"])
    parser.add_argument("--ends", nargs="+", choices=ENDS, default=list(ENDS))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("tests", nargs="*", help="words for pytest, in the place of the fast tests")
    asked = parser.parse_args()
    out = asked.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    for python in asked.python:
        for end in asked.ends:
            rows.append(cell(asked.uv, python, end, out, asked.tests))
            print(table(rows[-1:]).splitlines()[-1], flush=True)
    told = table(rows)
    (out / "matrix.md").write_text(told + "\n")
    print("\n" + told)
    sys.exit(any(row["failed"] != "0" for row in rows))


if __name__ == "__main__":
    main()
