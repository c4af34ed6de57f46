"""The command line."""

from typing import Annotated

import typer

import prerank
from prerank.cli.datasets import datasets
from prerank.cli.demo import demo
from prerank.cli.diagnose import diagnose
from prerank.cli.explain import explain
from prerank.cli.fit import fit
from prerank.cli.predict import predict
from prerank.cli.study import study

__all__ = ["app"]

app = typer.Typer(
    name="prerank",
    help="Joint calibration of multi-output probabilistic regression.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (fit, predict, diagnose, explain, demo):
    app.command()(command)
app.add_typer(datasets)
app.add_typer(study, name="study")


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"prerank {prerank.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and stop."
        ),
    ] = False,
) -> None:
    """Joint calibration of multi-output predictions: diagnose it, enforce it."""
