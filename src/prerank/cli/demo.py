"""`prerank demo`: two predictors of the same data, one right, one wrong."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from prerank.datasets import AR1Regression
from prerank.diagnosis import ALL, Diagnosis, diagnose

__all__ = ["demo"]

_LEVEL = 0.05


def demo(
    rows: Annotated[int, typer.Option(min=50, help="Number of observations.")] = 2000,
    seed: Annotated[int, typer.Option(help="Seed of data and draws.")] = 0,
) -> None:
    """Diagnose a right and a wrong predictor on a problem with known truth.

    Four correlated targets. The first predictor is the true conditional law. The second has exactly
    the same margins but treats the targets as independent: every margin looks right, the joint
    forecast is wrong.
    """
    console = Console()
    truth = AR1Regression(dim=4, correlation=0.7)
    x, y = truth.sample(rows, generator=seed)
    predictors = {
        "Well specified: the true conditional law": truth,
        "Misspecified: same margins, no correlation": AR1Regression(dim=4, correlation=0.0),
    }
    for title, predictor in predictors.items():
        found = diagnose(predictor.conditional(x), y, generator=seed)
        console.print(_as_table(title, found))
    console.print(
        f"{rows} rows. 'pce' is the distance of the projected PITs from uniform, 'floor' what a "
        "perfect predictor scores on average, 'p (Holm)' the evidence against calibration, "
        f"corrected for looking at {len(found.pits)} pre-ranks."
    )


def _as_table(title: str, found: Diagnosis) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("pre-rank")
    for name in ("pce", "floor", "excess", "p", "p (Holm)"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for row in (finding for finding in found.findings if finding.component == ALL):
        wrong = row.p_holm < _LEVEL
        table.add_row(
            row.prerank,
            f"{row.pce:.4f}",
            f"{row.floor:.4f}",
            f"{row.excess:+.4f}",
            f"{row.p_value:.5f}",
            f"{row.p_holm:.5f}",
            "[bold red]miscalibrated[/]" if wrong else "[green]no evidence[/]",
        )
    return table
