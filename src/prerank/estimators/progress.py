"""A progress bar for estimators that were asked for one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prerank.training import Progress

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(shown: bool) -> Iterator[Callable[[Progress], None] | None]:
    """Give a callback that draws to the terminal, or None."""
    if not shown:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("epochs"),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("training", total=None)

        def show(progress: Progress) -> None:
            text = f"training, {progress.running} of {progress.runs} runs going"
            bar.update(task, completed=progress.epoch, total=progress.max_epochs, description=text)

        yield show
