# SPDX-License-Identifier: MIT
"""Areas: memory that is mapped in a process for a stub, near the code that calls it.

    | code for injected calls | text, r-x | data, rw- | tables, r-- | stack and words, rw- |
      ^ start, page by page

An area is mapped readable and executable as a whole, filled through /proc/PID/mem, and parts of it
are given their own protection after that: no page is ever writable and executable.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ftpatch.elf.headers import Segment
from ftpatch.errors import InputError
from ftpatch.process import maps
from ftpatch.process.process import Process

__all__ = ["READ", "READ_EXECUTE", "READ_WRITE", "Area", "Part", "filled", "find_hole", "placed"]

READ: Final = 1
READ_WRITE: Final = 3
READ_EXECUTE: Final = 5
"""PROT_READ, with PROT_WRITE, with PROT_EXEC."""
GUARD: Final = 1 << 16
"""Bytes to leave free on both sides, so that a stray access still faults."""
LOWEST: Final = 1 << 20
"""Lowest address to use: below it, null pointers have to fault."""
SPREAD: Final = 1 << 12
"""Pages among which to choose."""
STACK_GROWS: Final = 1 << 30
"""Bytes below the first stack that stay free for it."""


class Part(Protocol):
    """One segment of a stub: ``address`` as linked, ``data`` uint8[n], ``size`` bytes in memory,
    ``flags`` PF_*."""

    @property
    def address(self) -> int: ...
    @property
    def data(self) -> NDArray[np.uint8]: ...
    @property
    def size(self) -> int: ...
    @property
    def flags(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Area:
    """Memory from ``start`` on, ``size`` bytes. ``contents``: what it is filled with, by address;
    ``protected``: (address, bytes, PROT_*) of the parts that are not to be executable; ``text``:
    bounds of the code in it; ``shift``: what is added to the stub's link addresses."""

    start: int
    size: int
    contents: tuple[tuple[int, bytes], ...]
    protected: tuple[tuple[int, int, int], ...]
    text: tuple[int, int]
    shift: int

    @property
    def end(self) -> int:
        """The address after it."""
        return self.start + self.size


def placed(
    parts: Sequence[Part], start: int, page: int, *, before: int = 0, behind: int = 0
) -> Area:
    """Lay a stub's parts out in an area at ``start``, after ``before`` bytes for injected calls;
    ``behind``: bytes to write to at its end. All sizes are rounded to whole pages."""
    first = parts[0].address // page * page
    before = _pages(before, page)
    shift = start + before - first
    low, high = start + before, start + before
    protected, contents = [], []
    for part in parts:
        at, size = part.address + shift, _pages(part.address % page + part.size, page)
        if part.flags & Segment.PF_X:
            high = max(high, at + part.size)
        else:
            writes = READ_WRITE if part.flags & Segment.PF_W else READ
            protected.append((at // page * page, size, writes))
        contents.append((at, part.data.tobytes()))
    end = max(part.address + part.size for part in parts) + shift
    end = start + _pages(end - start, page)
    if behind:
        protected.append((end, _pages(behind, page), READ_WRITE))
    return Area(
        start=start,
        size=end + _pages(behind, page) - start,
        contents=tuple(contents),
        protected=tuple(protected),
        text=(low, high),
        shift=shift,
    )


def filled(area: Area, values: Mapping[int, bytes]) -> tuple[tuple[int, bytes], ...]:
    """The area's contents with ``values`` for some of the stub's linked addresses."""
    out = []
    for at, data in area.contents:
        held = bytearray(data)
        for address, value in values.items():
            offset = address + area.shift - at
            if 0 <= offset < len(held):
                held[offset : offset + len(value)] = value
        out.append((at, bytes(held)))
    return tuple(out)


def find_hole(
    process: Process,
    mappings: Sequence[maps.Mapping],
    taken: Sequence[Area],
    *,
    low: int,
    high: int,
    size: int,
    reach: int,
    page: int,
) -> int:
    """Find an unused address for ``size`` bytes from which all code from ``low`` to ``high`` is
    within ``reach`` bytes, and the other way round. Raises InputError if there is none."""
    used = [(one.start, one.end) for one in mappings]
    used += [(one.start, one.end) for one in taken]
    stacks = {one.start for one in mappings if one.path == b"[stack]"}
    first, last = max(high - reach, LOWEST), low + reach
    best, room = 0, 0
    end = LOWEST
    for start, stop in [*sorted(used), (1 << 63, 1 << 63)]:
        keep = STACK_GROWS if start in stacks else GUARD
        bottom, top = max(first, end + GUARD), min(last, start - keep)
        if top - bottom >= size and top - bottom > room:
            # As the kernel does: at the upper end, where a heap below it comes last. But where
            # nothing was before: an old return address may still lie on some stack.
            free = min((top - bottom - size) // page, SPREAD)
            best = (top - size) // page * page - secrets.randbelow(free + 1) * page
            room = top - bottom
        end = max(end, stop)
    if best < max(first, LOWEST):
        raise InputError(None, f"{process}: no room of {size} bytes near {low:#x}")
    return best


def _pages(size: int, page: int) -> int:
    return (size + page - 1) // page * page
