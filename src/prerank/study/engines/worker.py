"""A worker process: `python -m prerank.study.engines.worker DESCRIPTOR`, begun by `Processes`.

The function comes first through the connection, then argument after argument; each is answered by
a pair: whether it worked, and the value or the error. What the function tells on its way goes
before it, as notes. Standard input is a pipe whose other end the parent holds: where it ends, the
parent is gone, however it went, and the worker goes too.
"""

import os
import pickle
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

from prerank.study.engines.calls import LISTENER, answer
from prerank.study.engines.tasks import TaskError

__all__ = ["serve"]


def serve(link: "Connection[Any, Any]") -> None:
    """Answer until the other end is closed."""
    LISTENER.set(link.send)
    function = link.recv()
    while True:
        try:
            argument = link.recv()
        except EOFError:
            return
        try:
            link.send(answer(function, argument))
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            link.send((False, TaskError(f"what the task returned cannot be sent: {error}")))


def _leave_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)  # files are whole or absent: nothing has to be taken back


if __name__ == "__main__":
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    serve(Connection(int(sys.argv[1])))
