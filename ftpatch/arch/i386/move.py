# SPDX-License-Identifier: MIT
"""i386: the return address that a moved call leaves on the stack, without a flag or a register.
There is no %eip to add to, so the code finds out where it is:

50                      push  %eax                  esp -= 4; eax is kept there
e8 00 00 00 00          call  1f                    not counted as one: the target is the next
58                  1:  pop   %eax                  its own address
8d 80 <disp32>          lea   disp32(%eax), %eax    the site's return address
87 04 24                xchg  %eax, (%esp)          which changes places with eax

That is how thunks for the program counter, and ``call 1f; 1: pop``, go on to find the address that
they ask for.

Opcodes: Intel SDM volume 2A and 2B, CALL, LEA, POP, PUSH, XCHG.
"""

from __future__ import annotations

from typing import ClassVar, Final

from ftpatch.arch.assemble import template
from ftpatch.arch.move import Mover
from ftpatch.arch.x86.move import X86Mover

__all__ = ["I386_MOVE"]

RETURN = "push eax; call 0x200006; pop eax; lea eax, [eax + 0x12345678]; xchg dword ptr [esp], eax"
CALL, HERE, FIELD = 1, 6, 9
"""Offsets of the call, of what it pushes, and of disp32 in that."""


class _I386(X86Mover):
    trap: ClassVar[bytes] = b"\xcc"  # int3: no single byte is an undefined instruction
    signal: ClassVar[str] = "SIGTRAP"
    pad: ClassVar[bytes] = b"\xf3\x0f\x1e\xfb"  # endbr32
    arch: ClassVar[str] = "i386"
    word: ClassVar[int] = 4
    rex: ClassVar[range] = range(0)
    below: ClassVar[int] = 8
    # lcall, ljmp; sysenter, syscall: the kernel returns to where the vdso has its own
    fixed: ClassVar[tuple[int, ...]] = (0x9A, 0xEA, 0x0F34, 0x0F05)

    def returning(self, to: int, address: int, text: str) -> bytes:
        """RETURN at ``to`` with this address."""
        code = template("i386", RETURN, ("pushl", "call", "popl", "leal", "xchgl"))
        call = self.relative(code[CALL : CALL + 1], to + CALL, to + HERE, text)
        distance = (address - to - HERE) % (1 << 32)
        head = code[:CALL] + call + code[HERE:FIELD]
        return head + distance.to_bytes(4, "little") + code[FIELD + 4 :]


I386_MOVE: Final[Mover] = _I386()
