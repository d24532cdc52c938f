"""The payload of a compressed image, unpacked beside everything else, as copy.py copies.

A bzImage takes half a second to unpack, and the libraries take nearly as long to load. So the first
image that a command line names is begun at once, in a thread, and asked for when it is needed.
"""

from __future__ import annotations

import stat
import threading
from collections.abc import Sequence
from pathlib import Path

from ftpatch.errors import FtpatchError
from ftpatch.identity import identity
from ftpatch.unwrap import Payload, read_payload

__all__ = ["begin", "payload_of"]

LARGEST = 64 << 20
"""Bytes of a file that is read for this."""
HEAD = 0x206
"""Bytes from which on a file tells whether it is worth it: a bzImage's 'HdrS' ends here."""


class _Ahead:
    """The one image that was begun: what lstat said of it, and what came of it."""

    file: tuple[int, ...] | None = None
    thread: threading.Thread | None = None
    result: Payload | FtpatchError | None = None


def begin(arguments: Sequence[str]) -> None:
    """Begin with the first of the words that names what may be a compressed kernel. What goes wrong
    is told when it is asked for."""
    for word in arguments:
        path = Path(word)
        try:
            held = path.stat()
            if not stat.S_ISREG(held.st_mode) or not HEAD <= held.st_size <= LARGEST:
                continue
            with path.open("rb") as file:
                head = file.read(HEAD)
        except (OSError, ValueError):
            continue
        if head[:4] == b"\x7fELF":
            continue
        _Ahead.file = identity(held)
        _Ahead.thread = threading.Thread(target=_run, args=(path,), daemon=True)
        _Ahead.thread.start()
        return


def payload_of(path: Path, data: memoryview) -> Payload:
    """What the file at ``path``, whose bytes are ``data``, holds: read_payload(), perhaps begun
    before. Raises InputError."""
    thread, _Ahead.thread = _Ahead.thread, None
    if thread is None:
        return read_payload(path, data)
    thread.join()
    result, _Ahead.result = _Ahead.result, None
    try:
        same = identity(path.stat()) == _Ahead.file and len(data) == path.stat().st_size
    except OSError:
        same = False
    if not same or result is None:
        return read_payload(path, data)
    if isinstance(result, FtpatchError):
        raise result
    return result


def _run(path: Path) -> None:
    try:
        data = path.read_bytes()
        _Ahead.result = read_payload(path, memoryview(data))
    except FtpatchError as error:
        _Ahead.result = error
    except (OSError, MemoryError):
        _Ahead.result = None
