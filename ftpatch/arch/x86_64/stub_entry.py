# SPDX-License-Identifier: MIT
"""The entry of a user's stub in a module of x86_64: flags are free, and the direction is forward.

rsp + 80    return address to the site's function: ip
rsp + 88    return address of that function: parent
"""

from __future__ import annotations

from typing import Final

from ftpatch.arch.stub_entry import StubEntry

__all__ = ["ENTRY"]

SAVED = ("rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "rbp")
"""Registers that a C function may change, and the frame."""
IP = 8 * len(SAVED)

ENTRY: Final = StubEntry(
    b"",
    (
        *(f"push {name}" for name in SAVED),
        "mov rbp, rsp",
        f"mov rdi, qword ptr [rbp + {IP}]",
        f"mov rsi, qword ptr [rbp + {IP + 8}]",
        "and rsp, -16",
        "call $",
        "mov rsp, rbp",
        *(f"pop {name}" for name in reversed(SAVED)),
        "ret",
    ),
)
