"""`python -m prerank` inside this process, which saves the seconds that torch takes to load."""

import contextlib
import io
import os
import runpy
import sys
import traceback
import warnings
from typing import NamedTuple
from unittest import mock

_ENVIRONMENT = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "PRERANK_DATA": "data"}


class Done(NamedTuple):
    """Exit code and output of a command."""

    code: int
    text: str
    error: str


def command(*words, cwd):
    """Run a command in a folder, with a terminal of fixed width."""
    text, error = io.StringIO(), io.StringIO()
    code = 0
    with (
        contextlib.chdir(cwd),
        mock.patch.dict(os.environ, _ENVIRONMENT),
        mock.patch.object(sys, "argv", ["prerank", *map(str, words)]),
        contextlib.redirect_stdout(text),
        contextlib.redirect_stderr(error),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "'prerank.__main__' found", RuntimeWarning)
        try:
            runpy.run_module("prerank", run_name="__main__", alter_sys=True)
        except SystemExit as end:
            code = end.code or 0
        except Exception:  # as a process of its own does
            code = 1
            traceback.print_exc(file=error)
    return Done(code, text.getvalue(), error.getvalue())
