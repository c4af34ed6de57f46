"""`prerank explain`: what a pre-rank asks, and what its deviations mean."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from prerank.cli.messages import AsJson, one_line_errors, print_json
from prerank.preranks import parse
from prerank.report.wording import EXPLANATIONS, Explanation, explanation_of

__all__ = ["explain"]

_HEADINGS = {
    "question": "asks",
    "formula": "ranks",
    "small": "PITs too small",
    "large": "PITs too large",
    "outer": "PITs at both ends",
    "inner": "PITs in the middle",
    "blind": "blind to",
    "repair": "what to try",
}


def explain(
    prerank: Annotated[
        str | None, typer.Argument(help="Such as hdr, or hdr+copula; all are listed without one.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what a pre-rank asks of a prediction, and what its deviations mean."""
    with one_line_errors():
        labels = list(EXPLANATIONS)
        if prerank is not None:
            labels = [term.label for term in parse(prerank)]
        explanations = {label: explanation_of(label) for label in labels}
        if as_json:
            print_json({label: asdict(words) for label, words in explanations.items()})
        elif prerank is None:
            _list(explanations)
        else:
            _print(explanations)


def _list(explanations: dict[str, Explanation]) -> None:
    table = Table("pre-rank", "asks", title="Pre-ranks", title_justify="left")
    for label, explanation in explanations.items():
        table.add_row(label, escape(explanation.question))
    Console().print(table)
    typer.echo("More of each: prerank explain NAME")


def _print(explanations: dict[str, Explanation]) -> None:
    for label, explanation in explanations.items():
        table = Table(title=label, title_justify="left", show_header=False, box=None)
        table.add_column(style="bold", no_wrap=True)
        table.add_column()
        for name, text in asdict(explanation).items():
            table.add_row(_HEADINGS[name], escape(text))
        Console().print(table)
