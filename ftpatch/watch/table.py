# SPDX-License-Identifier: MIT
"""Watches as bytes: four struct trace_watch of stubs/runtime/trace.h.

They are injected in this form, and a trace begins with a copy of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ftpatch.core.byte_order import ByteOrder
from ftpatch.errors import UsageError
from ftpatch.layout import constants, pack, structure, unpack
from ftpatch.watch.grammar import LENGTHS, parse_watch
from ftpatch.watch.watches import Watch, watch_line

__all__ = ["SLOTS", "TABLE_SIZE", "TYPES", "Told", "pack_watches", "unpack_watches"]

SLOTS = constants["WATCHES"]
"""Breakpoints of x86's processors (SDM vol. 3, section 18.2.1, "Debug Address Registers")."""
_ENTRY = structure("trace_watch")
TABLE_SIZE = SLOTS * _ENTRY.itemsize
"""Bytes."""
_MAX_TEXT = _ENTRY["text"].itemsize
"""Size of the text (bytes)."""
TYPES = {"r--": 1, "-w-": 2, "rw-": 3}
"""HW_BREAKPOINT_R, _W and _RW of include/uapi/linux/hw_breakpoint.h."""


@dataclass(frozen=True, slots=True)
class Told:
    """A watch in a trace: how many accesses it recorded, how many it ``missed``, and why the kernel
    refused it (``refusal``, an errno; 0: it did not)."""

    watch: Watch
    hits: int
    missed: int
    refusal: int


def pack_watches(watches: Sequence[Watch], order: ByteOrder) -> bytes:
    """Pack at most SLOTS watches; unused entries are zero. Raises UsageError for a symbol whose
    name is too long."""
    out = b""
    for watch in watches:
        text = watch_line(watch).encode()
        if len(text) > _MAX_TEXT:
            hint = f"at most {_MAX_TEXT} bytes"
            raise UsageError(None, f"{text[:40].decode(errors='replace')}...: too long", hint)
        out += pack(
            "trace_watch",
            order,
            address=watch.address,
            length=watch.length,
            type=TYPES[watch.type],
            size=len(text),
            text=text,
        )
    return out.ljust(TABLE_SIZE, b"\0")


def unpack_watches(raw: bytes, order: ByteOrder) -> list[Told | None]:
    """Parse a table by event numbers; None for unused entries. Raises UsageError for invalid
    contents, with a clause that names no place."""
    if len(raw) < TABLE_SIZE:
        raise UsageError(None, "truncated")
    at = (number * _ENTRY.itemsize for number in range(SLOTS))
    entries = (unpack("trace_watch", order, raw, place) for place in at)
    return [_told(number, **entry) for number, entry in enumerate(entries)]


def _told(
    number: int,
    *,
    hits: int,
    missed: int,
    address: int,
    length: int,
    type: int,
    refusal: int,
    size: int,
    text: bytes,
) -> Told | None:
    if not type:
        return None
    wrong = UsageError(None, f"watch {number} does not match its text")
    if size > _MAX_TEXT:
        raise wrong
    line = text[:size].ljust(size, b"\0").decode("utf-8", "backslashreplace")
    request = parse_watch(line)
    fits = request.length in (None, length) and length in LENGTHS and not address % length
    if not fits or TYPES.get(request.type) != type:
        raise wrong
    watch = Watch(
        symbol=request.symbol,
        offset=request.offset,
        address=address,
        length=length,
        type=request.type,
        usual=request.length is None,
        library=request.library,
        filter=request.filter.text if request.filter else "",
        stack=request.stack,
    )
    return Told(watch, hits, missed, refusal)
