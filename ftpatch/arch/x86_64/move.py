# SPDX-License-Identifier: MIT
"""x86_64: the return address that a moved call leaves on the stack, without a flag, a register or a
further byte below it:

50                      push  %rax                  rsp -= 8; rax is kept there
48 8d 05 <rel32>        lea   rel32(%rip), %rax     the site's return address
48 87 04 24             xchg  %rax, (%rsp)          which changes places with rax

Opcodes: Intel SDM volume 2A and 2B, LEA, PUSH, XCHG.
"""

from __future__ import annotations

from typing import ClassVar, Final

from ftpatch.arch.assemble import template
from ftpatch.arch.move import Mover
from ftpatch.arch.x86.move import X86Mover

__all__ = ["X86_64_MOVE"]

RETURN = "push rax; lea rax, [rip + 0x1000]; xchg qword ptr [rsp], rax"


class _X8664(X86Mover):
    trap: ClassVar[bytes] = b"\xd6"  # udb
    signal: ClassVar[str] = "SIGILL"
    pad: ClassVar[bytes] = b"\xf3\x0f\x1e\xfa"  # endbr64
    arch: ClassVar[str] = "x86_64"
    word: ClassVar[int] = 8
    rex: ClassVar[range] = range(0x40, 0x50)
    below: ClassVar[int] = 8

    def returning(self, to: int, address: int, text: str) -> bytes:
        """RETURN at ``to`` with this address."""
        code = template("x86_64", RETURN, ("pushq", "leaq", "xchgq"))
        return self.relative(code[:4], to, address, text) + code[8:]


X86_64_MOVE: Final[Mover] = _X8664()
