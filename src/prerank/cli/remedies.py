"""A command that would work, from the one that was refused."""

import shlex
from typing import Any, NoReturn

import typer

from prerank.cli.messages import complain, say
from prerank.files.obstacles import UnfitTableError

__all__ = ["command_with", "refuse_table"]


def command_with(context: typer.Context, **changes: Any) -> str:
    """The present command with some of its options changed, ready for a shell.

    Args:
        context: of the command.
        changes: values by the names of parameters, in place of those given.
    """
    words: list[str] = []
    for parameter in context.command.params:
        name = str(parameter.name)
        source = context.get_parameter_source(name)
        given = source is not None and source.name == "COMMANDLINE"
        value = changes.get(name, context.params.get(name) if given else None)
        if value is None or value is False or value == []:
            continue
        if parameter.param_type_name == "argument":
            words.append(str(value))
            continue
        option = max(parameter.opts, key=len)
        if value is True:
            words.append(option)
        else:
            values = _joined(value) if isinstance(value, list | tuple) else [str(value)]
            words += [word for one in values for word in (option, one)]
    return shlex.join([*context.command_path.split(), *words])


def refuse_table(context: typer.Context, error: UnfitTableError) -> NoReturn:
    """Print every problem of a table, and the command that would work; end the command."""
    if len(error.problems) == 1:
        complain(error)
    else:
        say(f"Error: {error.path} has {len(error.problems)} problems:", err=True)
        for problem in error.problems:
            say(f"- {problem}", err=True)
    remedy = error.remedy
    if remedy is None:
        if len(error.problems) > 1:
            say("No option solves all of these problems: correct the table first.", err=True)
        raise typer.Exit(1) from error
    changes = {
        name: value
        for name in ("drop_missing", "impute", "dates", "split_by")
        if (value := getattr(remedy, name))
    }
    given = context.params
    if remedy.ignore and given["inputs"]:
        changes["inputs"] = list(error.left)
    elif remedy.ignore:
        changes["ignore"] = [*(given["ignore"] or ()), *remedy.ignore]
    say(f"This works: {command_with(context, **changes)}", err=True)
    raise typer.Exit(1) from error


def _joined(names: list[str] | tuple[str, ...]) -> list[str]:
    """Names with commas between, but for those that hold a comma or a quote themselves."""
    plain = [name for name in names if not set(name) & set(",\"'") and name == name.strip()]
    others = [str(name) for name in names if name not in plain]
    return [*([",".join(plain)] if plain else []), *others]
