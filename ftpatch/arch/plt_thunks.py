# SPDX-License-Identifier: MIT
"""Thunks of PLT entries: an entry jumps to its thunk, which calls the tracer and then jumps into
the library as the entry did, through the same slot.

What the tracer returns to is the thunk; behind its last jump is the distance to the ip that it
records (stubs/*/entry.S, ftrace_plt_caller), int32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import feature
from ftpatch.arch.contract import U8

__all__ = ["I64", "PltThunks", "bytes_of", "plt_thunks_of", "put"]

I64 = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class PltThunks:
    """Addresses are int64[n].

    ``old(jump, slot, code)``: what the linker wrote at ``jump``, and its widths uint16[n]; which of
    its forms it may be is told by what is there, ``code`` uint8[n, width].
    ``new(old, jump, thunk)``: the same as a jump to its thunk. ``make(old, jump, slot, thunk,
    caller)``: the thunks, uint8[n, size], which call the code at address ``caller``. ``reach``
    (bytes) is how far apart all of these addresses may be; ``head`` and ``initial`` are the CIE of
    thunks, as in elf/eh_frame.py; ``index``: where unwinders search an exception index instead,
    the word there, 0: they do not.
    """

    width: int
    size: int
    reach: int
    old: Callable[[I64, I64, U8], tuple[U8, NDArray[np.uint16]]]
    new: Callable[[U8, I64, I64], U8]
    make: Callable[[U8, I64, I64, I64, int], U8]
    head: bytes = b""
    initial: bytes = b""
    index: int = 0


def plt_thunks_of(arch: str) -> PltThunks:
    """The thunks of an architecture. Raises InputError if there are none."""
    found: PltThunks = feature(arch, "plt_thunks")
    return found


def put(code: U8, at: int, value: I64) -> None:
    """Write values into a column of rows of bytes, as int32."""
    code[:, at : at + 4] = value.astype("<i4").view(np.uint8).reshape(-1, 4)


def bytes_of(code: NDArray[np.integer]) -> U8:
    """The bytes of rows of instructions of four bytes each, little-endian."""
    return np.ascontiguousarray(code, "<u4").view(np.uint8).reshape(len(code), -1)
