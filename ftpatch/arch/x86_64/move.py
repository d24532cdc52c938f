# SPDX-License-Identifier: MIT
"""x86_64: instructions that run elsewhere.

    At the site            Elsewhere
    eb rel8                e9 rel32                       jmp
    7x rel8                0f 8x rel32                    jcc
    e2 rel8                e2 02, eb 05, e9 rel32         loop and jrcxz: over a jump, to a jump
    e8 rel32               50, 48 8d 05 rel32,            push, then the site's return address in
                           48 87 04 24, e9 rel32          its place, then jmp: see RETURN
    ff /2                  the same, then ff /4           call *: jmp *, with 8 more for rsp
    any with (%rip)        the same, other disp32
    c7 f8 rel32            the same, other rel32          xbegin

rel and disp count from the end of the instruction. Prefixes stay; a near branch with an operand
size prefix is read differently by Intel's and AMD's processors, and refused.

Opcodes: Intel SDM volume 2A and 2B, CALL, JMP, Jcc, LOOP, XBEGIN, XCHG; operands: 2.1.3 and
2.2.1.6, "RIP-Relative Addressing". Intel SDM volume 2A, 2.1.1: prefixes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from ftpatch.arch.assemble import template
from ftpatch.arch.disassemble import engine
from ftpatch.arch.move import Immovable, Moved, Mover, Why

__all__ = ["X86_64_MOVE"]

ENDBR64 = b"\xf3\x0f\x1e\xfa"  # endbr64
PREFIXES = frozenset(b"\xf0\xf2\xf3\x2e\x36\x3e\x26\x64\x65\x66\x67")
REX = range(0x40, 0x50)
JMP = 0xE9  # jmp rel32
TRAPS = (0xCC, 0xF1)  # int3; int1
ENDING = (0xC2, 0xC3, 0xCA, 0xCB, 0xCF)  # ret imm16; ret; lret imm16; lret; iret
SHORT_JCC, LONG_JCC = range(0x70, 0x80), range(0x0F80, 0x0F90)  # jcc rel8; jcc rel32
LOOPS = range(0xE0, 0xE4)  # loopne; loope; loop; jrcxz
JUMP_BOUND = b"\xeb\x05"  # jmp .+7: over the jmp rel32 behind it
XBEGIN = b"\xf8"  # modrm of c7 xbegin rel32
MASK = (1 << 64) - 1
RETURN = "push rax; lea rax, [rip + 0x1000]; xchg qword ptr [rsp], rax"
"""Return address that a call leaves on the stack, without a flag, a register or a further byte
below it:

    50                      push  %rax                  rsp -= 8; rax is kept there
    48 8d 05 <rel32>        lea   rel32(%rip), %rax     the site's return address
    48 87 04 24             xchg  %rax, (%rsp)          which changes places with rax
"""


class _X8664:
    jump_size: ClassVar[int] = 5
    trap: ClassVar[bytes] = b"\xd6"  # udb
    pad: ClassVar[bytes] = ENDBR64

    def landing(self, code: bytes) -> int:
        """endbr64."""
        return len(ENDBR64) if code.startswith(ENDBR64) else 0

    def signing(self, code: bytes) -> int:
        """There is none."""
        return 0

    def joined(self, before: bytes) -> bool:
        """Never: prefixes are parts of their instructions."""
        return False

    def reaches(self, at: int, to: int) -> bool:
        """rel32: 2 GB either way."""
        return -(1 << 31) <= to - at - 5 < 1 << 31

    def jump(self, at: int, to: int) -> bytes:
        """``jmp to``: e9 rel32."""
        return _relative(bytes([JMP]), at, to, f"{at:#x}: jmp {to:#x}")

    def move(self, code: bytes, at: int, to: int, need: int) -> Moved:
        """Move the first instructions of ``code``, and add ``jmp`` back."""
        insns = list(_displaced(code, at, need))
        end = insns[-1].address + insns[-1].size
        for insn in insns:
            opcode, text = _opcode(insn)[1], _text(insn)
            target = _refers(insn)
            if target is not None and at < target < end:
                raise Immovable(Why.INSIDE, text)
            if insn is not insns[-1] and (opcode == 0xE8 or _group5(insn) == 2):
                raise Immovable(Why.RETURNS, text)
            if insn is not insns[-1] and _ends(insn):
                raise Immovable(Why.ENDS, text)
        out = b""
        for insn in insns:
            out += _moved(insn, to + len(out))
        if not _ends(insns[-1]):
            out += self.jump(to + len(out), end)
        return Moved(end - at, out)


def _displaced(code: bytes, at: int, need: int) -> Iterator[Any]:
    """Capstone's instructions until ``need`` bytes are covered; refuses what cannot be moved
    anywhere."""
    import capstone.x86 as x86

    # Instructions are at most 15 bytes long.
    done, reader = 0, engine("x86_64").disasm(code[: need + 15], at)
    while done < need:
        insn = next(reader, None)
        if insn is None:
            raise _unread(code, at, done)
        head, opcode = _opcode(insn)
        if opcode in TRAPS:
            raise Immovable(Why.TRAP, _text(insn))
        branch = _relative_branch(opcode) or _group5(insn) in (2, 4)
        # Far calls and jumps load a segment; %eip is not the sum of the displacement and %rip.
        narrow = any(
            op.type == x86.X86_OP_MEM and op.mem.base == x86.X86_REG_EIP for op in insn.operands
        )
        if (branch and (0x66 in head or len(head) > 4)) or _group5(insn) in (3, 5) or narrow:
            raise Immovable(Why.FORM, _text(insn))
        done += insn.size
        yield insn


def _unread(code: bytes, at: int, done: int) -> Immovable:
    """Reason why there is no instruction ``done`` bytes after ``at``."""
    rest = code[done : done + 4].hex(" ")
    if not rest:
        return Immovable(Why.SHORT, f"{at + done:#x}: end of the function")
    return Immovable(Why.UNKNOWN, f"{at + done:#x}: {rest}")


def _text(insn: Any) -> str:  # noqa: ANN401
    return f"{insn.address:#x}: {insn.mnemonic} {insn.op_str}".rstrip()


def _opcode(insn: Any) -> tuple[bytes, int]:  # noqa: ANN401
    """Prefixes, REX among them, and the opcode; 0f 8x is one of two bytes."""
    code = bytes(insn.bytes)
    i = 0
    while code[i] in PREFIXES or code[i] in REX:
        i += 1
    return code[:i], int.from_bytes(code[i : i + 2]) if code[i] == 0x0F else code[i]


def _group5(insn: Any) -> int:  # noqa: ANN401
    """n of ``ff /n``; -1 for other opcodes. 2: call; 3: far call; 4: jmp; 5: far jmp."""
    head, opcode = _opcode(insn)
    return insn.bytes[len(head) + 1] >> 3 & 7 if opcode == 0xFF else -1


def _relative_branch(opcode: int) -> bool:
    jumps = opcode in (0xE8, 0xE9, 0xEB) or opcode in LOOPS
    return jumps or opcode in SHORT_JCC or opcode in LONG_JCC


def _ends(insn: Any) -> bool:  # noqa: ANN401
    """Return whether control continues elsewhere, even after a call."""
    opcode = _opcode(insn)[1]
    return opcode in (*ENDING, 0xE8, 0xE9, 0xEB) or _group5(insn) in (2, 4)


def _refers(insn: Any) -> int | None:  # noqa: ANN401
    """Target of a branch or of an operand with %rip, as an unsigned address."""
    import capstone.x86 as x86

    for op in insn.operands:
        if op.type == x86.X86_OP_MEM and op.mem.base == x86.X86_REG_RIP:
            return int(insn.address + insn.size + op.mem.disp) & MASK
    head, opcode = _opcode(insn)
    if _relative_branch(opcode) or bytes(insn.bytes[len(head) :])[:2] == b"\xc7" + XBEGIN:
        return int(insn.operands[0].imm) & MASK
    return None


def _relative(head: bytes, at: int, target: int, text: str, tail: bytes = b"") -> bytes:
    """``head``, the distance of ``target`` in four bytes, ``tail``."""
    distance = target - (at + len(head) + 4 + len(tail))
    distance = (distance & MASK ^ 1 << 63) - (1 << 63)
    if not -(1 << 31) <= distance < 1 << 31:
        raise Immovable(Why.FAR, text)
    return head + distance.to_bytes(4, "little", signed=True) + tail


def _moved(insn: Any, to: int) -> bytes:  # noqa: ANN401
    """One instruction as encoded for address ``to``."""
    (head, opcode), text, target = _opcode(insn), _text(insn), _refers(insn)
    code, end = bytes(insn.bytes), insn.address + insn.size
    if opcode == 0xE8:
        assert target is not None
        called = _return_address(to, end, text)
        return called + _relative(head + bytes([JMP]), to + len(called), target, text)
    if _group5(insn) == 2:
        called = _return_address(to, end, text)
        return called + _jump_through(insn, len(head), to + len(called))
    if target is None:
        return code
    if opcode in LOOPS:
        over = head + bytes([opcode, len(JUMP_BOUND)]) + JUMP_BOUND
        return _relative(over + bytes([JMP]), to, target, text)
    if opcode in (0xE9, 0xEB):
        return _relative(head + bytes([JMP]), to, target, text)
    if opcode in SHORT_JCC or opcode in LONG_JCC:
        return _relative(head + bytes([0x0F, 0x80 | opcode & 0xF]), to, target, text)
    if opcode == 0xC7 and code[len(head) + 1 :].startswith(XBEGIN):
        if len(code) != len(head) + 6:
            raise Immovable(Why.FORM, text)  # rel16
        return _relative(code[:-4], to, target, text)
    return _rip_relative(insn, code, to, target)


def _rip_relative(insn: Any, code: bytes, to: int, target: int) -> bytes:  # noqa: ANN401
    """Replace disp32; an immediate may follow it."""
    i = insn.disp_offset
    if i == 0 or int.from_bytes(code[i : i + 4], "little", signed=True) != insn.disp:
        raise Immovable(Why.FORM, _text(insn))
    return _relative(code[:i], to, target, _text(insn), code[i + 4 :])


def _return_address(to: int, address: int, text: str) -> bytes:
    """RETURN at ``to`` with this address."""
    code = template("x86_64", RETURN, ("pushq", "leaq", "xchgq"))
    return _relative(code[:4], to, address, text) + code[8:]


def _jump_through(insn: Any, i: int, to: int) -> bytes:  # noqa: ANN401
    """``jmp *`` of the operand of ``call *``, behind RETURN; i: where ff is. rsp is less by 8:

    ff 54 24 08               call *8(%rsp)
    ff a4 24 10 00 00 00      jmp  *16(%rsp)
    """
    import capstone.x86 as x86

    code = bytearray(insn.bytes)
    code[i + 1] ^= (2 ^ 4) << 3  # /2 to /4
    operand = insn.operands[0]
    if operand.type == x86.X86_OP_REG:
        if operand.reg == x86.X86_REG_RSP:
            raise Immovable(Why.STACK, _text(insn))
        return bytes(code)
    if operand.mem.base == x86.X86_REG_RIP:
        return _rip_relative(insn, bytes(code), to, operand.mem.disp + insn.address + insn.size)
    if operand.mem.base not in (x86.X86_REG_RSP, x86.X86_REG_ESP):
        return bytes(code)
    disp = int(operand.mem.disp) + 8
    # The call overwrites what it reads only after reading it; the push would do so before.
    if operand.mem.base == x86.X86_REG_ESP or -8 < disp < 8 or disp >= 1 << 31:
        raise Immovable(Why.STACK, _text(insn))
    modrm = 0x80 | (code[i + 1] & 0x3F)  # mod 10: disp32
    return bytes([*code[: i + 1], modrm, code[i + 2]]) + disp.to_bytes(4, "little", signed=True)


X86_64_MOVE: Final[Mover] = _X8664()
