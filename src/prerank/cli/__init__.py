"""The command line."""

from typing import Annotated

import typer

import prerank
from prerank.cli.calibrate import calibrate
from prerank.cli.compare import compare
from prerank.cli.datasets import datasets
from prerank.cli.demo import demo
from prerank.cli.diagnose import diagnose
from prerank.cli.explain import explain
from prerank.cli.fit import fit
from prerank.cli.monitor import monitor
from prerank.cli.predict import predict
from prerank.cli.study import study

__all__ = ["app"]

app = typer.Typer(
    name="prerank",
    epilog="First steps: `prerank demo` shows it at work in a minute; `prerank fit data.csv "
    "--targets a,b --out model/` trains on a table of yours and writes model/report.html; "
    "`prerank diagnose --samples forecasts.parquet --observations observed.csv` judges what you "
    "have, and `prerank calibrate` repairs it. Exit codes: 0 done, 1 refused with a reason, 2 not "
    "understood, 3 a study that is not finished, 4 miscalibrated (`diagnose --check`, `monitor "
    "--check`), 130 interrupted.",
    no_args_is_help=True,
    rich_markup_mode="markdown",  # lets paragraphs flow
    add_completion=False,
    pretty_exceptions_enable=False,
)
_PANELS = {
    "Your own data": (fit, predict, diagnose, compare, calibrate, monitor),
    "Getting to know it": (demo, explain),
}
for panel, commands in _PANELS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)
app.add_typer(datasets, rich_help_panel="Research")
app.add_typer(study, name="study", rich_help_panel="Research")


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
    """Joint calibration of multi-output predictions: diagnose it, enforce it.

    A forecast of several quantities can be right in each and wrong in all together. These
    commands find out, say what is wrong, and train models that are right.
    """
