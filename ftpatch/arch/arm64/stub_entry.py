# SPDX-License-Identifier: MIT
"""The entry of a user's stub in a module of arm64: x10 to x17 are free, x9 is the caller's lr.

x30    return address to the site's function: ip
x9     return address of that function: parent
"""

from __future__ import annotations

from typing import Final

from ftpatch.arch.stub_entry import StubEntry

__all__ = ["ENTRY"]

ENTRY: Final = StubEntry(
    bytes.fromhex("5f2403d5"),  # bti c
    (
        "stp x29, x9, [sp, -96]!",
        "mov x29, sp",
        *("stp x0, x1, [sp, 16]", "stp x2, x3, [sp, 32]", "stp x4, x5, [sp, 48]"),
        *("stp x6, x7, [sp, 64]", "stp x8, x30, [sp, 80]"),
        *("mov x0, x30", "mov x1, x9", "bl $"),
        *("ldp x0, x1, [sp, 16]", "ldp x2, x3, [sp, 32]", "ldp x4, x5, [sp, 48]"),
        *("ldp x6, x7, [sp, 64]", "ldp x8, x10, [sp, 80]"),
        "ldp x29, x30, [sp], 96",
        "ret x10",
    ),
)
