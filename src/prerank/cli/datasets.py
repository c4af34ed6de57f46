"""`prerank datasets`: what there is, getting it, and bringing one's own."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column, Table

from prerank.cli.messages import (
    Screen,
    complain,
    loading,
    one_line_errors,
    print_json,
    say,
    split_names,
)
from prerank.cli.options import AsJson
from prerank.errors import InputError, PrerankError

if TYPE_CHECKING:
    from prerank.datasets import Dataset
    from prerank.datasets.collection import LocalTable

__all__ = ["datasets"]

datasets = typer.Typer(
    name="datasets",
    help="The paper's datasets and your own: list, show, fetch and import them.",
    no_args_is_help=True,
)

Folder = Annotated[
    Path | None,
    typer.Option(
        file_okay=False, help="Folder of the tables (default: PRERANK_DATA, or the cache)."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(file_okay=False, help="Folder to write to (default: PRERANK_DATA, or the cache)."),
]

_LABELS = {"n_rows": "rows in the paper", "n_inputs": "inputs L", "n_targets": "targets D"}
_UNITS = {"size": "size in bytes"}
_LABEL_WIDTH = 2 + max(map(len, _LABELS.values()))


@datasets.command("list")
def list_(folder: Folder = None, as_json: AsJson = False) -> None:
    """List the datasets: the paper's eighteen, and others that are in the folder."""
    with loading():
        from prerank.datasets import DATASETS
        from prerank.datasets.collection import data_folder, local_tables
    place = data_folder() if folder is None else folder
    copies = local_tables(place)
    records = {record.name: record for record in DATASETS}
    rows = [_entry(name, records.get(name), copies.get(name)) for name in records | copies]
    if as_json:
        print_json(rows)
        return
    numbers = (Column(name, justify="right") for name in ("rows here", "L", "D"))
    start, end = Column("name", no_wrap=True), Column("where", overflow="fold")
    table = Table(start, *numbers, "fetchable", end, title_justify="left")
    table.title = f"Datasets (tables in {escape(str(place))})"
    table.caption = (
        "L: number of inputs, after encoding; D: number of targets; ?: not known. Rows are of the "
        "table on this machine, where there is one."
    )
    table.caption_justify = "left"
    for row in rows:
        here, record = row["local"], records.get(row["name"])
        source = record.origin.repository if record and record.origin else ""
        table.add_row(
            row["name"],
            _count(here["n_rows"], "damaged") if here else "",
            _count(row["n_inputs"]),
            _count(row["n_targets"]),
            {True: "yes", False: "no", None: "own"}[row["fetchable"]],
            escape(here["path"] if here else source if row["fetchable"] else "not downloadable"),
        )
    Screen().print(table)


@datasets.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the dataset.")],
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Show all that is known about a dataset, and whether it is here."""
    with one_line_errors():
        facts = _facts(name, folder)
    if as_json:
        print_json(facts)
        return
    columns = Column(style="bold", no_wrap=True), Column(overflow="fold")
    table = Table(*columns, show_header=False, box=None, pad_edge=False)
    local = facts.pop("local")
    for key, value in facts.items():
        if value not in ("", ()):
            table.add_row((_LABELS | _UNITS).get(key, key.replace("_", " ")), escape(_word(value)))
    table.add_row("here", escape(_status(local)))
    console = Screen()
    if not console.is_terminal:  # a hash or an address that is cut in two is of no use
        console.width = max(console.width, _LABEL_WIDTH + max(map(_longest_word, facts.values())))
    console.print(table)


@datasets.command("fetch")
def fetch_(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", show_default=False)] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that can be fetched.")] = False,
    out: Out = None,
    origin: Annotated[
        str | None,
        typer.Option(help="Address of a folder with the originals, such as a mirror."),
    ] = None,
    force: Annotated[bool, typer.Option(help="Download again what is already there.")] = False,
) -> None:
    """Download public originals, check their SHA-256, encode them and write NAME.parquet."""
    if bool(names) == everything:
        raise typer.BadParameter("name datasets, or give --all", param_hint="NAME")
    with loading():
        from prerank.datasets import DATASETS, fetch
        from prerank.datasets.collection import local_mismatch, table_path
        from prerank.files.dataset_tables import table_shape
    chosen = [_record(name) for name in names or ()] or [d for d in DATASETS if d.fetchable]
    failed = False
    with one_line_errors():
        for record in chosen:
            path = table_path(record.name, out)
            problem = local_mismatch(record, out)
            if path.is_file() and not problem and not force:
                say(f"{record.name} is already there: {path} (--force downloads it again)")
                continue
            if problem and record.fetchable:
                say(f"{record.name} is fetched again: {' '.join(problem.split())}")
            try:
                with _progress(record) as on_bytes:
                    path = fetch(record, out, origin=origin, force=force, on_bytes=on_bytes)
                say(f"{record.name}: {_shape(*table_shape(path))} in {path}")
            except PrerankError as error:  # the others may still come
                failed = True
                complain(error)
    if everything:
        others = ", ".join(record.name for record in DATASETS if not record.fetchable)
        say(f"Not to be fetched, see `prerank datasets show NAME`: {others}")
    if failed:
        raise typer.Exit(1)


@datasets.command("import")
def import_(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A CSV, ARFF or Parquet file.")],
    targets: Annotated[
        str, typer.Option(help="Names of the target columns, with commas between them.")
    ],
    inputs: Annotated[
        str | None, typer.Option(help="Names of the input columns (default: all others).")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Dataset name (default: the file name).")] = None,
    out: Out = None,
    header: Annotated[
        bool,
        typer.Option(help="Whether a CSV file names its columns; else they are 0, 1, ..."),
    ] = True,
) -> None:
    """Encode a file of your own by the same rule and write NAME.parquet."""
    wanted = split_names(targets, "--targets")
    chosen = None if inputs is None else split_names(inputs, "--inputs")
    with one_line_errors():
        with loading():
            from prerank.datasets import import_table

        done = import_table(path, wanted, out, name, chosen, header=header)
    for column, reason in done.removed.items():
        say(f"left out column {column!r}: {reason}")
    lost = {"a target": done.rows_without_target, "an input": done.rows_without_input}
    for what, count in lost.items():
        if count:
            say(f"left out {_counted(count, 'row')}: {what} is missing")
    if done.replaced:
        say(f"replaced the {done.name} that was there")
    shape = _shape(done.n_rows, len(done.inputs), len(done.targets))
    say(f"{done.name}: {shape} in {done.path}")
    if done.mismatch:
        say(
            f"Note: this is not the paper's {done.name} ({done.mismatch}), so published values do "
            "not compare with it. Choose another --name for data of your own.",
            err=True,
        )


def _entry(name: str, record: "Dataset | None", copy: "LocalTable | None") -> dict[str, Any]:
    """One row of the list; a name that is not in the registry is a table of the user's own."""
    local = _place(copy)
    known = local or dict.fromkeys(_LABELS)
    return {
        "name": name,
        **{key: getattr(record, key) if record else known[key] for key in _LABELS},
        "fetchable": record.fetchable if record else None,
        "origin": record.origin.url if record and record.origin else None,
        "local": local,
    }


def _facts(name: str, folder: Path | None) -> dict[str, Any]:
    """All of a record, and how the table here compares to it; or a table of the user's own."""
    with loading():
        from prerank.datasets import DATASETS, load_table
        from prerank.datasets.collection import is_registered_content, local_table
        from prerank.datasets.registry import canonical_name

    copy = local_table(name, folder)
    if copy and all(record.name != canonical_name(name) for record in DATASETS):
        table = load_table(name, folder)
        names = {"targets": table.targets, "inputs": table.inputs}
        return {"name": name} | names | {"local": _place(copy)}
    record = _record(name)
    facts = asdict(record) | {"fetchable": record.fetchable}
    del facts["content"], facts["origin"]
    if record.origin:
        facts["origin"] = record.origin.url
        facts |= {key: value for key, value in asdict(record.origin).items() if value}
    if not record.fetchable:
        facts["import_with"] = _import_command(record)
    local = _place(local_table(record.name, folder))
    if local:
        local["right_numbers"] = is_registered_content(record, folder)
    return facts | {"local": local}


def _place(copy: "LocalTable | None") -> dict[str, Any] | None:
    if copy is None:
        return None
    counts = dict(zip(_LABELS, copy.shape or (None, None, None), strict=True))
    return {"path": str(copy.path), **counts, "problem": copy.problem}


def _status(local: dict[str, Any] | None) -> str:
    from prerank.files.dataset_tables import MEND

    if local is None:
        return "no"
    if local["problem"]:
        return f"{local['problem']}; {MEND}"
    right = local.get("right_numbers")
    judgement = "" if right is None else f", with {'the right' if right else 'OTHER'} numbers"
    return f"{_shape(*(local[key] for key in _LABELS))} in {local['path']}{judgement}"


def _import_command(record: "Dataset") -> str:
    options = f"--name {record.name} --targets {','.join(record.targets)}"
    inputs = f" --inputs {','.join(record.inputs)}" if record.inputs else ""
    return (
        f"prerank datasets import FILE {options}{inputs}{'' if record.header else ' --no-header'}"
    )


def _record(name: str) -> "Dataset":
    from prerank.datasets import find_dataset

    try:
        return find_dataset(name)
    except InputError as error:
        raise typer.BadParameter(str(error), param_hint="NAME") from error


@contextmanager
def _progress(record: "Dataset") -> Iterator[Any]:
    """A bar on a terminal, nothing elsewhere; gives the function that moves it."""
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TransferSpeedColumn,
    )

    console = Screen(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
    with bar:
        task = bar.add_task(record.name, total=record.origin.size if record.origin else None)
        yield lambda count: bar.advance(task, count)


def _shape(rows: int, inputs: int, targets: int) -> str:
    parts = ((rows, "row"), (inputs, "input"), (targets, "target"))
    return ", ".join(_counted(count, word) for count, word in parts)


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _count(value: int | None, otherwise: str = "?") -> str:
    return otherwise if value is None else f"{value:,}"


def _longest_word(value: object) -> int:
    return max((len(word) for word in _word(value).split()), default=0)


def _word(value: object) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value))
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    words = {True: "yes", False: "no", None: "not known"}
    return words[value] if isinstance(value, bool | None) else str(value)
