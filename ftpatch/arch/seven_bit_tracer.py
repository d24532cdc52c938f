# SPDX-License-Identifier: MIT
"""Boot tracers with events of seven_bits.py: what they have in common, and semihosting, by which
some of them send.

A tracer that is apart from its data (in a module) has two Fields before its code: how far the
place is that events count from, and how far the word.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.boot import MARK, Assembly, Events, Wanted
from ftpatch.arch.seven_bits import MARKER, SevenBits

__all__ = ["AT_MARK", "AT_WORD", "SEMIHOSTED", "SEMIHOSTING", "WRITE0", "WRITEC", "SevenBitTracer"]

SEMIHOSTING = "semihosting"
"""The sink's name."""
WRITEC = 3
"""SYS_WRITEC of Arm's semihosting, and of RISC-V's: a byte at an address."""
WRITE0 = 4
"""SYS_WRITE0: a string at an address, up to a NUL."""
SEMIHOSTED = (
    *("-chardev", "file,id=events,path={stream}", "-semihosting-config"),
    *("enable=on,target=native,chardev=events", "-serial", "file:{console}"),
)
"""QEMU's words for events that come by it."""
AT_MARK = MARK.size
AT_WORD = MARK.size + 4
"""Positions of the Fields of a tracer that is apart, before its code."""


@dataclass(frozen=True, kw_only=True)
class SevenBitTracer:
    """Most of a BootTracer: ``event`` is the layout of what it sends."""

    name: str
    sinks: tuple[str, ...]
    event: SevenBits
    field: int
    pads: bytes = b""
    tail: str = ""
    pads_only: bool = True
    behind: int = 8
    marker: int = MARKER
    align: int = 16
    stack: int = 16384
    locked: tuple[str, ...] = ()

    def size(self, *, time: bool, back: bool = True) -> int:
        """Bytes of an event."""
        return self.event.size(time=time, back=back)

    def read(self, rows: NDArray[np.uint8], *, time: bool, back: bool = True) -> Events:
        """Decode events, uint8[n, size]."""
        return self.event.read(rows, time=time, back=back)

    def begun(self, wanted: Wanted) -> Assembly:
        """Begin the code: its Fields, if it is apart."""
        out = Assembly(self.name)
        if wanted.apart:
            out.distance(word=False)
            if wanted.word is not None:
                out.distance(word=True)
        return out
