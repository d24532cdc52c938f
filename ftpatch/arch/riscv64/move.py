# SPDX-License-Identifier: MIT
"""riscv64: instructions that run elsewhere.

    At the site            Elsewhere
    j L, c.j L             j L
    jal ra, L              auipc ra, back; addi ra, ra, #; j L
    auipc ra; jalr ra      the same, as one instruction: call L
    jalr ra, (a5)          auipc ra, back; addi ra, ra, #; jr (a5)         also c.jalr
    beq a0, a1, L          bne a0, a1, .+8; j L             also c.beqz and c.bnez
    auipc a0, L            auipc a0, L; addi a0, a0, #

A jump is `jal`, which needs no register and goes 1 MB either way. What it takes away may have two
bytes or four; there is no trap (system_calls.c). Between lr and sc nothing may be moved, as the
reservation would be lost.

In a kernel's text, where gp is free (kernel_text.py), each `j L` above is `auipc gp; jr gp`: eight
bytes that go 2 GB either way.

Encodings: The RISC-V Instruction Set Manual, volume I, "RV32/64G Instruction Set Listings" and
"RVC Instruction Set Listings".
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from ftpatch.arch.disassemble import disassemble
from ftpatch.arch.move import Immovable, Moved, Mover, PlainMover, Why
from ftpatch.arch.riscv64.encode import RV, address_of, branch_distance, far_jump, jump_word

__all__ = ["RISCV64_MOVE", "FAR_MOVE"]

CALLS: Final = ("call", "jal", "jalr", "c.jalr")
ENDS: Final = ("jal", "call", "jalr", "c.j", "c.jr", "c.jalr")
JOINED: Final = ("lr", "sc")
CONTEXT = 16
"""Instructions of a loop from lr to sc at most: "Eventual Success of Store-Conditional
Instructions"."""


class _Riscv64(PlainMover):
    jump_size: ClassVar[int] = 4
    trap: ClassVar[bytes] = b"\x00\x00"  # c.unimp
    signal: ClassVar[str] = "SIGILL"
    pad: ClassVar[bytes] = b"\x13\x00\x00\x00"  # nop

    def landing(self, code: bytes) -> int:
        """lpad: auipc x0, the label."""
        return 4 if int.from_bytes(code[:4], "little") & RV.AUIPC_MASK == RV.AUIPC else 0

    def joined(self, before: bytes) -> bool:
        """True after lr without its sc."""
        forms = [_form(insn) for _, insn in _split(before, 0)]
        for form in forms[: -CONTEXT - 1 : -1]:
            if form in JOINED:
                return form == "lr"
            if form in ENDS:
                return False
        return False

    def reaches(self, at: int, to: int) -> bool:
        """imm21: 1 MB either way."""
        return -RV.JAL_REACH <= to - at < RV.JAL_REACH

    def jump(self, at: int, to: int) -> bytes:
        """``j to``."""
        return self._jump(at, to, f"{at:#x}: j {to:#x}")

    def _jump(self, at: int, to: int, text: str) -> bytes:
        """The same, of an instruction with this ``text``."""
        if not self.reaches(at, to):
            raise Immovable(Why.FAR, text)
        return self._leap(at, to)

    def _leap(self, at: int, to: int) -> bytes:
        return jump_word(to - at).to_bytes(4, "little")

    def move(self, code: bytes, at: int, to: int, need: int) -> Moved:
        """Move the first instructions of ``code``, and add ``j`` back."""
        insns = []
        for address, insn in _split(code, at):
            if address >= at + need:
                break
            insns.append((address, insn))
        end = insns[-1][0] + len(insns[-1][1]) if insns else at
        if end - at < need:
            raise Immovable(Why.SHORT, f"{end:#x}: end of the function")
        out, ends = b"", False
        for address, insn in insns:
            text, form = _text(insn, address), _form(insn)
            _refuse(insn, form, address, (at, end), text)
            out += self._moved(insn, form, address, to + len(out), text)
            ends = form in ENDS
            if ends and address + len(insn) < end:
                calls = form in CALLS and _link(insn, form)
                raise Immovable(Why.RETURNS if calls else Why.ENDS, text)
        return Moved(end - at, out if ends else out + self.jump(to + len(out), end))

    def _moved(self, insn: bytes, form: str, address: int, to: int, text: str) -> bytes:
        """One instruction as encoded for address ``to``."""
        number, back = int.from_bytes(insn[:4], "little"), address + len(insn)
        link, behind = _link(insn, form), (4 + self.jump_size) // 2 << 8
        if form in ("c.j", "jal", "call"):
            before = _address(to, link, back, text) if link else b""
            return before + self._jump(to + len(before), _target(insn, form, address), text)
        if form == "jalr" and link:  # jalr x0, the same
            return _address(to, link, back, text) + (number & ~(31 << 7)).to_bytes(4, "little")
        if form == "c.jalr":  # jalr x0, 0(rs1)
            jump = RV.JALR | _source(insn) << 15
            return _address(to, RV.RA, back, text) + jump.to_bytes(4, "little")
        if form == "branch":  # the inverted condition
            opposite = (number ^ 1 << 12) & ~RV.BRANCH_FIELD | behind
        elif form == "c.b":  # c.beqz as bne rs1, x0; c.bnez as beq
            opposite = RV.BRANCH | (~number >> 13 & 1) << 12 | (number >> 7 & 7 | 8) << 15 | behind
        elif form == "auipc" and number >> 7 & 31:
            return _address(to, number >> 7 & 31, _target(insn, form, address), text)
        else:
            return insn
        jump_over = self._jump(to + 4, _target(insn, form, address), text)
        return opposite.to_bytes(4, "little") + jump_over


class _Far(_Riscv64):
    """With jumps through gp."""

    jump_size: ClassVar[int] = 8

    def reaches(self, at: int, to: int) -> bool:
        """auipc: 2 GB either way."""
        return bool(far_jump(at, to, RV.GP))

    def _leap(self, at: int, to: int) -> bytes:
        return far_jump(at, to, RV.GP)


def _split(code: bytes, at: int) -> list[tuple[int, bytes]]:
    """Instructions with their addresses; a pair that calls is one."""
    out: list[tuple[int, bytes]] = []
    here = 0
    while here + 2 <= len(code):
        size = 4 if code[here] & 3 == 3 else 2  # longer ones are refused as undefined
        if here + size > len(code):
            break
        if _is_call(code[here : here + 8]):
            size = 8
        out.append((at + here, code[here : here + size]))
        here += size
    return out


def _is_call(code: bytes) -> bool:
    """auipc rd; jalr rd, (rd)."""
    if len(code) < 8:
        return False
    first, second = (int.from_bytes(code[i : i + 4], "little") for i in (0, 4))
    link = first >> 7 & 31
    return link != 0 and (first & 0x7F, second & RV.JALR_MASK) == (
        RV.AUIPC,
        RV.JALR | link << 7 | link << 15,
    )


def _form(insn: bytes) -> str:
    """Name in RV.FORMS of the first match, ``call`` for a pair; empty for a position-independent
    instruction."""
    if len(insn) == 8:
        return "call"
    number = int.from_bytes(insn, "little")
    if len(insn) == 2 and number & 3 == 3:
        return ""
    return next((name for name, (mask, value) in RV.FORMS.items() if number & mask == value), "")


def _text(insn: bytes, address: int) -> str:
    """Disassemble it; refuse an invalid instruction."""
    read = disassemble("riscv64", insn, address)
    if [one.size for one in read] != [len(insn)] or read[0].mnemonic == "c.unimp":
        raise Immovable(Why.UNKNOWN, f"{address:#x}: {insn[::-1].hex()}")
    return f"{address:#x}: {read[0].mnemonic} {read[0].operands}".rstrip()


def _refuse(insn: bytes, form: str, address: int, displaced: tuple[int, int], text: str) -> None:
    """Raise Immovable for what cannot be moved anywhere."""
    if form in ("ebreak", "c.ebreak"):
        raise Immovable(Why.TRAP, text)
    if form in JOINED:
        raise Immovable(Why.JOINED, text)
    if form in ("jalr", "c.jalr") and _link(insn, form) == _source(insn):
        raise Immovable(Why.LINK, text)
    if form in ("jal", "call", "branch", "c.j", "c.b"):
        low, high = displaced
        if low < _target(insn, form, address) < high:
            raise Immovable(Why.INSIDE, text)


def _link(insn: bytes, form: str) -> int:
    """Number of the register that a call's return address goes to; 0 for a jump."""
    if form == "c.jalr":
        return RV.RA
    return int.from_bytes(insn[:4], "little") >> 7 & 31 if form in CALLS else 0


def _source(insn: bytes) -> int:
    """Number of the register that jalr or c.jalr goes to."""
    return int.from_bytes(insn, "little") >> (7 if len(insn) == 2 else 15) & 31


def _target(insn: bytes, form: str, address: int) -> int:
    """Target of an instruction with a pc-relative immediate."""
    number = np.frombuffer(insn.ljust(4, b"\0"), "<u4")
    if form in ("call", "auipc"):
        low = int(number[1:].view(np.int32)[0]) >> 20 if form == "call" else 0
        return address + int((number[:1] & ~np.uint32(RV.AUIPC_MASK)).view(np.int32)[0]) + low
    return address + int(branch_distance(form, number)[0])


def _address(at: int, register: int, value: int, text: str) -> bytes:
    """auipc and addi, eight bytes at ``at``."""
    code = address_of(at, value, register)
    if not code:
        raise Immovable(Why.FAR, text)
    return code


RISCV64_MOVE: Final[Mover] = _Riscv64()
FAR_MOVE: Final[Mover] = _Far()
