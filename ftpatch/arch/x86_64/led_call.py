# SPDX-License-Identifier: MIT
"""A system call of x86_64 that is led elsewhere, as in stubs/x86_64/system_calls.c:

b8 0e 00 00 00 ... 0f 05    mov eax, 14; ...; syscall    ->   e9 rel32 ... 0f 05

    all before the system call           moved
    lea rsp, [rsp - 128]                 the red zone
    call [rip + 20]                      asked
    lea rsp, [rsp + 128]
    jrcxz 1f                             the call is to be made
    jmp behind it
1:  jmp to it                            or make it here, where the jump replaces a part of it
    .quad asked
"""

from __future__ import annotations

from typing import Final

from ftpatch.arch.led_call import Led, LedCall, Waiting
from ftpatch.arch.x86_64.move import X86_64_MOVE

__all__ = ["LED_CALL"]

ASKING: Final = bytes.fromhex(
    "48 8d 64 24 80"  # lea rsp, [rsp - 128]
    "ff 15 14 00 00 00"  # call [rip + 20]
    "48 8d a4 24 80 00 00 00"  # lea rsp, [rsp + 128]
    "e3 05"  # jrcxz .+7
)
WHOLE: Final = bytes.fromhex("0f 05 eb f7 cc")  # syscall; jmp .-7, to the jump before; int3
SYSCALL: Final = 2
"""Bytes of ``syscall``: 0f 05."""
JUMP: Final = 5
"""Bytes of ``jmp rel32``: e9 rel32."""


def _make(code: bytes, start: int, at: int, asked: int) -> Led:
    before = code[:-SYSCALL]
    call = start + len(before)
    moved = X86_64_MOVE.move(code, start, at, len(before)).code[:-JUMP]  # it falls through
    out = moved + ASKING
    out += X86_64_MOVE.jump(at + len(out), call + SYSCALL)
    out += WHOLE if len(before) < JUMP else X86_64_MOVE.jump(at + len(out), call)
    return Led(out + asked.to_bytes(8, "little"), len(moved))


LED_CALL: Final = LedCall(
    size=192,
    jump=JUMP,
    make=_make,
    arguments=("rdi", "rsi", "rdx", "r10", "r8", "r9"),
    waiting={
        130: Waiting(0, inside=False),  # rt_sigsuspend
        270: Waiting(5, inside=True),  # pselect6
        271: Waiting(3, inside=False),  # ppoll
        281: Waiting(4, inside=False),  # epoll_pwait
        333: Waiting(5, inside=True),  # io_pgetevents
        426: Waiting(4, inside=False),  # io_uring_enter
        441: Waiting(4, inside=False),  # epoll_pwait2
    },
)
"""By their numbers (arch/x86/entry/syscalls/syscall_64.tbl)."""
