"""Sizes of the packages, repeated blocks, import cycles and module names that occur twice.

`python .ci/house.py` prints the sizes and what is wrong, and exits with 1 if anything is.
"""

import ast
import io
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from importlib.util import resolve_name
from pathlib import Path

BLOCK = 6
SHARED_NAMES = {"__init__", "base"}
_SILENT = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}

Modules = dict[str, Path]


def modules(source: Path) -> Modules:
    """Paths of all modules below a folder of packages, by their full names."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def code_lines(path: Path) -> dict[int, str]:
    """Stripped lines by number, without docstrings, comments and blank lines."""
    text = path.read_text()
    docs: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docs.update(range(node.lineno, (node.end_lineno or 0) + 1))
    used = {
        number
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in _SILENT
        for number in range(token.start[0], token.end[0] + 1)
    }
    lines = text.splitlines()
    return {number: lines[number - 1].strip() for number in sorted(used - docs)}


def sizes(source: Path) -> dict[str, tuple[int, int]]:
    """Modules and code lines of each package; single modules of the root count as one package."""
    count: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for name, path in modules(source).items():
        parts = name.split(".")
        package = ".".join(parts[:2]) if len(parts) > 2 or path.stem == "__init__" else parts[0]
        count[package] += 1
        lines[package] += len(code_lines(path))
    return {package: (count[package], lines[package]) for package in sorted(count)}


def repeats(source: Path) -> list[str]:
    """Blocks of six or more equal lines, as `file:first-last ~ file:first-last`.

    Imports and lines of punctuation do not count, and neither do the headers of functions:
    functions of one family take the same arguments in the same order.
    """
    places = defaultdict(list)
    texts: dict[Path, list[tuple[int, str]]] = {}
    for path in modules(source).values():
        skipped = {number for part in _interfaces(path) for number in part}
        lines = [
            (number, line)
            for number, line in code_lines(path).items()
            if number not in skipped and any(letter.isalnum() for letter in line)
        ]
        texts[path] = lines
        for first in range(len(lines) - BLOCK + 1):
            places[tuple(line for _, line in lines[first : first + BLOCK])].append((path, first))
    pairs = {
        (one, other)
        for found in places.values()
        for i, one in enumerate(found)
        for other in found[i + 1 :]
        if one[0] != other[0] or other[1] - one[1] >= BLOCK
    }
    report = []
    for one, other in sorted(pairs):
        if _moved(one, other, -1) in pairs:
            continue  # the block began before
        size = BLOCK
        while _moved(one, other, size - BLOCK + 1) in pairs:
            size += 1
        spans = []
        for path, first in (one, other):
            lines = texts[path][first : first + size]
            spans.append(f"{path.relative_to(source)}:{lines[0][0]}-{lines[-1][0]}")
        report.append(" ~ ".join(spans))
    return report


def _moved(
    one: tuple[Path, int], other: tuple[Path, int], by: int
) -> tuple[tuple[Path, int], tuple[Path, int]]:
    return (one[0], one[1] + by), (other[0], other[1] + by)


def _interfaces(path: Path) -> Iterator[range]:
    """Lines of imports and of the headers of functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield range(node.lineno, (node.end_lineno or 0) + 1)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield range(node.lineno, max(node.lineno + 1, node.body[0].lineno))


def cycles(source: Path) -> list[str]:
    """Modules that import each other, at whatever level, except for types alone."""
    paths = modules(source)
    graph = {name: _imported(name, path, paths) for name, path in paths.items()}
    reach = {name: _reached(name, graph) for name in graph}
    seen: set[str] = set()
    report = []
    for name in graph:
        ring = [name, *(other for other in graph if other in reach[name] and name in reach[other])]
        if name in reach[name] and name not in seen:
            report.append(" <-> ".join(dict.fromkeys(ring)))
        seen.update(ring)
    return report


def _imported(name: str, path: Path, paths: Modules) -> set[str]:
    found: set[str] = set()
    stack: list[ast.AST] = [ast.parse(path.read_text())]
    package = name if path.stem == "__init__" else name.rpartition(".")[0]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            stack += node.orelse
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                found.add(inner if inner in paths else base)
        stack += ast.iter_child_nodes(node)
    return (found & paths.keys()) - {name}


def _reached(start: str, graph: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - reached
        reached |= new
        waiting += new
    return reached


def names(source: Path) -> list[str]:
    """Names that several modules have."""
    stems = defaultdict(list)
    for path in modules(source).values():
        stems[path.stem].append(str(path.relative_to(source)))
    return [
        f"{stem}: {', '.join(paths)}"
        for stem, paths in sorted(stems.items())
        if len(paths) > 1 and stem not in SHARED_NAMES
    ]


def main() -> int:
    """Print everything; the exit code says whether something is wrong."""
    source = Path(__file__).parents[1] / "src"
    table = sizes(source)
    for package, (count, lines) in table.items():
        print(f"{package:24}{count:5}{lines:8,}")
    total = [sum(column) for column in zip(*table.values(), strict=True)]
    print(f"{'total':24}{total[0]:5}{total[1]:8,}")
    wrong = 0
    for title, check in (
        (f"blocks of {BLOCK} lines that are repeated", repeats),
        ("modules that import each other", cycles),
        ("names of several modules", names),
    ):
        found = check(source)
        wrong += len(found)
        print(f"\n{title}: {len(found) or 'none'}")
        for line in found:
            print(f"  {line}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
