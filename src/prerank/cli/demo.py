"""`prerank demo`: a model without and with a calibration penalty, on a small real dataset."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column, Table

from prerank import defaults
from prerank.cli.fit import MaxEpochs, Seed
from prerank.cli.messages import Screen, loading, one_line_errors
from prerank.report.wording import p_text

if TYPE_CHECKING:
    import pandas as pd

    from prerank.diagnosis import Diagnosis
    from prerank.estimators import MixtureRegressor
    from prerank.training import Selection

__all__ = ["demo"]

# Inputs that say little of size leave the targets skewed and spread out: one Gaussian has to
# compromise, and there is something to repair.
_INPUTS = ("texture", "smoothness", "symmetry", "fractal dimension")
_TARGETS = ("area", "compactness", "concavity", "concave points")
_PENALTY = "marginal+scale+hdr"
_HELD_OUT = 1 / 3
_SIGNIFICANT = 0.05
_FIGURE = "reliability.png"
_WORDS = (
    "'excess' is the calibration error above what a perfect model scores on as many rows; "
    "'p (Holm)' is the evidence against calibration, corrected for looking at several pre-ranks; "
    "a smaller energy score is a more accurate forecast."
)


def demo(
    out: Annotated[
        Path, typer.Option(file_okay=False, writable=True, help="Folder for the figure.")
    ] = Path("prerank-demo"),
    seed: Seed = defaults.COMMAND_SEED,
    max_epochs: MaxEpochs = defaults.MAX_EPOCHS,
) -> None:
    """Train a regressor without and with a calibration penalty, and compare.

    The breast-cancer measurements of scikit-learn: four of the `worst` columns are predicted from
    four of the `mean` ones by a network with one Gaussian. A third of the rows is held out. The
    second model's penalty has the strength that is selected on the other rows.
    """
    with one_line_errors():
        with loading():
            import prerank.estimators  # noqa: F401
            from prerank.files import check_file

        check_file(out / _FIGURE)
        _compare(out, seed, max_epochs)


def _compare(out: Path, seed: int, max_epochs: int) -> None:
    from sklearn.datasets import load_breast_cancer
    from sklearn.model_selection import train_test_split

    console = Screen()
    table = load_breast_cancer(as_frame=True).data
    X = table[[f"mean {name}" for name in _INPUTS]]
    Y = table[[f"worst {name}" for name in _TARGETS]]
    x, x_test, y, y_test = train_test_split(X, Y, test_size=_HELD_OUT, random_state=seed)
    console.print(
        f"Breast-cancer measurements: {', '.join(Y.columns)}\nfrom {', '.join(X.columns)}; "
        f"{len(x)} rows to train and select, {len(x_test)} held out.\n",
        highlight=False,
    )
    with _one_thread():
        models = [_fitted(x, y, strength, seed, max_epochs) for strength in (0.0, "auto")]
    selection = models[1].selection_
    assert selection is not None
    console.print(_trace(selection))
    before, after = (model.diagnose(x_test, y_test) for model in models)
    energies = [-model.score(x_test, y_test) for model in models]
    console.print(_comparison(before, after, energies))
    path = _write_figure(out / _FIGURE, before, after)
    lines = [_WORDS, "", *_verdict(selection, before, after), ""]
    lines.append(f"Reliability diagrams, before above after: {path}")
    console.print("\n".join(lines), highlight=False, markup=False)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Steps this small gain nothing from more threads, and on a busy machine wait for them."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _fitted(
    x: "pd.DataFrame", y: "pd.DataFrame", strength: float | str, seed: int, max_epochs: int
) -> "MixtureRegressor":
    from prerank.estimators import MixtureRegressor

    model = MixtureRegressor(
        n_components=1,
        method="network",
        preranks=_PENALTY,
        strength=strength,
        lr=3e-3,
        max_epochs=max_epochs,
        device="cpu",  # as fast for so few rows, and the same everywhere
        random_state=seed,
        verbose=int(Screen(stderr=True).is_terminal),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that nothing qualifies is said below
        return model.fit(x, y)


def _trace(selection: "Selection") -> Table:
    names = ("strength", "excess", "energy score", "within budget", "improves", "")
    table = _table("Selection of the strength, on validation rows", *names)
    for row in selection.trace:
        table.add_row(
            f"{row.strength:g}",
            f"{row.excess:+.4f}",
            f"{row.energy_ratio - 1:+.1%}",
            *(
                ("yes" if passed else "no") if row.strength else ""
                for passed in (row.within_budget, row.improves)
            ),
            "chosen" if row.chosen else "",
        )
    return table


def _table(title: str, *numbers: str, left: str | None = None) -> Table:
    """A table of columns of numbers, after one of text if that is named."""
    columns = [Column(name, justify="right") for name in numbers]
    return Table(*([left] if left else []), *columns, title=title, title_justify="left")


def _comparison(before: "Diagnosis", after: "Diagnosis", energies: Sequence[float]) -> Table:
    names = ("excess before", "after", "p (Holm) before", "after")
    table = _table("Before and after, on held-out rows (* in the penalty)", *names, left="pre-rank")
    penalised = _PENALTY.split("+")
    for (label, old), new in zip(before.by_prerank.items(), after.by_prerank.values(), strict=True):
        table.add_row(
            f"{label} *" if label in penalised else label,
            f"{old.excess:+.4f}",
            f"{new.excess:+.4f}",
            p_text(old.p_holm),
            p_text(new.p_holm),
        )
    table.add_section()
    first, second = energies
    table.add_row(
        f"energy score ({second / first - 1:+.1%})", f"{first:.4f}", f"{second:.4f}", "", ""
    )
    return table


def _verdict(selection: "Selection", before: "Diagnosis", after: "Diagnosis") -> list[str]:
    """What a reader may conclude, in words, whichever way it went."""
    if selection.strength is None:
        return [
            f"Nothing was gained: {selection.reason}.",
            "The second model is trained without a penalty and equals the first.",
        ]
    lines = [f"Selected: {selection.reason}."]
    wrong = [_miscalibrated(found) for found in (before, after)]
    outcomes = {
        "is gone": [label for label in wrong[0] if label not in wrong[1]],
        "remains": [label for label in wrong[0] if label in wrong[1]],
        "is new": [label for label in wrong[1] if label not in wrong[0]],
    }
    lines += [
        f"Evidence of miscalibration (p < {_SIGNIFICANT:g}) {words}: {', '.join(labels)}."
        for words, labels in outcomes.items()
        if labels
    ]
    for name, found, labels in zip(("Before", "After"), (before, after), wrong, strict=True):
        lines += [f"{name}, {d.caption}" for d in found.displays() if d.label in labels]
    return lines


def _miscalibrated(found: "Diagnosis") -> list[str]:
    return [label for label, row in found.by_prerank.items() if row.p_holm < _SIGNIFICANT]


def _write_figure(path: Path, before: "Diagnosis", after: "Diagnosis") -> Path:
    from matplotlib.figure import Figure

    from prerank.files import write_atomically, writing
    from prerank.report import ReliabilityGrid

    grid = ReliabilityGrid({"before": before.displays(), "after": after.displays()})
    figure = Figure(figsize=grid.size, layout="constrained")  # without a window
    grid.plot(figure)
    with writing(path):
        return write_atomically(path, partial(figure.savefig, format="png", dpi=120))
