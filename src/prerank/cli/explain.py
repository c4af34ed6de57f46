"""`prerank explain`: what each pre-rank asks, in words."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Column, Table

from prerank.cli.messages import Screen, loading, one_line_errors, print_json, say
from prerank.cli.options import AsJson

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
        from prerank.report.explanations import EXPLANATIONS, explanation_of

        labels = list(EXPLANATIONS) if prerank is None else _labels(prerank)
        explanations = {label: asdict(explanation_of(label)) for label in labels}
        if as_json:
            print_json(explanations)
            return
        if prerank is None:
            table = Table("pre-rank", "asks", title="Pre-ranks", title_justify="left")
            for label, words in explanations.items():
                table.add_row(label, escape(words["question"]))
            Screen().print(table)
            say("More of each: prerank explain NAME")
            return
        for label, words in explanations.items():
            names = Column(style="bold", no_wrap=True)
            table = Table(names, "", title=label, title_justify="left", show_header=False, box=None)
            for name, text in words.items():
                table.add_row(_HEADINGS[name], escape(text))
            Screen().print(table)


def _labels(spec: str) -> list[str]:
    """Labels of the terms of a description: bare names have a meaning without torch."""
    from prerank.report.explanations import EXPLANATIONS

    names = spec.split("+")
    if all(name in EXPLANATIONS for name in names):
        return names
    with loading():
        from prerank.preranks import parse
    return [term.label for term in parse(spec)]
