# SPDX-License-Identifier: MIT
"""Pages of a mapped file that cannot be read: the file was truncated, or its disk is failing.

The kernel then sends SIGBUS to the reading instruction, which silently kills the process. A handler
in Python would not help: it runs once the instruction has completed, which it never does. So the
handler is a C function that calls Python from within the instruction (a ctypes callback). That is
sound for what this process does to itself: the instruction is in the middle of copying or comparing
bytes, holds no allocator lock, modifies no object, and does not continue afterwards.

It takes no second process, no copy of the file and no lease, which only the owner could have, and
costs the import of ctypes only if a file is mapped at all.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ftpatch.errors import FtpatchError, InputError
from ftpatch.io.file_id import file_id

__all__ = ["mapped", "tell_faults"]


class _Faults:
    """``end`` reports the error and ends the process; ``files`` are those mapped."""

    end: Callable[[FtpatchError], None] | None = None
    handler: Any = None
    files: dict[Path, tuple[int, ...]] = {}  # noqa: RUF012 - there is one


def tell_faults(end: Callable[[FtpatchError], None]) -> None:
    """Install the handler; ``end`` must not return. Without it SIGBUS keeps its default action."""
    _Faults.end = end


def mapped(path: Path, held: os.stat_result) -> None:
    """Register a file about to be mapped, for which fstat returned ``held``."""
    _Faults.files[path] = file_id(held)
    if _Faults.end is None or _Faults.handler is not None:
        return
    import ctypes

    libc = ctypes.CDLL(None)
    libc.signal.restype, libc.signal.argtypes = ctypes.c_void_p, (ctypes.c_int, ctypes.c_void_p)
    _Faults.handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(_faulted)
    before = libc.signal(signal.SIGBUS, ctypes.cast(_Faults.handler, ctypes.c_void_p))
    if before:  # it belongs to someone else: faulthandler, a program that embeds us
        libc.signal(signal.SIGBUS, before)


def _faulted(number: int) -> None:
    try:
        if _Faults.end is not None:
            _Faults.end(_why())
    finally:
        os._exit(128 + number)


def _why() -> InputError:
    """Explain a fault by the state of the mapped files."""
    for path, before in _Faults.files.items():
        try:
            if file_id(path.stat()) == before:
                continue
        except OSError:
            pass
        return InputError(path, "the file changed while it was being read", "try again")
    names = ", ".join(map(str, _Faults.files))
    return InputError(names, "SIGBUS, although the file has not changed", "check the disk")
