"""Functions that engines are given, and a look at the processes they run in."""

import os
import resource
import signal
import time
from pathlib import Path

import torch

from prerank.errors import InputError
from prerank.study.engines import emit


def square(x):
    return x * x


def threads(_):
    return torch.get_num_threads(), os.environ.get("CUDA_VISIBLE_DEVICES")


def identity(_):
    return os.getpid()


def count_aloud(n):
    """Emit the numbers below n; return n and how many threads torch has."""
    for number in range(n):
        emit(number)
    return n, torch.get_num_threads()


class StubbornError(Exception):
    """An error that does not survive being sent."""

    def __init__(self, one, two):
        super().__init__(one + two)


def trouble(kind):
    """What a task may do besides returning: by name, or the square of a number."""
    match kind:
        case ("unlucky", folder):
            return unlucky(folder)
        case (_, _, _):
            return dies_until(kind)
        case "raises":
            raise RuntimeError("this one never works")
        case "refused":
            raise InputError("no such dataset")
        case "stubborn":
            raise StubbornError("cannot ", "travel")
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "leaves":
            os._exit(7)
        case "hungry":
            hungry()
        case "unsendable":
            return lambda: None
    return kind * kind


def hungry():
    """Ask for more memory than this process may have."""
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = used * resource.getpagesize() + 2**28
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    bytearray(2**33)


def dies_until(argument):
    """Die, with a note that it did, until there are enough notes."""
    folder, name, times = argument
    notes = list(Path(folder).glob(f"{name}.*"))
    if len(notes) < times:
        (Path(folder) / f"{name}.{len(notes)}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return name


def unlucky(folder):
    """Be killed, then run out of memory, then return: each attempt leaves a note."""
    attempt = len(list(Path(folder).iterdir()))
    (Path(folder) / str(attempt)).touch()
    if attempt == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if attempt == 1:
        hungry()
    return "done"


def linger(path):
    """Work for a minute, and leave a sign of it at the begin and at the end."""
    Path(path).touch()
    time.sleep(60)
    Path(f"{path}.end").touch()


def wait_for(argument):
    """Say by a file that it is at work, and wait for another file."""
    sign, other = argument
    sign.touch()
    return wait_until(other.exists)


def marked(mark):
    """Running processes whose environment had an entry at their begin: their command lines by id.

    Nobody else's processes have it, so tests that run beside each other do not disturb each other.
    """
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            title = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        except OSError:  # it has just ended
            continue
        if mark.encode() in environment and title:  # one that has ended has no title
            found[int(folder.name)] = title
    return found


def wait_until(condition, seconds=240.0):
    """Wait for a condition; what it says in the end."""
    end = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    return found
