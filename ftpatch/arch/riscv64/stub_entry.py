# SPDX-License-Identifier: MIT
"""The entry of a user's stub in a module of riscv64: t1 to t6 are free, as they are for the
kernel's ftrace_caller, which keeps a0 to a7, t0 and ra alone (arch/riscv/kernel/mcount-dyn.S).

t0    return address to the site's function: ip
ra    return address of that function: parent
"""

from __future__ import annotations

from typing import Final

from ftpatch.arch.stub_entry import StubEntry

__all__ = ["ENTRY"]

KEPT = (*(f"a{number}" for number in range(8)), "t0")
"""Registers, eight bytes each from the stack pointer on; ra and s0 are a frame's last words."""
FRAME = 96

ENTRY: Final = StubEntry(
    b"",  # the sites' jalr by t0 needs no landing pad: it is guarded by software (Zicfilp)
    (
        f"addi sp, sp, -{FRAME}",
        *(f"sd {one}, {8 * number}(sp)" for number, one in enumerate(KEPT)),
        *(f"sd s0, {FRAME - 16}(sp)", f"sd ra, {FRAME - 8}(sp)", f"addi s0, sp, {FRAME}"),
        *("mv a1, ra", "mv a0, t0", "jal ra, $"),
        *(f"ld s0, {FRAME - 16}(sp)", f"ld ra, {FRAME - 8}(sp)"),
        *(f"ld {one}, {8 * number}(sp)" for number, one in enumerate(KEPT)),
        f"addi sp, sp, {FRAME}",
        "jr t0",
    ),
)
