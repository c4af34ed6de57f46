"""CUDA graphs: a function of fixed tensors, recorded once and then replayed."""

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

__all__ = ["Replay"]

_WARM_UP = 3  # calls before recording: libraries choose their kernels and buffers in the first ones


class Replay:
    """Calls a function without arguments or result, which changes tensors in place.

    A training step launches hundreds of small kernels, and launching them costs more than running
    them. Recorded as a graph they are launched together. Recording demands that the function never
    waits for the device and always works on the same tensors. A function that does wait is
    recognised before it is recorded, and simply called from then on.

    Args:
        function: what to call.
        device: where its tensors live; on a CPU it is simply called.
        enabled: whether to record at all.
    """

    def __init__(
        self, function: Callable[[], None], device: torch.device, *, enabled: bool = True
    ) -> None:
        self._function = function
        self._device = device
        self._enabled = enabled and device.type == "cuda"
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    @property
    def recorded(self) -> bool:
        """Whether calls replay a graph."""
        return self._graph is not None

    def __call__(self) -> None:
        """Call the function, or replay it."""
        if self._graph is not None:
            self._graph.replay()
        elif not self._enabled:
            self._function()
        elif self._calls < _WARM_UP:
            self._calls += 1
            self._warm_up()
        else:
            self._graph = self._recorded()
            self._graph.replay()

    def _warm_up(self) -> None:
        """Call on a side stream, as recording will."""
        stream = torch.cuda.Stream(self._device)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            try:
                # Not in the first call, where kernels may still be compiled and loaded.
                with _no_waiting() if self._calls > 1 else torch.cuda.stream(stream):
                    self._function()
            except RuntimeError as error:
                if "synchronizing" not in str(error):
                    raise
                self._enabled = False
                self._function()
        torch.cuda.current_stream(self._device).wait_stream(stream)

    def _recorded(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with _no_collection(), torch.cuda.graph(graph):
            self._function()
        return graph


@contextmanager
def _no_collection() -> Iterator[None]:
    """Collect garbage before, not during: freeing an old graph would spoil the new one."""
    gc.collect()
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def _no_waiting() -> Iterator[None]:
    """Raise where the host would wait for the device."""
    mode = torch.cuda.get_sync_debug_mode()
    try:
        _set_mode("error")
        yield
    finally:
        _set_mode(mode)


def _set_mode(mode: int | str) -> None:
    with warnings.catch_warnings():
        # torch warns that it may overlook some waits: then recording fails, and says so.
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode(mode)
