"""A worker process: `python -m prerank.study.engines.worker DESCRIPTOR`, started by `Processes`.

The connection first brings the function, then pairs of a task's name and argument. Each pair is
answered by events: messages, then one that is finished or failed. Standard input is a pipe whose
other end the parent holds: when it closes, the parent is gone, and the worker ends as well.
"""

import os
import pickle
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

from prerank.study.engines.tasks import Event, TaskError, remote_attempt

__all__ = ["serve"]


def serve(link: "Connection[Any, Any]") -> None:
    """Answer until the other end is closed."""
    function = link.recv()
    while True:
        try:
            name, argument = link.recv()
        except EOFError:
            return
        event = remote_attempt(function, name, argument, link.send)
        try:
            link.send(event)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            reason = TaskError(f"what the task returned cannot be sent: {error}")
            link.send(Event("failed", event.task, error=reason))


def _leave_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)  # files are complete or absent: nothing has to be undone


if __name__ == "__main__":
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    serve(Connection(int(sys.argv[1])))
