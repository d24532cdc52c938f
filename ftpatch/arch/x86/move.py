# SPDX-License-Identifier: MIT
"""x86: instructions that run elsewhere.

    At the site            Elsewhere
    eb rel8                e9 rel32                       jmp
    7x rel8                0f 8x rel32                    jcc
    e2 rel8                e2 02, eb 05, e9 rel32         loop and jrcxz: over a jump, to a jump
    e8 rel32               ... e9 rel32                   call: push the site's return address, jmp
    ff /2                  ... ff /4                      call *: jmp *, with a word more for rsp
    any with (%rip)        the same, other disp32
    c7 f8 rel32            the same, other rel32          xbegin

How the return address comes onto the stack, each word size has its own way. rel and disp count from
the end of the instruction. Prefixes stay; a near branch with an operand size prefix is read
differently by Intel's and AMD's processors, and refused.

Opcodes: Intel SDM volume 2A and 2B, CALL, JMP, Jcc, LOOP, XBEGIN; operands: 2.1.3 and 2.2.1.6,
"RIP-Relative Addressing". Intel SDM volume 2A, 2.1.1: prefixes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from ftpatch.arch.disassemble import engine
from ftpatch.arch.move import Immovable, Moved, PlainMover, Why

__all__ = ["X86Mover"]

PREFIXES = frozenset(b"\xf0\xf2\xf3\x2e\x36\x3e\x26\x64\x65\x66\x67")
JMP = 0xE9  # jmp rel32
TRAPS = (0xCC, 0xF1)  # int3; int1
ENDING = (0xC2, 0xC3, 0xCA, 0xCB, 0xCF)  # ret imm16; ret; lret imm16; lret; iret
SHORT_JCC, LONG_JCC = range(0x70, 0x80), range(0x0F80, 0x0F90)  # jcc rel8; jcc rel32
LOOPS = range(0xE0, 0xE4)  # loopne; loope; loop; jrcxz
JUMP_BOUND = b"\xeb\x05"  # jmp .+7: over the jmp rel32 behind it
XBEGIN = b"\xf8"  # modrm of c7 xbegin rel32


class X86Mover(PlainMover):
    """The part of the contract that both word sizes share."""

    jump_size: ClassVar[int] = 5
    trap: ClassVar[bytes]
    signal: ClassVar[str]
    pad: ClassVar[bytes]
    arch: ClassVar[str]
    """Name of the architecture."""
    word: ClassVar[int]
    """Bytes of an address."""
    rex: ClassVar[range]
    """Prefixes of 64-bit code."""
    fixed: ClassVar[tuple[int, ...]] = ()
    """Opcodes of instructions that cannot be moved."""
    below: ClassVar[int]
    """Bytes below the stack pointer that ``returning`` writes to."""

    def landing(self, code: bytes) -> int:
        """endbr64 or endbr32."""
        return len(self.pad) if code.startswith(self.pad) else 0

    def prefixed(self, code: bytes) -> bool:
        """Legacy prefixes: libc branches past a lock."""
        return code[0] in PREFIXES

    def joined(self, before: bytes) -> bool:
        """Never: prefixes are parts of their instructions."""
        return False

    def reaches(self, at: int, to: int) -> bool:
        """rel32: 2 GB either way, which is everything on 32 bits."""
        return self.word == 4 or -(1 << 31) <= to - at - 5 < 1 << 31

    def jump(self, at: int, to: int) -> bytes:
        """``jmp to``: e9 rel32."""
        return self.relative(bytes([JMP]), at, to, f"{at:#x}: jmp {to:#x}")

    def move(self, code: bytes, at: int, to: int, need: int) -> Moved:
        """Move the first instructions of ``code``, and add ``jmp`` back."""
        insns = list(self._displaced(code, at, need))
        end = insns[-1].address + insns[-1].size
        for insn in insns:
            opcode, text = self._opcode(insn)[1], _text(insn)
            target = self._refers(insn)
            if target is not None and at < target < end:
                raise Immovable(Why.INSIDE, text)
            if insn is not insns[-1] and (opcode == 0xE8 or self._group5(insn) == 2):
                raise Immovable(Why.RETURNS, text)
            if insn is not insns[-1] and self._ends(insn):
                raise Immovable(Why.ENDS, text)
        out = b""
        for insn in insns:
            out += self._moved(insn, to + len(out))
        if not self._ends(insns[-1]):
            out += self.jump(to + len(out), end)
        return Moved(end - at, out)

    def returning(self, to: int, address: int, text: str) -> bytes:
        """Code at ``to`` that pushes a return address, without a flag or a register."""
        raise NotImplementedError

    def relative(self, head: bytes, at: int, target: int, text: str, tail: bytes = b"") -> bytes:
        """``head``, the distance of ``target`` in four bytes, ``tail``. Raises Immovable if it is
        out of reach."""
        bits = 8 * self.word
        distance = target - (at + len(head) + 4 + len(tail))
        distance = (distance & (1 << bits) - 1 ^ 1 << bits - 1) - (1 << bits - 1)
        if not -(1 << 31) <= distance < 1 << 31:
            raise Immovable(Why.FAR, text)
        return head + distance.to_bytes(4, "little", signed=True) + tail

    def _displaced(self, code: bytes, at: int, need: int) -> Iterator[Any]:
        """Capstone's instructions until ``need`` bytes are covered; refuses what cannot be moved
        anywhere."""
        import capstone.x86 as x86

        # Instructions are at most 15 bytes long.
        done, reader = 0, engine(self.arch).disasm(code[: need + 15], at)
        while done < need:
            insn = next(reader, None)
            if insn is None:
                raise _unread(code, at, done)
            head, opcode = self._opcode(insn)
            if opcode in TRAPS:
                raise Immovable(Why.TRAP, _text(insn))
            branch = _relative_branch(opcode) or self._group5(insn) in (2, 4)
            # Far calls and jumps load a segment; %eip is not the sum of the displacement and %rip.
            far = opcode in self.fixed or self._group5(insn) in (3, 5)
            narrow = any(
                op.type == x86.X86_OP_MEM and op.mem.base == x86.X86_REG_EIP for op in insn.operands
            )
            if (branch and (0x66 in head or len(head) > 4)) or far or narrow:
                raise Immovable(Why.FORM, _text(insn))
            done += insn.size
            yield insn

    def _opcode(self, insn: Any) -> tuple[bytes, int]:  # noqa: ANN401
        """Prefixes, REX among them, and the opcode; 0f 8x is one of two bytes."""
        code = bytes(insn.bytes)
        i = 0
        while code[i] in PREFIXES or code[i] in self.rex:
            i += 1
        return code[:i], int.from_bytes(code[i : i + 2]) if code[i] == 0x0F else code[i]

    def _group5(self, insn: Any) -> int:  # noqa: ANN401
        """n of ``ff /n``; -1 for other opcodes. 2: call; 3: far call; 4: jmp; 5: far jmp."""
        head, opcode = self._opcode(insn)
        return insn.bytes[len(head) + 1] >> 3 & 7 if opcode == 0xFF else -1

    def _ends(self, insn: Any) -> bool:  # noqa: ANN401
        """Return whether control continues elsewhere, even after a call."""
        opcode = self._opcode(insn)[1]
        return opcode in (*ENDING, 0xE8, 0xE9, 0xEB) or self._group5(insn) in (2, 4)

    def _refers(self, insn: Any) -> int | None:  # noqa: ANN401
        """Target of a branch or of an operand with %rip, as an unsigned address."""
        import capstone.x86 as x86

        for op in insn.operands:
            if op.type == x86.X86_OP_MEM and op.mem.base == x86.X86_REG_RIP:
                return int(insn.address + insn.size + op.mem.disp) & (1 << 8 * self.word) - 1
        head, opcode = self._opcode(insn)
        if _relative_branch(opcode) or bytes(insn.bytes[len(head) :])[:2] == b"\xc7" + XBEGIN:
            return int(insn.operands[0].imm) & (1 << 8 * self.word) - 1
        return None

    def _moved(self, insn: Any, to: int) -> bytes:  # noqa: ANN401
        """One instruction as encoded for address ``to``."""
        (head, opcode), text, target = self._opcode(insn), _text(insn), self._refers(insn)
        code, end = bytes(insn.bytes), insn.address + insn.size
        if opcode == 0xE8:
            assert target is not None
            called = self.returning(to, end, text)
            return called + self.relative(head + bytes([JMP]), to + len(called), target, text)
        if self._group5(insn) == 2:
            called = self.returning(to, end, text)
            return called + self._jump_through(insn, len(head), to + len(called))
        if target is None:
            return code
        if opcode in LOOPS:
            over = head + bytes([opcode, len(JUMP_BOUND)]) + JUMP_BOUND
            return self.relative(over + bytes([JMP]), to, target, text)
        if opcode in (0xE9, 0xEB):
            return self.relative(head + bytes([JMP]), to, target, text)
        if opcode in SHORT_JCC or opcode in LONG_JCC:
            return self.relative(head + bytes([0x0F, 0x80 | opcode & 0xF]), to, target, text)
        if opcode == 0xC7 and code[len(head) + 1 :].startswith(XBEGIN):
            if len(code) != len(head) + 6:
                raise Immovable(Why.FORM, text)  # rel16
            return self.relative(code[:-4], to, target, text)
        return self._rip_relative(insn, code, to, target)

    def _rip_relative(self, insn: Any, code: bytes, to: int, target: int) -> bytes:  # noqa: ANN401
        """Replace disp32; an immediate may follow it."""
        i = insn.disp_offset
        if i == 0 or int.from_bytes(code[i : i + 4], "little", signed=True) != insn.disp:
            raise Immovable(Why.FORM, _text(insn))
        return self.relative(code[:i], to, target, _text(insn), code[i + 4 :])

    def _jump_through(self, insn: Any, i: int, to: int) -> bytes:  # noqa: ANN401
        """``jmp *`` of the operand of ``call *``, behind the return address; i: where ff is. The
        stack pointer is less by a word:

        ff 54 24 08               call *8(%rsp)
        ff a4 24 10 00 00 00      jmp  *16(%rsp)
        """
        import capstone.x86 as x86

        code = bytearray(insn.bytes)
        code[i + 1] ^= (2 ^ 4) << 3  # /2 to /4
        operand = insn.operands[0]
        if operand.type == x86.X86_OP_REG:
            if operand.reg in (x86.X86_REG_RSP, x86.X86_REG_ESP):
                raise Immovable(Why.STACK, _text(insn))
            return bytes(code)
        if operand.mem.base == x86.X86_REG_RIP:
            target = operand.mem.disp + insn.address + insn.size
            return self._rip_relative(insn, bytes(code), to, target)
        if operand.mem.base not in (x86.X86_REG_RSP, x86.X86_REG_ESP):
            return bytes(code)
        disp, word = int(operand.mem.disp), self.word
        narrow = word == 8 and operand.mem.base == x86.X86_REG_ESP
        # The call overwrites what it reads only after reading it; the push would do so before.
        if narrow or -self.below - word < disp < 0 or disp + word >= 1 << 31:
            raise Immovable(Why.STACK, _text(insn))
        modrm = 0x80 | (code[i + 1] & 0x3F)  # mod 10: disp32
        through = (disp + word).to_bytes(4, "little", signed=True)
        return bytes([*code[: i + 1], modrm, code[i + 2]]) + through


def _unread(code: bytes, at: int, done: int) -> Immovable:
    """Reason why there is no instruction ``done`` bytes after ``at``."""
    rest = code[done : done + 4].hex(" ")
    if not rest:
        return Immovable(Why.SHORT, f"{at + done:#x}: end of the function")
    return Immovable(Why.UNKNOWN, f"{at + done:#x}: {rest}")


def _text(insn: Any) -> str:  # noqa: ANN401
    return f"{insn.address:#x}: {insn.mnemonic} {insn.op_str}".rstrip()


def _relative_branch(opcode: int) -> bool:
    jumps = opcode in (0xE8, 0xE9, 0xEB) or opcode in LOOPS
    return jumps or opcode in SHORT_JCC or opcode in LONG_JCC
