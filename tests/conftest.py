"""Settings of all tests."""

import importlib
import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest
import torch
from hypothesis import settings
from torch.distributions import Distribution

# Importing zuko switches torch's checks of arguments off, for the whole process: back on.
_CHECKS = Distribution._validate_args
with suppress(ModuleNotFoundError):  # an extra
    importlib.import_module("zuko")
Distribution.set_default_validate_args(_CHECKS)

# A shell's background jobs ignore interrupts, and so would every process that a test begins.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Two workers share two cores: a wall-clock deadline would fail at random.
settings.register_profile("prerank", deadline=None, derandomize=True)
settings.load_profile("prerank")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests of a GPU where there is none."""
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="there is no GPU"))


@pytest.fixture(autouse=True)
def _untouched_global_state() -> Iterator[None]:
    """Seed torch's global generator, and fail a test that changes other global state."""
    torch.manual_seed(0)
    dtype, validation = torch.get_default_dtype(), Distribution._validate_args
    yield
    assert torch.get_default_dtype() == dtype
    assert Distribution._validate_args == validation
