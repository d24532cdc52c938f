# SPDX-License-Identifier: MIT
"""The watches in a trace's header (struct trace_watch of stubs/runtime/trace.h)."""

from __future__ import annotations

import os
from dataclasses import replace

from ftpatch.errors import InputError, UsageError
from ftpatch.layout import constants
from ftpatch.trace.header import Header
from ftpatch.watch import readable, watch_line
from ftpatch.watch.table import SLOTS, TABLE_SIZE, Told, unpack_watches

__all__ = ["read_watched", "reason_of", "refusal_note"]

AT = constants["TRACE_HEADER"]
"""Size of the header before them (bytes)."""
_REASONS = {
    1: "denied by the kernel: kernel.perf_event_paranoid, or a sandbox",
    7: "the kernel is older than 5.13",
    13: "denied by the kernel: kernel.perf_event_paranoid, or a sandbox",
    19: "no data breakpoints on this machine",
    22: "the kernel is older than 5.13, or cannot watch this address",
    24: "no free descriptor",
    28: "no free breakpoint: used by a debugger or perf",
    38: "no perf_event_open(): an emulator, or a kernel without it",
    95: "no data breakpoints on this machine",
    116: "the library is not loaded, or is another one than when it was watched",
}
"""By errno: see perf_event_open(2), "ERRORS"."""


def read_watched(fd: int, header: Header, *, plain: bool = True) -> list[Told | None]:
    """Read the watches of a trace, by number; None for unused ones. Names are as in sources or,
    with ``plain``, as in symbol tables. Raises InputError for invalid contents."""
    alone = header.only is None
    if (alone and header.probes != SLOTS) or header.header_size < AT + TABLE_SIZE:
        raise InputError(header.path, "its header has no room for its watches")
    try:
        raw = os.pread(fd, TABLE_SIZE, header.header_size - TABLE_SIZE)
    except OSError as error:
        raise InputError(header.path, f"cannot read: {error.strerror}") from None
    try:
        told = unpack_watches(raw, header.order)
    except UsageError as error:
        raise InputError(header.path, f"its watches are corrupt: {error}") from None
    if plain:
        return told
    return [one and replace(one, watch=readable(one.watch)) for one in told]


def refusal_note(told: Told) -> str:
    """Explain in a clause that a watch has no events; empty if it was set."""
    if not told.refusal:
        return ""
    why = reason_of(told.refusal)
    return f"{watch_line(told.watch)}: not watched: errno {told.refusal}, {why}"


def reason_of(code: int) -> str:
    """Explain an errno of perf_event_open(2)."""
    return _REASONS.get(code) or (os.strerror(code) if code < 1 << 31 else "unknown")
