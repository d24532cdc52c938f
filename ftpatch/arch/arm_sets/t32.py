# SPDX-License-Identifier: MIT
"""T32 (Thumb): instructions that run elsewhere.

    At the site            Elsewhere
    b L, b.w L             b.w L
    beq L, cbz r0, L       bne .+6; b.w L
    bl L                   movw lr, #; movt lr, #; add lr, pc; b.w L               lr: back
    blx r3                 movw lr, #; movt lr, #; add lr, pc; bx r3
    blx L                  push {r0, r1}; movw r0, #; movt r0, #; add r0, pc; str r0, [sp, #4];
                           movw lr, #; movt lr, #; add lr, pc; pop {r0, pc}
    ldr r3, L, ldrd r2, L  movw r3, #; movt r3, #; add r3, pc; ldr.w r3, [r3]
    adr r3, L; mov r3, pc  movw r3, #; movt r3, #; add r3, pc
    add r3, pc             push {r0}; movw r0, #; movt r0, #; add r0, pc; add r3, r0; pop {r0}
    vldr d0, L             push {r0}; movw r0, #; movt r0, #; add r0, pc; vldr d0, [r0]; pop {r0}
    pld L                  nop.w

Whatever else only writes pc stays as it is, and ends the code. An IT block is not split, nor moved:
what is in it has other encodings, and branches end it. Tables of tbb and tbh are read from pc on.

Encodings: Arm ARM (DDI 0406C), A6 "Thumb Instruction Set Encoding", and A8.8.
"""

from __future__ import annotations

import re
from typing import Final

from ftpatch.arch.move import Immovable, Why

__all__ = [
    "LITERALS",
    "branch_t32",
    "ends_t32",
    "form_t32",
    "leads_t32",
    "literal_t32",
    "moved_t32",
    "reach_t32",
    "size_t32",
]

PC, LR, SP = 15, 14, 13
AHEAD = 4
"""Bytes by which pc is ahead of an instruction."""
REACH: Final = 1 << 24
MOVW, MOVT = 0xF240, 0xF2C0  # movw r0, #0; movt r0, #0
ADD_PC: Final = 0x4478  # add r0, pc
B_SHORT: Final = 0xD001  # beq .+6
PUSH, POP = 0xB400, 0xBC00  # push {}; pop {}
STR_R0: Final = 0x9001  # str r0, [sp, #4]
POP_R0_PC: Final = 0xBD01  # pop {r0, pc}
BX: Final = 0x4700  # bx r0
ADD: Final = 0x4400  # add r0, r0
NOP_W: Final = (0xF3AF, 0x8000)
LDR, LDRD = 0xF8D0, 0xE9D0  # ldr.w r0, [r0]; ldrd r0, r0, [r0]
ALWAYS: Final = 14
LITERALS: Final = ("ldr", "ldrd", "vldr", "adr")
"""Forms that have an address from pc."""
PC_NAMED: Final = re.compile(r"\bpc\b")


def size_t32(first: int) -> int:
    """The size of an instruction by its first halfword: A6.1."""
    return 4 if first >> 11 in (29, 30, 31) else 2


def _halves(insn: bytes) -> tuple[int, int]:
    return int.from_bytes(insn[:2], "little"), int.from_bytes(insn[2:4], "little")


def form_t32(insn: bytes) -> str:
    """The form of an instruction of which all is known that concerns pc; empty for one that has
    nothing to do with it. Raises ValueError for others."""
    first, second = _halves(insn)
    return _wide(first, second) if len(insn) == 4 else _narrow(first)


def _narrow(first: int) -> str:
    if first >> 12 == 0xD:
        kind = first >> 8 & 0xF
        if kind == 14:
            raise ValueError(Why.TRAP)
        return "" if kind == 15 else "b<c>"
    if first >> 11 == 0x1C:
        return "b"
    if first & 0xF500 == 0xB100:
        return "cbz"
    if first >> 11 == 9:
        return "ldr"
    if first >> 11 == 0x14:
        return "adr"
    if first >> 10 == 0x11:
        return _special(first)
    if first >> 8 == 0xBF and first & 0xF:
        raise ValueError(Why.JOINED)  # it
    if first >> 8 == 0xBE or first & 0xFFC0 == 0xBA80:
        raise ValueError(Why.TRAP)  # bkpt, hlt
    if first & 0xFFC0 == 0xB640:
        raise ValueError(Why.FORM)  # setend, cps
    return "ends" if first >> 8 == 0xBD else ""  # pop {..., pc}


def _special(first: int) -> str:
    """add, cmp, mov of high registers, bx and blx."""
    kind, rm, rd = first >> 8 & 3, first >> 3 & 0xF, first & 7 | first >> 4 & 8
    if kind == 3:
        if first & 7 or rm == PC:
            raise ValueError(Why.FORM)
        if first >> 7 & 1 and rm == LR:
            raise ValueError(Why.LINK)
        return "blx" if first >> 7 & 1 else "ends"
    if rm != PC and rd != PC:
        return ""
    if kind == 2 and rm != PC:
        return "ends"  # mov pc, rm
    if kind == 1 or rd in (PC, SP) or (kind == 0 and rm != PC):
        raise ValueError(Why.FORM)
    return "add" if kind == 0 else "mov"


def _wide(first: int, second: int) -> str:
    if first >> 11 == 0x1E and second >> 15:
        return _branches(first, second)
    if first >> 11 == 0x1E:
        return _immediate(first, second)
    if first >> 9 == 0x74:
        return _multiple(first, second)
    if first >> 9 == 0x7C:
        return _single(first, second)
    if first >> 10 & 0x3B == 0x3B:  # coprocessors and vectors: 111x 11
        return _coprocessor(first, second)
    return ""


def _branches(first: int, second: int) -> str:
    """Branches, and what controls the processor."""
    kind = second & 0xD000
    if kind == 0x9000:
        return "b"
    if kind == 0xD000:
        return "bl"
    if kind == 0xC000:
        if second & 1:
            raise ValueError(Why.UNKNOWN)
        return "blx/i"
    if first >> 6 & 0xF < ALWAYS:
        return "b<c>"
    if first & 0xFFF0 == 0xF7F0:
        raise ValueError(Why.TRAP)  # udf.w, and smc, hvc
    if (first, second) == (0xF3BF, 0x8F2F):
        raise ValueError(Why.JOINED)  # clrex
    hint = first == 0xF3AF and second >> 8 == 0x80 and second & 0xFF < 0xF0
    barrier = first == 0xF3BF and second & 0xFF00 == 0x8F00 and second >> 4 & 0xF in (4, 5, 6)
    status = first & 0xFFE0 in (0xF380, 0xF3E0) and first & 0xF != PC
    status |= first == 0xF3EF
    if hint or barrier or status:
        return ""
    raise ValueError(Why.FORM)


def _immediate(first: int, second: int) -> str:
    """Data processing: addw and subw of pc are adr."""
    if first & 0xFBFF in (0xF20F, 0xF2AF):
        if second >> 8 & 0xF in (SP, PC):
            raise ValueError(Why.FORM)
        return "adr"
    if first & 0xF == PC and first & 0xFB00 in (0xF100, 0xF000) and first >> 5 & 0xF in (8, 13):
        raise ValueError(Why.FORM)
    return ""


def _multiple(first: int, second: int) -> str:
    """ldm and stm; two words, exclusive ones, tables of branches."""
    rn, load = first & 0xF, first >> 4 & 1
    if not first >> 6 & 1:
        if rn == PC or first >> 7 & 3 in (0, 3) or (second >> 15 and not load):
            raise ValueError(Why.FORM)
        return "ends" if second >> 15 else ""
    if not first >> 8 & 1 and not first >> 5 & 1:  # neither P nor W
        if first & 0xFFF0 == 0xE8D0 and second & 0xE0 == 0:
            raise ValueError(Why.FORM)  # tbb, tbh
        raise ValueError(Why.JOINED)
    if rn != PC:
        return ""
    if not load or first >> 5 & 1 or second >> 12 >= SP or (second >> 8 & 0xF) >= SP:
        raise ValueError(Why.FORM)
    return "ldrd"


def _single(first: int, second: int) -> str:
    """Loads and stores of one word, halfword or byte."""
    rn, load, rt, word = first & 0xF, first >> 4 & 1, second >> 12, first >> 5 & 3 == 2
    if rn == PC:
        if not load or (word and rt == PC) or rt == SP:
            raise ValueError(Why.FORM)
        return "nop" if rt == PC else "ldr"
    if rt == PC and word:
        if not load:
            raise ValueError(Why.FORM)
        return "ends"
    return ""


def _coprocessor(first: int, second: int) -> str:
    """vldr is all that reads pc."""
    if first >> 9 & 7 != 6 or first & 0xF != PC:  # 1110 110: loads and stores
        return ""
    if first & 0xEF30 != 0xED10 & 0xEF30 or second >> 9 & 7 != 5:
        raise ValueError(Why.FORM)
    return "vldr"


def ends_t32(insn: bytes) -> bool:
    """Return whether control never goes on behind an instruction outside of IT blocks, but for
    calls."""
    first, _ = _halves(insn)
    try:
        return form_t32(insn) in ("ends", "b")
    except ValueError as error:
        table = len(insn) == 4 and first & 0xFFF0 == 0xE8D0
        pc = first >> 10 == 0x11 and len(insn) == 2  # add pc, rm; bx pc
        return (error.args[0] is Why.FORM and (table or pc)) or error.args[0] is Why.TRAP


def leads_t32(insn: bytes, address: int) -> int | None:
    """The target of a branch, with bit 0 if it is in T32; None for what is none."""
    try:
        form = form_t32(insn)
    except ValueError:
        return None
    first, second = _halves(insn)
    here = address + AHEAD
    if form == "cbz":
        return here + (first >> 3 & 0x1F | first >> 4 & 0x20) * 2 + 1
    if form not in ("b", "b<c>", "bl", "blx/i"):
        return None
    if len(insn) == 2:
        bits = 8 if form == "b<c>" else 11
        distance = first & (1 << bits) - 1
        sign, scale = bits - 1, 2
    else:
        s, j1, j2 = first >> 10 & 1, second >> 13 & 1, second >> 11 & 1
        sign, scale = 24, 1
        if form == "b<c>":
            distance = s << 20 | j2 << 19 | j1 << 18 | (first & 0x3F) << 12
            sign = 20
        else:
            distance = s << 24 | (1 ^ j1 ^ s) << 23 | (1 ^ j2 ^ s) << 22 | (first & 0x3FF) << 12
        distance |= (second & 0x7FF) << 1
    distance = (distance ^ 1 << sign) - (1 << sign)
    if form == "blx/i":
        return (here & ~3) + distance & 0xFFFF_FFFF
    return here + scale * distance & 0xFFFF_FFFF | 1


def reach_t32(at: int, to: int) -> bool:
    """Return whether ``b.w`` reaches ``to``, which is in T32."""
    return -REACH <= to - at - AHEAD < REACH


def branch_t32(at: int, to: int, text: str) -> bytes:
    """``b.w to`` at ``at``; addresses without bit 0."""
    if not reach_t32(at, to):
        raise Immovable(Why.FAR, text)
    distance = to - at - AHEAD
    s = distance >> 24 & 1
    j1, j2 = (1 ^ s ^ (distance >> bit & 1) for bit in (23, 22))
    first = 0xF000 | s << 10 | distance >> 12 & 0x3FF
    return _packed(first, 0x9000 | j1 << 13 | j2 << 11 | distance >> 1 & 0x7FF)


def _packed(*halves: int) -> bytes:
    return b"".join(half.to_bytes(2, "little") for half in halves)


def _address(at: int, register: int, value: int) -> bytes:
    """movw, movt and add, ten bytes at ``at``."""
    distance = value - (at + 8) - AHEAD & 0xFFFF_FFFF
    out = b""
    for kind, half in ((MOVW, distance & 0xFFFF), (MOVT, distance >> 16)):
        first = kind | (half >> 11 & 1) << 10 | half >> 12
        out += _packed(first, (half >> 8 & 7) << 12 | register << 8 | half & 0xFF)
    return out + _packed(ADD_PC | (register & 8) << 4 | register & 7)


def literal_t32(insn: bytes, address: int, form: str) -> int:
    """The address that an instruction of these forms has from pc: ldr, ldrd, vldr, adr."""
    first, second = _halves(insn)
    up = first >> 7 & 1
    if len(insn) == 2:
        offset, up = 4 * (first & 0xFF), 1
    elif form == "ldr":
        offset = second & 0xFFF
    elif form == "adr":
        offset = (first >> 10 & 1) << 11 | (second >> 12 & 7) << 8 | second & 0xFF
        up = first & 0xF0 == 0
    else:
        offset = 4 * (second & 0xFF)
    return (address + AHEAD & ~3) + (offset if up else -offset)


def moved_t32(insn: bytes, address: int, to: int, displaced: range, text: str) -> tuple[bytes, str]:
    """One instruction as it must be at address ``to``, and its form; ``displaced``: the addresses
    behind the first one that are to go; ``text``: it as disassembled. Raises Immovable."""
    try:
        form = form_t32(insn)
    except ValueError as error:
        raise Immovable(error.args[0], text) from None
    if not form and PC_NAMED.search(text):  # UNPREDICTABLE
        raise Immovable(Why.FORM, text)
    target = leads_t32(insn, address)
    if target is None and form in LITERALS:
        target = literal_t32(insn, address, form)
    if target is not None and target & ~1 in displaced:
        raise Immovable(Why.INSIDE, text)
    if form in ("", "ends"):
        return insn, form
    return _elsewhere(insn, form, (address, target or 0, to), text), form


def _elsewhere(insn: bytes, form: str, places: tuple[int, int, int], text: str) -> bytes:
    """``places``: of the instruction, of what it leads to, and where it is to be."""
    address, target, to = places
    first = _halves(insn)[0]
    plain, back = target & ~1, address + len(insn) | 1
    if form == "b":
        return branch_t32(to, plain, text)
    if form == "b<c>":
        condition = first >> 8 & 0xF if len(insn) == 2 else first >> 6 & 0xF
        return _packed(B_SHORT | (condition ^ 1) << 8) + branch_t32(to + 2, plain, text)
    if form == "cbz":  # the opposite, over the branch
        skip = (first ^ 1 << 11) & ~0x2F8 | 1 << 3
        return _packed(skip) + branch_t32(to + 2, plain, text)
    if form == "bl":
        return _address(to, LR, back) + branch_t32(to + 10, plain, text)
    if form == "blx":
        return _address(to, LR, back) + _packed(BX | first & 0x78)
    if form == "blx/i":
        push = _packed(PUSH | 3)
        there = push + _address(to + 2, 0, target) + _packed(STR_R0)
        return there + _address(to + len(there), LR, back) + _packed(POP_R0_PC)
    return _read(insn, form, (address, target, to))


def _read(insn: bytes, form: str, places: tuple[int, int, int]) -> bytes:
    """An instruction that reads pc."""
    address, target, to = places
    first, second = _halves(insn)
    if form == "nop":
        return _packed(*NOP_W)
    if form in ("add", "mov"):
        register, here = first & 7 | first >> 4 & 8, address + AHEAD
        if form == "mov":
            return _address(to, register, here)
        scratch = int(register == 0)
        added = _packed(ADD | (register & 8) << 4 | scratch << 3 | register & 7)
        return _through(scratch, here, to, added)
    if form == "vldr":
        base = first & ~0xF | 1 << 7
        return _through(0, target, to, _packed(base, second & ~0xFF))
    if form == "adr":
        register = first >> 8 & 7 if len(insn) == 2 else second >> 8 & 0xF
        return _address(to, register, target)
    if len(insn) == 2:
        register = first >> 8 & 7
        load = _packed(LDR | register, register << 12)
    elif form == "ldrd":
        register = second >> 12
        load = _packed(LDRD | register, second & 0xFF00)
    else:
        register = second >> 12
        load = _packed(first & ~0xF | register | 1 << 7, register << 12)
    return _address(to, register, target) + load


def _through(register: int, value: int, to: int, insn: bytes) -> bytes:
    """An instruction between a push and a pop of a register with a value."""
    push, pop = _packed(PUSH | 1 << register), _packed(POP | 1 << register)
    return push + _address(to + 2, register, value) + insn + pop
