"""What a fit shows in a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prerank.training import Progress

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(shown: bool) -> Iterator[Callable[[Progress], None] | None]:
    """A callback that draws a bar to the terminal, or None."""
    if not shown:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    count, elapsed, console = MofNCompleteColumn(), TimeElapsedColumn(), Console(stderr=True)
    columns = "{task.description}", BarColumn(), count, "epochs", elapsed
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("training", total=None)

        def show(progress: Progress) -> None:
            text = f"{progress.part}, {progress.running} of {progress.runs} runs going"
            bar.update(task, completed=progress.epoch, total=progress.max_epochs, description=text)

        yield show
