"""Plant the same small faults in two checkouts, and count which ones each test suite finds.

    python .ci/mutants.py OLD NEW --count 200 --seed 0 --jobs 2 --out mutants.csv

A mutant changes one operator or number on one line. Only lines that stand in both checkouts, in a
function of the same name, are changed, so that both suites meet the same fault. Packages get
mutants in proportion to the test cases that NEW has fewer than OLD. First each suite runs once
under `coverage`, which tells the tests that reach a line; then each mutant meets those tests, the
quickest first, until one fails. It needs `coverage`, `pytest-cov` and `pytest-xdist`.
"""

import argparse
import ast
import csv
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from xml.etree import ElementTree

SWAPS: dict[type, tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
    ast.In: ("in", "not in"),
    ast.Is: ("is", "is not"),
    ast.Not: ("not ", ""),
}
BUDGET = 60.0  # seconds of tests for each mutant and suite
MOST_SECONDS = 240


@dataclass(frozen=True)
class Mutant:
    """One line before and after, and where it stands in each checkout."""

    package: str
    places: tuple[tuple[str, int], tuple[str, int]]
    before: str
    after: str


@dataclass(frozen=True)
class Suite:
    """Which tests reach each line, and how long each test takes."""

    reach: dict[tuple[str, int], set[str]]
    seconds: dict[str, float]


def candidates(root: Path) -> Iterator[tuple[str, str, str, str, int]]:
    """Function name, line, changed line, file and line number of every possible mutant."""
    for file in sorted((root / "src/prerank").rglob("*.py")):
        if "kernels" in file.parts:
            continue  # they need a GPU
        lines = file.read_text().splitlines()
        for function in ast.walk(ast.parse("\n".join(lines))):
            if not isinstance(function, ast.FunctionDef):
                continue
            for node in ast.walk(function):
                for number, after in changes(node, lines):
                    place = str(file.relative_to(root))
                    yield function.name, lines[number - 1].strip(), after.strip(), place, number


def changes(node: ast.AST, lines: list[str]) -> Iterator[tuple[int, str]]:
    """Line number and changed line, for a node that has an operator or a number on one line."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        line = lines[node.lineno - 1]
        head, text = line[: node.col_offset], line[node.col_offset : node.end_col_offset]
        if node.lineno == node.end_lineno and text.isascii() and line.isascii():
            value = node.value + 1 if isinstance(node.value, int) else node.value * 2 + 0.1
            yield node.lineno, f"{head}{value}{line[node.end_col_offset :]}"
        return
    pairs: list[tuple[ast.AST, ast.expr, ast.expr]] = []
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        pairs = [(node.ops[0], node.left, node.comparators[0])]
    elif isinstance(node, ast.BinOp):
        pairs = [(node.op, node.left, node.right)]
    elif isinstance(node, ast.BoolOp):
        pairs = [(node.op, *node.values[:2])]
    for operator, left, right in pairs:
        if type(operator) not in SWAPS or left.end_lineno != right.lineno:
            continue
        line = lines[right.lineno - 1]
        between = line[left.end_col_offset : right.col_offset]
        old, new = SWAPS[type(operator)]
        if line.isascii() and between.count(old) == 1:
            changed = between.replace(old, new)
            yield right.lineno, line[: left.end_col_offset] + changed + line[right.col_offset :]


def shared_mutants(old: Path, new: Path) -> dict[str, list[Mutant]]:
    """Mutants of lines that stand once in each checkout, by package."""
    tables = []
    for root in (old, new):
        table: dict[tuple[str, str, str], set[tuple[str, int]]] = defaultdict(set)
        for function, before, after, file, number in candidates(root):
            table[function, before, after].add((file, number))
        tables.append(table)
    found = defaultdict(list)
    for key in sorted(tables[0].keys() & tables[1].keys()):
        first, second = tables[0][key], tables[1][key]
        if len(first) == len(second) == 1:
            places = (next(iter(first)), next(iter(second)))
            package = Path(places[1][0]).relative_to("src/prerank").parts[0].removesuffix(".py")
            found[package].append(Mutant(package, places, key[1], key[2]))
    return found


def measure(root: Path, jobs: int) -> Suite:
    """Run a suite under coverage, unless that was done before."""
    data, report = root / ".coverage", root / "junit.xml"
    if not (data.exists() and report.exists()):
        command = ["-m", "pytest", "-q", "-n", str(jobs), "--junitxml=junit.xml", "--cov=prerank"]
        command += ["--cov-context=test", "--cov-report=", "-p", "no:cacheprovider", "tests"]
        subprocess.run([sys.executable, *command], cwd=root, env=surroundings(root), check=False)
    seconds = {}
    for case in ElementTree.parse(report).iter("testcase"):
        if all(case.find(outcome) is None for outcome in ("failure", "error", "skipped")):
            parts = case.get("classname", "").split(".")
            seconds[f"{'/'.join(parts)}.py::{case.get('name')}"] = float(case.get("time", 0))
    reach: dict[tuple[str, int], set[str]] = defaultdict(set)
    connection = sqlite3.connect(data)
    query = (
        "select file.path, context.context, line_bits.numbits from line_bits "
        "join file on file.id = line_bits.file_id join context on context.id = line_bits.context_id"
    )
    for path, context, bits in connection.execute(query):
        name = context.split("|")[0]
        if name in seconds:
            place = str(Path(path).relative_to(root))
            for byte, value in enumerate(bits):
                for bit in range(8):
                    if value >> bit & 1:
                        reach[place, 8 * byte + bit].add(name)
    return Suite(reach, seconds)


def surroundings(root: Path) -> dict[str, str]:
    """The environment of a suite."""
    path = os.pathsep.join([str(root / "src"), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}


def is_killed(copy: Path, place: tuple[str, int], mutant: Mutant, tests: list[str]) -> bool:
    """Whether one of the tests fails in a copy of the checkout with the fault in it."""
    file, number = copy / place[0], place[1]
    whole = file.read_text()
    lines = whole.splitlines(keepends=True)
    line = lines[number - 1]
    indent = line[: len(line) - len(line.lstrip())]
    lines[number - 1] = f"{indent}{mutant.after}\n"
    file.write_text("".join(lines))
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command,
            cwd=copy,
            env=surroundings(copy),
            capture_output=True,
            timeout=MOST_SECONDS,
            check=False,
        )
        return done.returncode != 0
    except subprocess.TimeoutExpired:
        return True  # a fault that makes a loop endless is seen
    finally:
        file.write_text(whole)


def removed_cases(suites: list[Suite]) -> Counter[str]:
    """How many cases fewer there are, by folder or file of the tests."""
    folder = re.compile(r"^tests/(?:test_)?(\w+).*")
    counts = [Counter(folder.sub(r"\1", name) for name in suite.seconds) for suite in suites]
    return counts[0] - counts[1]


def quickest(names: set[str], seconds: dict[str, float]) -> list[str]:
    """One case of each test function, then a second one, ... within the budget of seconds."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names, key=lambda name: seconds[name]):
        groups[name.partition("[")[0]].append(name)
    turns = sorted((k, seconds[n], n) for group in groups.values() for k, n in enumerate(group))
    chosen, spent = [], 0.0
    for _, cost, name in turns:
        if not chosen or spent + cost < BUDGET:
            chosen.append(name)
            spent += cost
    return chosen


def choose(
    found: dict[str, list[Mutant]], suites: list[Suite], count: int, seed: int
) -> list[Mutant]:
    """Mutants that the old suite reaches, more of them where more cases were removed."""
    removed = removed_cases(suites)
    general = sum(number for name, number in removed.items() if name not in found)
    choice = random.Random(seed)
    pool, weights = {}, {}
    for name, all_of in sorted(found.items()):
        reached = [mutant for mutant in all_of if suites[0].reach.get(mutant.places[0])]
        if reached:
            pool[name] = choice.sample(reached, len(reached))
            weights[name] = removed[name] + general / len(found) + 1
    chosen: list[Mutant] = []
    while len(chosen) < count and any(pool.values()):
        name = choice.choices(list(pool), [weights[name] for name in pool])[0]
        if pool[name]:
            chosen.append(pool[name].pop())
    return chosen


def copy_of(root: Path, target: Path) -> Path:
    """A checkout without its history and environments, and with the data beside it."""
    ignored = shutil.ignore_patterns(".git", ".venv*", "build", "__pycache__", ".coverage*")
    shutil.copytree(root, target, ignore=ignored)
    shared = root.parent / "shared"
    if shared.exists():
        (target.parent / "shared").symlink_to(shared.resolve())
    return target


def main() -> None:
    """Run it all, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=Path("mutants.csv"))
    arguments = parser.parse_args()
    roots = [arguments.old.resolve(), arguments.new.resolve()]
    suites = [measure(root, arguments.jobs) for root in roots]
    chosen = choose(shared_mutants(*roots), suites, arguments.count, arguments.seed)
    scratch = Path(tempfile.mkdtemp())
    copies: Queue[list[Path]] = Queue()
    for job in range(arguments.jobs):
        copies.put([copy_of(r, scratch / f"{job}-{k}" / "main") for k, r in enumerate(roots)])

    def meet(mutant: Mutant) -> list[str]:
        pair, verdicts = copies.get(), []
        for suite, copy, place in zip(suites, pair, mutant.places, strict=True):
            tests = quickest(suite.reach.get(place, set()), suite.seconds)
            killed = bool(tests) and is_killed(copy, place, mutant, tests)
            verdicts.append("found" if killed else "missed" if tests else "not reached")
        copies.put(pair)
        print(mutant.package, mutant.before, "->", mutant.after, verdicts, flush=True)
        return verdicts

    counts: Counter[str] = Counter()
    with ThreadPoolExecutor(arguments.jobs) as threads, arguments.out.open("w") as file:
        writer = csv.writer(file)
        writer.writerow(["package", "old_place", "new_place", "before", "after", "old", "new"])
        for mutant, verdicts in zip(chosen, threads.map(meet, chosen), strict=True):
            places = [f"{path}:{number}" for path, number in mutant.places]
            writer.writerow([mutant.package, *places, mutant.before, mutant.after, *verdicts])
            file.flush()
            counts.update(f"{side}: {v}" for side, v in zip(("old", "new"), verdicts, strict=True))
    shutil.rmtree(scratch)
    for verdict, count in sorted(counts.items()):
        print(f"{verdict} {count} of {len(chosen)}")


if __name__ == "__main__":
    main()
