"""Runs of rows of a lazy forecast, each diagnosed where it is computed, and added up."""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol, TypeVar

from prerank.adapters.named_forecasts import NamedForecast
from prerank.diagnosis.diagnoser import Diagnoser
from prerank.errors import InputTypeError
from prerank.extras import library
from prerank.inputs import wrong_type

__all__ = ["Mapping", "accumulated", "in_runs"]

A = TypeVar("A")
B = TypeVar("B")
_RUNS = 64  # parts of the work, so that workers of different speed end together


class Mapping(Protocol):
    """What calls a function for each of many arguments: an executor, a pool, a client."""

    def map(self, function: Callable[[A], B], arguments: Iterable[A], /) -> Iterable[Any]:
        """Values of the function, or futures of them, in the order of the arguments."""


class RowRun(NamedTuple):
    """Consecutive rows, and what counts them.

    Attributes:
        diagnoser: without rows.
        forecast: of these rows, not yet read.
    """

    diagnoser: Diagnoser
    forecast: NamedForecast


def in_runs(forecast: NamedForecast, diagnoser: Diagnoser, engine: object = None) -> Diagnoser:
    """Add all rows of a forecast to a diagnoser, block by block.

    Args:
        forecast: its rows are read where they are counted.
        diagnoser: without rows.
        engine: what calls functions elsewhere, as for `prerank.diagnose`; None for this process.

    Returns:
        The diagnoser.
    """
    runs = _runs(forecast, diagnoser)
    parts: Iterable[Diagnoser]
    if engine is None:
        parts = (_counted(one, map(whole.at, whole.slices())) for one, whole in runs)
    else:
        parts = _results(engine, [RowRun(one, whole.culled()) for one, whole in runs])
    for part in parts:
        diagnoser.merge(part)
    return diagnoser


def accumulated(run: RowRun) -> Diagnoser:
    """The diagnoser of a run, with its rows; for another process or thread."""
    found = deepcopy(run.diagnoser)  # its state is not kept with the run
    return _counted(found, (run.forecast.at(p).loaded() for p in run.forecast.slices()))


def _runs(forecast: NamedForecast, diagnoser: Diagnoser) -> Iterator[RowRun]:
    """Neighbouring blocks: the same ones, with the same random numbers, for every engine."""
    n = forecast.observed.n
    each = n // forecast.observed.given.sizes[forecast.observed.rows[0]]
    for several in _grouped(forecast.slices(), _RUNS):
        places = slice(several[0].start, several[-1].stop)
        own = diagnoser.part(each * places.start, each * places.stop, n)
        yield RowRun(own, forecast.at(places))


def _counted(diagnoser: Diagnoser, blocks: Iterable[NamedForecast]) -> Diagnoser:
    for block in blocks:
        diagnoser.update(block.dist, block.y)
    return diagnoser


def _by_value(run: bytes) -> bytes:
    """`accumulated` from bytes to bytes.

    Processes that torch knows would share tensors with others through open files, and others could
    not read them.
    """
    return _bytes(accumulated(pickle.loads(run)))


def _bytes(value: object) -> bytes:
    """Pickled, functions of dask's tasks with cloudpickle, which dask needs."""
    if find_spec("cloudpickle") is None:
        return pickle.dumps(value)
    packed: bytes = library("cloudpickle", "diagnose").dumps(value)
    return packed


def _results(engine: Any, runs: Sequence[RowRun]) -> Iterator[Diagnoser]:
    """What `accumulated` returns for each run, in their order."""
    if engine == "dask":
        dask = library("dask", "diagnose")
        # Runs hold arrays of dask, which `delayed` would compute before the call.
        calls = [dask.delayed(_Call(run), pure=False)() for run in runs]
        yield from dask.compute(*calls)
        return
    packed = list(map(_bytes, runs))
    in_order = getattr(engine, "in_order", None)  # engines of `prerank.study.engines`
    if in_order is not None:
        yield from map(pickle.loads, in_order(_by_value, packed))
        return
    if not callable(getattr(engine, "map", None)):
        raise wrong_type(
            "engine",
            engine,
            "'dask', an engine of prerank.study.engines, or something with a method map such as "
            "concurrent.futures.ProcessPoolExecutor",
        )
    for value in engine.map(_by_value, packed):
        found = value.result() if hasattr(value, "done") else value
        if not isinstance(found, bytes):
            raise InputTypeError(
                f"engine.map returned a {type(found).__name__} in the place of what the function "
                "returns, or a future of it"
            )
        part: Diagnoser = pickle.loads(found)
        yield part


class _Call:
    """A call that dask does not look into."""

    def __init__(self, run: RowRun) -> None:
        self._run = run

    def __call__(self) -> Diagnoser:
        return accumulated(self._run)


def _grouped(slices: Sequence[slice], most: int) -> Iterator[Sequence[slice]]:
    """Neighbouring blocks, in so many groups at most."""
    size = -(-len(slices) // most)
    for start in range(0, len(slices), size):
        yield slices[start : start + size]
