# SPDX-License-Identifier: MIT
"""x86_64: jumps that share bytes with the instructions after them.

    55 | 48 89 e5 41 57               push %rbp; mov %rsp, %rbp; push %r15
    e9 | 48 89 e5 41 57               jmp .+0x41e5894d                 no byte to choose
    41 57 | 41 56 41 55               push %r15; push %r14; push %r13
    e9 xx | 41 56 41 55               jmp .+0x415641xx                 one byte
    2e e9 | 41 56 41 55               cs jmp .+0x55415647              none, but another target

A jump to a relative target ignores segment prefixes.
Intel SDM volume 2A, 2.1.1, "Instruction Prefixes", and JMP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ftpatch.arch.puns import Pun, Puns

__all__ = ["X86_64_PUNS"]

JMP: Final = b"\xe9"  # jmp rel32
CS: Final = b"\x2e"  # a prefix without an effect
LOCK: Final = 0xF0  # a branch may go to the instruction behind it
DISPLACEMENT: Final = 4
"""Bytes of rel32."""
MAX_SIZE: Final = 15
"""Maximum size of an instruction (bytes)."""


class _X8664:
    reach = (1 << 31) + MAX_SIZE

    def forms(self, code: bytes, at: int, size: int) -> Sequence[Pun]:
        """With as many prefixes as there is room for, those with the most targets first."""
        found: list[Pun] = []
        if code[0] == LOCK:
            return found
        for prefixes in range(min(size, MAX_SIZE - DISPLACEMENT)):
            head = CS * prefixes + JMP
            end = len(head) + DISPLACEMENT
            free = min(size - len(head), DISPLACEMENT)
            fixed = code[len(head) + free : end]
            if len(code) < end:
                break
            room = 1 << 8 * free
            high = int.from_bytes(fixed, "little", signed=True) if fixed else 0
            low = at + end + (high * room if fixed else -(room // 2))
            found.append(Pun(at=at, head=head, size=end, low=low, high=low + room))
        return found

    def encode(self, pun: Pun, to: int, size: int) -> bytes:
        """The prefixes, e9, and the low bytes of rel32."""
        distance = to - pun.at - pun.size
        return (pun.head + distance.to_bytes(DISPLACEMENT, "little", signed=True))[:size]


X86_64_PUNS: Final[Puns] = _X8664()
