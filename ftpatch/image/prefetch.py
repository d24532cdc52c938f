# SPDX-License-Identifier: MIT
"""The payload of a compressed image, unpacked while everything else loads, like output.py's copy.

A bzImage takes half a second to unpack, and the libraries take nearly as long to load. So the first
image named on a command line is started at once, in a thread, and collected when it is needed.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from ftpatch.errors import FtpatchError
from ftpatch.image.payload import Payload, read_payload
from ftpatch.io.file_id import file_id

__all__ = ["begin", "payload_of"]

MAX_FILE = 64 << 20
"""Maximum size of a file to read for this (bytes)."""
HEAD = 0x206
"""Minimum size of a bzImage (bytes)."""
ELF = b"\x7fELF"
TURN = 0.0002
"""Seconds the libraries may go on loading when a decoder wants to run: Python's 5 ms per call add
up to a tenth of the unpacking."""


class _Prefetch:
    """The one image that was started: its identity, and the outcome."""

    file: tuple[int, ...] | None = None
    thread: threading.Thread | None = None
    result: Payload | FtpatchError | None = None


def begin(arguments: Sequence[str]) -> None:
    """Start on the first word that names what may be a compressed kernel. Errors are reported when
    it is collected."""
    for word in arguments:
        try:
            if not _worth(Path(word).stat()):  # a pipe or device must not even be opened
                continue
            fd = os.open(word, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError):
            continue
        try:
            held = os.fstat(fd)
            wanted = _worth(held) and os.pread(fd, len(ELF), 0) != ELF
        except OSError:
            wanted = False
        if not wanted:
            os.close(fd)
            continue
        _Prefetch.file = file_id(held)
        _Prefetch.thread = threading.Thread(target=_run, args=(Path(word), fd), daemon=True)
        sys.setswitchinterval(TURN)
        _Prefetch.thread.start()
        return


def _worth(held: os.stat_result) -> bool:
    return stat.S_ISREG(held.st_mode) and HEAD <= held.st_size <= MAX_FILE


def payload_of(path: Path, data: memoryview) -> Payload:
    """Return the payload of the file at ``path``, whose bytes are ``data``: read_payload(), perhaps
    begun before. Raises InputError."""
    thread = _Prefetch.thread
    try:
        begun = thread is not None and file_id(path.stat()) == _Prefetch.file
    except OSError:
        begun = False
    if thread is None or not begun:
        return read_payload(path, data)
    thread.join()
    result, _Prefetch.thread, _Prefetch.result = _Prefetch.result, None, None
    if result is None:
        return read_payload(path, data)
    if isinstance(result, FtpatchError):
        raise result
    return result


def _run(path: Path, fd: int) -> None:
    try:
        with os.fdopen(fd, "rb") as file:
            data = file.read(MAX_FILE + 1)
        _Prefetch.result = read_payload(path, memoryview(data))
    except FtpatchError as error:
        _Prefetch.result = error
    except Exception:  # whatever it is will occur again where it can be reported
        _Prefetch.result = None
