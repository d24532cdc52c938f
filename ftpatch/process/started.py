# SPDX-License-Identifier: MIT
"""Starting a runtime in a process that runs already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ftpatch.arch.injected_call import Function
from ftpatch.errors import InputError
from ftpatch.process.areas import Area
from ftpatch.process.bring_in import STACK, TOKEN
from ftpatch.process.loaded import Loaded
from ftpatch.process.process import Process

__all__ = ["auxiliary", "linker_span", "started"]

AT_BASE, AT_EXECFN, AT_SECURE = 7, 31, 23
WORD: Final = 8


def auxiliary(process: Process) -> dict[int, int]:
    """Tell what the kernel told a program when it began, by AT_*. Raises InputError."""
    try:
        raw = (process.place / "auxv").read_bytes()
    except OSError as error:
        raise InputError(process.place, f"cannot read: {error.strerror}") from None
    pairs = np.frombuffer(raw, np.uint64, len(raw) // WORD // 2 * 2).reshape(-1, 2)
    return {key: value for key, value in pairs.tolist() if key}


def linker_span(process: Process, loaded: Sequence[Loaded]) -> tuple[int, int] | None:
    """Bounds of the dynamic linker's code; None if there is none. Raises InputError."""
    address = auxiliary(process).get(AT_BASE, 0)
    return next((one.span for one in loaded if address and one.address == address), None)


def started(
    process: Process, main: Area, trace_start: int, environment: dict[str, str]
) -> tuple[Function, tuple[int, bytes]]:
    """The call of a runtime's ``trace_start`` (address as linked), and what that takes for the
    start of its process's stack:

    | argc | NULL | envp ... | NULL | auxv ... | AT_NULL | strings |
    """
    at = main.end - STACK
    held = auxiliary(process)
    try:
        name = (process.place / "exe").readlink()
    except OSError as error:
        raise InputError(process.place, f"cannot read: {error.strerror}") from None
    texts = [bytes(name)] + [f"{key}={value}".encode() for key, value in environment.items()]
    words = 2 + len(environment) + 1 + 2 * (len(held.keys() | {AT_EXECFN, AT_SECURE}) + 1)
    places, strings = [], b""
    for text in texts:
        places.append(at + words * WORD + len(strings))
        strings += text + b"\0"
    held |= {AT_EXECFN: places[0], AT_SECURE: 0}
    vector = [word for pair in held.items() for word in pair]
    block = np.array([0, 0, *places[1:], 0, *vector, 0, 0], np.uint64).tobytes() + strings
    call = Function(trace_start + main.shift, (at,), main.end - 16 * TOKEN)
    return call, (at, block)
