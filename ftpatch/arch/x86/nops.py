# SPDX-License-Identifier: MIT
"""NOPs of x86: what compilers leave, what ftpatch writes.

Intel SDM volume 2B, NOP, "Recommended Multi-Byte Sequence of NOP Instruction". A pad is one
instruction where the compiler knows multi-byte NOPs; a call takes its first five bytes, so the
others must become a NOP of their own:

    2e 66 0f 1f 84 00 00 02 00 00     ->     e8 <rel32> 0f 1f 44 00 00
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.contract import U8

__all__ = ["CLANG_PADS", "MAX_NOP_SIZE", "OFFERED", "OFFERED6", "P6", "TAIL", "form_lengths"]

TAIL: Final[tuple[bytes, ...]] = (
    b"",
    b"\x90",  # nop
    b"\x66\x90",  # xchg %ax,%ax
    b"\x0f\x1f\x00",  # nopl (%rax)
    b"\x0f\x1f\x40\x00",  # nopl 0x0(%rax)
    b"\x0f\x1f\x44\x00\x00",  # nopl 0x0(%rax,%rax,1)
)
"""One NOP of each length (bytes)."""

P6: Final = TAIL[5]
"""The kernel's NOP5 of the P6 family: what x86-64 compares at boot, and -mnop-mcount writes."""

CLANG_PADS: Final[tuple[bytes, ...]] = (
    b"\x0f\x1f\x44\x00\x08",  # nopl 0x8(%rax,%rax,1)
    b"\x66\x0f\x1f\x44\x00\x08",  # nopw 0x8(%rax,%rax,1)
    b"\x0f\x1f\x80\x00\x02\x00\x00",  # nopl 0x200(%rax)
    b"\x0f\x1f\x84\x00\x00\x02\x00\x00",  # nopl 0x200(%rax,%rax,1)
    b"\x66\x0f\x1f\x84\x00\x00\x02\x00\x00",  # nopw 0x200(%rax,%rax,1)
    b"\x2e\x66\x0f\x1f\x84\x00\x00\x02\x00\x00",  # cs nopw 0x200(%rax,%rax,1)
)
"""clang's pads of five to ten bytes; a longer one begins with the last. Their displacements are not
zero, to distinguish them from alignment."""

MAX_NOP_SIZE: Final = 10
"""Size of the longest pad."""

OFFERED: Final[dict[str, bytes]] = {
    "p6": P6,
    "nop5": b"\x66\x66\x66\x66\x90",  # data16 data16 data16 xchg %ax,%ax
    "jmp": b"\xeb\x03\x90\x90\x90",  # jmp .+5; nop; nop; nop
}
"""``--nop``: the three of the ftrace.c of v2.6.28."""

OFFERED6: Final[dict[bytes, bytes]] = {
    OFFERED["p6"]: b"\x66\x0f\x1f\x44\x00\x00",  # nopw 0x0(%rax,%rax,1)
    OFFERED["nop5"]: b"\x66\x66\x66\x66\x66\x90",  # five data16, xchg %ax,%ax
    OFFERED["jmp"]: b"\xeb\x04\x90\x90\x90\x90",  # jmp .+6; four nop
}
"""Their longer sisters, for a call of six bytes."""


def form_lengths(code: U8, forms: tuple[bytes, ...]) -> NDArray[np.int64]:
    """Bytes of the form that each row begins with, int64[n]; 0 for none. The first eight
    bytes are compared as one number."""
    packed = np.zeros((len(code), 8), np.uint8)
    packed[:, : min(code.shape[1], 8)] = code[:, :8]
    number = packed.view("<u8")[:, 0]
    out = np.zeros(len(code), np.int64)
    for form in forms:
        head = form[:8]
        same = number & np.uint64((1 << 8 * len(head)) - 1) == int.from_bytes(head, "little")
        if len(form) > 8:
            rest = np.frombuffer(form[8:], np.uint8)
            same &= (code[:, 8 : len(form)] == rest).all(axis=1)
        out[same & (out == 0)] = len(form)
    return out
