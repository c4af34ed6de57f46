"""Getting public datasets: download, check, encode, write.

`pooch` is not used: it stores whatever a server sends, has no limit of size or total time, and
knows no mirror on disk.
"""

import hashlib
import http.client
import os
import time
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from queue import Empty, Queue
from threading import Event, Thread
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from prerank.datasets.collection import local_mismatch, save_table, table_path
from prerank.datasets.preprocessing import encode_table
from prerank.datasets.registry import Dataset, Origin, find_dataset
from prerank.errors import InputError, PrerankError
from prerank.files.column_files import parse_columns
from prerank.files.dataset_tables import Table, content_hash
from prerank.inputs import as_positive

__all__ = ["FetchError", "fetch"]

_SCHEMES = ("http", "https", "file")
_CHUNK = 65_536
_SLOWEST = 1000  # bytes per second over a whole download
_OTHER = "another address by --origin (`origin` in Python)"
_LATER = "Try again later, or from Python with a longer `timeout`"


class FetchError(PrerankError, OSError, ValueError):
    """A dataset could not be downloaded; the message names it, the address and what to do."""


def fetch(
    dataset: str | Dataset,
    folder: str | os.PathLike[str] | None = None,
    *,
    origin: str | None = None,
    force: bool = False,
    timeout: float = 30.0,
    on_bytes: Callable[[int], None] | None = None,
) -> Path:
    """Download the public original of a dataset, check it, encode it, and write `NAME.parquet`.

    The original is held in memory and never larger than the registry says. Only one whose size
    and SHA-256 are right is encoded, and only a whole table is put in place: after an error the
    folder is as it was before. A table that is there stays, unless its header shows that it cannot
    be read, or has other numbers of rows and columns than the record.

    Args:
        dataset: a name in the registry, or a record of one's own.
        folder: where the table goes; `data_folder()` by default.
        origin: address of a folder that holds the originals under their own file names, such as
            a mirror: http, https or file. The repository in the registry by default.
        force: download even when the table is there, and replace it.
        timeout: seconds to wait for the first or next bytes. The whole download may take that
            long and one second more for each kB.
        on_bytes: called with the number of bytes that have just arrived.

    Returns:
        Path of the table.

    Raises:
        InputError: for an unknown dataset, or one that has no public original to fetch: the
            message says what to bring.
        FetchError: when the download fails or is not the original.

    Example:
        >>> fetch("scm1d", "/nowhere")
        Traceback (most recent call last):
        prerank.errors.InputError: scm1d cannot be fetched: bring scm1d.arff ...
    """
    record = find_dataset(dataset) if isinstance(dataset, str) else dataset
    seconds = as_positive(timeout, "timeout")
    path = table_path(record.name, folder)
    problem = local_mismatch(record, folder)
    if path.is_file() and not problem and not force:
        return path
    if record.origin is None or not record.origin.verifiable:
        found = f" (one copy is at {record.origin.url})" if record.origin else ""
        useless = f". What is here cannot be used: {problem}" if problem else ""
        raise InputError(
            f"{record.name} cannot be fetched: bring {record.bring}{found}, and import it; "
            f"`prerank datasets show {record.name}` has the command{useless}"
        )
    address = _address(record.origin, origin)
    try:
        data = _download(address, record.origin, seconds, on_bytes or (lambda _: None))
    except FetchError as error:
        raise FetchError(f"cannot fetch {record.name} from {address}: {error}") from error
    try:
        return save_table(_encode(data, record, record.origin), folder)
    except InputError as error:
        raise InputError(f"{record.name} came from {address}, but: {error}") from error


def _address(original: Origin, folder: str | None) -> str:
    if folder is None:
        return original.url
    scheme, separator, _ = folder.partition("://")
    if not separator or scheme.lower() not in _SCHEMES:
        raise InputError(
            f"origin must be an address that begins with {', '.join(_SCHEMES)}, got {folder!r}"
        )
    return original.at(folder)


def _download(
    address: str, original: Origin, timeout: float, on_bytes: Callable[[int], None]
) -> bytes:
    """The bytes at an address, if they are the original's."""
    data = bytearray()
    # Closed at once, and not some time later, when `on_bytes` raises.
    with closing(_in_time(address, original.size, timeout)) as chunks:
        for chunk in chunks:
            data += chunk
            on_bytes(len(chunk))
    if len(data) < original.size:
        raise FetchError(
            f"the download ended after {len(data)} of {original.size} bytes. Try again"
        )
    digest = hashlib.sha256(data).hexdigest()
    if digest != original.sha256:
        raise FetchError(
            f"the file there is not the original: its SHA-256 is {digest}, expected "
            f"{original.sha256}. Name {_OTHER}"
        )
    return bytes(data)


def _in_time(address: str, size: int, timeout: float) -> Generator[bytes]:
    """What an address sends before the deadline.

    A timeout of the socket is for each byte: a server that sends one now and then, or never ends
    the head of its answer, would hold us forever. So another thread talks to it.
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
            arrivals.put(error)
        arrivals.put(b"")

    Thread(target=work, name=f"fetch {address}", daemon=True).start()
    received = 0
    try:
        while True:
            found = arrivals.get(timeout=max(deadline - time.monotonic(), 0.0))
            if isinstance(found, FetchError):
                raise found
            if isinstance(found, Exception):
                raise _explained(found, address, timeout) from found
            if not found:
                return
            received += len(found)
            yield found
    except Empty:
        raise FetchError(
            f"only {received} of {size} bytes came in {limit:.3g} s. {_LATER}"
        ) from None
    finally:
        unwanted.set()


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


def _encode(data: bytes, record: Dataset, original: Origin) -> Table:
    """The table of an original whose hash is right."""
    columns = parse_columns(data, original.file, header=record.header)
    inputs = record.inputs or tuple(
        name
        for name in columns.column_names
        if name not in record.targets and name not in record.ignored
    )
    inputs = tuple(sorted(inputs)) if record.sorted_inputs else inputs
    table = encode_table(columns, record.name, record.targets, inputs).table
    if record.content and content_hash(table) != record.content:
        raise InputError(
            "it encodes to other numbers than it should. The installed pyarrow or numpy reads it "
            "differently: please report this with their versions"
        )
    return table
