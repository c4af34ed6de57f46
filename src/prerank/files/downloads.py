"""Downloads that are verified: of known size and SHA-256, within a limit of time.

`pooch` is not used: it stores whatever a server sends, has no limit of size or total time, and
knows no mirror on disk.
"""

import hashlib
import http.client
import time
from collections.abc import Callable, Generator
from queue import Empty, Queue
from threading import Event, Thread
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from prerank.errors import PrerankError

__all__ = ["FetchError", "download"]

_CHUNK = 65_536
_SLOWEST = 1000  # bytes per second over a whole download
_OTHER = "another address by --origin (`origin` in Python)"
_LATER = "Try again later, or from Python with a longer `timeout`"


class FetchError(PrerankError, OSError, ValueError):
    """A dataset could not be downloaded; the message names it, the address and what to do."""


def download(
    address: str, *, size: int, sha256: str, timeout: float, on_bytes: Callable[[int], object]
) -> bytes:
    """The bytes at an address, if they are those that are expected.

    A timeout of the socket is for each byte: a server that sends one now and then, or never ends
    the head of its answer, would hold us forever. So another thread talks to it.

    Args:
        address: http, https or file.
        size: in bytes.
        sha256: of the bytes.
        timeout: seconds to wait for the first or next bytes. The whole download may take that
            long and one second more for each kB.
        on_bytes: called with the number of bytes that have just arrived.
    """
    limit = timeout + size / _SLOWEST
    deadline = time.monotonic() + limit
    arrivals: Queue[bytes | Exception] = Queue()
    unwanted = Event()

    def work() -> None:
        try:
            for chunk in _bounded(address, size, timeout):
                arrivals.put(chunk)
                if unwanted.is_set():
                    break
        except Exception as error:
            arrivals.put(_explained(error, address, timeout))
        arrivals.put(b"")

    Thread(target=work, name=f"fetch {address}", daemon=True).start()
    data = bytearray()
    try:
        while found := arrivals.get(timeout=max(deadline - time.monotonic(), 0.0)):
            if isinstance(found, Exception):
                raise found
            data += found
            on_bytes(len(found))
    except Empty:
        reason = f"only {len(data)} of {size} bytes came in {limit:.3g} s. {_LATER}"
        raise FetchError(reason) from None
    finally:
        unwanted.set()
    if len(data) < size:
        raise FetchError(f"the download ended after {len(data)} of {size} bytes. Try again")
    digest = hashlib.sha256(data).hexdigest()
    if digest != sha256:
        raise FetchError(
            f"the file there is not the original: its SHA-256 is {digest}, expected {sha256}. Name "
            f"{_OTHER}"
        )
    return bytes(data)


def _bounded(address: str, size: int, timeout: float) -> Generator[bytes]:
    """At most `size` bytes from an address; more raise."""
    received = 0
    with urlopen(Request(address, headers={"User-Agent": "prerank"}), timeout=timeout) as response:
        announced = response.headers.get("Content-Length", "")
        if announced.isdecimal() and int(announced) != size:
            raise _wrong_size(f"{announced} bytes", size)
        # read1 hands over what has arrived, where read would wait for a whole chunk.
        while chunk := response.read1(_CHUNK):
            received += len(chunk)
            if received > size:
                raise _wrong_size(f"more than {size} bytes", size)
            yield chunk


def _explained(error: Exception, address: str, timeout: float) -> Exception:
    """A failure of the network, or of the disk, in words; a mistake of ours stays what it is."""
    if isinstance(error, FetchError):
        return error
    if isinstance(error, HTTPError):
        error.close()
        return FetchError(f"the server answers {error.code} {error.reason}. Name {_OTHER}")
    reason = error.reason if isinstance(error, URLError) else error
    if isinstance(reason, TimeoutError):
        return FetchError(f"nothing came for {timeout:g} s. {_LATER}")
    if isinstance(error, OSError | http.client.HTTPException | ValueError):
        on_disk = address.lower().startswith("file:")
        doubt = "that the file is there and can be read" if on_disk else "the connection"
        return FetchError(f"{reason or type(error).__name__}. Check {doubt}, or name {_OTHER}")
    return error


def _wrong_size(found: str, size: int) -> FetchError:
    return FetchError(
        f"the file there has {found}, the original {size}: it is another one, or a page that asks "
        f"to log in. Name {_OTHER}"
    )
