# SPDX-License-Identifier: MIT
"""A32: instructions that run elsewhere. All of them can be conditional, and so is what they become.

    At the site               Elsewhere
    b L                       b L
    bl L                      movw lr, #; movt lr, #; add lr, pc, lr; b L           lr: back
    blx r3                    movw lr, #; movt lr, #; add lr, pc, lr; bx r3
    blx L                     push {r0, r1}; movw r0, #; movt r0, #; add r0, pc, r0;
                              str r0, [sp, #4]; movw lr, #; movt lr, #; add lr, pc, lr;
                              pop {r0, pc}
    ldr r3, [pc, #8]          str r0, [sp, #-4]!; movw r0, #; movt r0, #; add r0, pc, r0;
    add r3, pc, r3            the same instruction with r0 in place of pc;
    vldr d0, [pc, #8]         ldr r0, [sp], #4                                 r0: the site + 8
    pld [pc, #8]              nop

The register that stands in for pc is one that the instruction does not name. What pops it must be
executed if what pushed it was, so a conditional instruction that changes the flags is refused.
Whatever else only writes pc stays as it is, and ends the code.

Encodings: Arm ARM (DDI 0406C), A5 "ARM Instruction Set Encoding", and A8.8.
"""

from __future__ import annotations

import re
from typing import Final

from ftpatch.arch.move import Immovable, Why

__all__ = [
    "ALWAYS",
    "branch_a32",
    "ends_a32",
    "form_a32",
    "leads_a32",
    "literal_a32",
    "moved_a32",
    "reach_a32",
]

PC, LR, SP = 15, 14, 13
AHEAD = 8
"""Bytes by which pc is ahead of an instruction."""
ALWAYS, NEVER = 0xE, 0xF
"""Conditions; the second one is that of other instructions."""
NOP: Final = 0xE320_F000
B: Final = 0x0A00_0000  # b addr
MOVW, MOVT = 0x0300_0000, 0x0340_0000  # movw r0, #0; movt r0, #0
ADD_PC: Final = 0x008F_0000  # add r0, pc, r0
ADD_LR: Final = 0x008F_E00E  # add lr, pc, lr
PUSH, POP = 0x052D_0004, 0x049D_0004  # str r0, [sp, #-4]!; ldr r0, [sp], #4
PUSH_R0_R1: Final = 0xE92D_0003  # push {r0, r1}
STR_R0: Final = 0xE58D_0004  # str r0, [sp, #4]
POP_R0_PC: Final = 0xE8BD_8001  # pop {r0, pc}
BX: Final = 0x012F_FF10  # bx r0
REACH: Final = 1 << 25
PC_NAMED: Final = re.compile(r"\bpc\b")


def _field(insn: int, at: int) -> int:
    return insn >> at & 0xF


def form_a32(insn: int) -> str:
    """The form of an instruction of which all is known that concerns pc; empty for one that has
    nothing to do with it. Raises ValueError for others."""
    top, rn, rd, rm = insn >> 25 & 7, _field(insn, 16), _field(insn, 12), _field(insn, 0)
    if insn >> 28 == NEVER:
        return _unconditional(insn, rn)
    if top in (0, 1) and insn & 0x0190_0000 == 0x0100_0000 and not (top == 0 and _is_extra(insn)):
        return _miscellaneous(insn)
    if top == 0 and _is_extra(insn):
        if insn & 0x60 == 0:  # multiplications; swp, ldrex, strex
            if insn & 0x0F80_00F0 == 0x0180_0090:
                raise ValueError(Why.JOINED)
            return ""
        register = not insn >> 22 & 1
        wide = not insn >> 20 & 1 and insn & 0xD0 == 0xD0  # ldrd
        load = insn >> 20 & 1 or wide
        if wide and rd >= SP - 1:
            raise ValueError(Why.FORM)
        if PC in (rd, rm if register else 0) or (rn == PC and (not load or _writes_back(insn))):
            raise ValueError(Why.FORM)
        return "pc" if rn == PC else ""
    if top in (0, 1):
        return _processing(insn, rn, rd, rm)
    if top in (2, 3):
        if top == 3 and insn & 0x10:  # media
            if insn & 0x0FF0_00F0 == 0x07F0_00F0:
                raise ValueError(Why.TRAP)
            return ""
        load, uses = insn >> 20 & 1, rn == PC
        if rd == PC and (not load or uses or insn >> 22 & 1):
            raise ValueError(Why.FORM)
        if (top == 3 and rm == PC) or (uses and (not load or _writes_back(insn))):
            raise ValueError(Why.FORM)
        return "ends" if rd == PC else "pc" if uses else ""
    if top == 4:
        load, has_pc = insn >> 20 & 1, insn >> 15 & 1
        if rn == PC or insn >> 22 & 1 or (has_pc and not load):
            raise ValueError(Why.FORM)
        return "ends" if has_pc else ""
    if top == 5:
        return "bl" if insn >> 24 & 1 else "b"
    return _coprocessor(insn, rn, rd)


def _is_extra(insn: int) -> bool:
    """Bits 7 and 4: multiplications, and loads and stores of halfwords and doublewords."""
    return insn & 0x90 == 0x90


def _writes_back(insn: int) -> bool:
    """Without P, or with W."""
    return not insn >> 24 & 1 or bool(insn >> 21 & 1)


def _miscellaneous(insn: int) -> str:
    """bx, blx, clz, msr, ...; movw, movt, hints."""
    if insn >> 25 & 1:
        if _field(insn, 12) == PC and insn & 0x0FB0_0000 == 0x0300_0000:  # movw and movt of pc
            raise ValueError(Why.FORM)
        return ""
    kind, operation = insn >> 4 & 0xF, insn >> 21 & 3
    if kind == 1 and operation == 1:
        if _field(insn, 0) == PC:
            raise ValueError(Why.FORM)
        return "ends"
    if kind == 3 and operation == 1:
        if _field(insn, 0) in (PC, LR):
            raise ValueError(Why.LINK)
        return "blx"
    if kind == 7 and operation == 1:
        raise ValueError(Why.TRAP)
    if kind in (2, 6, 7):  # bxj, eret, smc, hvc
        raise ValueError(Why.FORM)
    return ""


def _processing(insn: int, rn: int, rd: int, rm: int) -> str:
    """Data processing: Rd is not written by the comparisons, and moves have no Rn."""
    register, operation = not insn >> 25 & 1, insn >> 21 & 0xF
    compares, moves = operation in (8, 9, 10, 11), operation in (13, 15)
    if moves and rn:
        raise ValueError(Why.UNKNOWN)
    uses = (rn == PC and not moves) or (register and rm == PC)
    if register and insn & 0x10 and PC in (rn if not moves else 0, rd, rm, _field(insn, 8)):
        if not (compares and PC not in (rn, rm, _field(insn, 8))):
            raise ValueError(Why.FORM)
        return ""
    if compares:
        if rd == PC:
            raise ValueError(Why.FORM)
        uses_twice = uses and insn >> 28 != ALWAYS
    else:
        uses_twice = uses and bool(insn >> 20 & 1) and insn >> 28 != ALWAYS
    if uses_twice or (rd == PC and not compares and (uses or insn >> 20 & 1)):
        raise ValueError(Why.FORM)
    return "ends" if rd == PC and not compares else "pc" if uses else ""


def _coprocessor(insn: int, rn: int, rd: int) -> str:
    """vldr, vmov, mrc, svc, ..."""
    if insn >> 24 & 0xF == 0xF:
        return ""  # svc
    if insn >> 25 & 7 == 6:
        if insn >> 21 & 0xF == 2:  # mcrr, mrrc: two registers
            if PC in (rn, rd):
                raise ValueError(Why.FORM)
            return ""
        if rn == PC:
            vldr = insn >> 20 & 1 and not insn >> 21 & 1 and insn >> 24 & 1
            if not vldr or insn >> 9 & 7 != 5:
                raise ValueError(Why.FORM)
            return "pc"
        return ""
    if insn & 0x10 and rd == PC and not insn >> 20 & 1:  # mcr; of mrc that are the flags
        raise ValueError(Why.FORM)
    return ""


def _unconditional(insn: int, rn: int) -> str:
    """Those without a condition."""
    if insn >> 25 & 7 == 5:
        return "blx/i"
    if insn == 0xF57F_F01F:  # clrex
        raise ValueError(Why.JOINED)
    barrier = insn & 0xFFFF_FF00 == 0xF57F_F000 and insn >> 4 & 0xF in (4, 5, 6)
    vector = insn >> 25 & 7 == 1 or (insn >> 24 == 0xF4 and not insn >> 20 & 1 and rn != PC)
    if barrier or vector:
        return ""
    if insn >> 26 == 0x3D and insn & 0x0170_F000 in (0x0150_F000, 0x0110_F000):  # pld, pldw
        return "nop" if rn == PC else ""
    if insn >> 25 == 0x7F or insn >> 24 == 0xFE:  # VFP of later versions
        return ""
    raise ValueError(Why.FORM)


def ends_a32(insn: int) -> bool:
    """Return whether control never goes on behind an instruction, but for calls."""
    try:
        form = form_a32(insn)
    except ValueError as error:
        # What cannot be moved may still write pc in a way of its own.
        if error.args[0] is Why.TRAP:
            return True
        rd = _field(insn, 12)
        return insn >> 28 == ALWAYS and rd == PC and insn >> 25 & 7 in (0, 1, 2, 3)
    return form in ("ends", "b") and insn >> 28 == ALWAYS


def leads_a32(insn: int, address: int) -> int | None:
    """The target of b, bl and blx; with bit 0 set in T32. None for others."""
    if insn >> 25 & 7 != 5:
        return None
    distance = ((insn & 0xFF_FFFF) ^ 0x80_0000) - 0x80_0000
    half = (insn >> 24 & 1) * 2 + 1 if insn >> 28 == NEVER else 0
    return address + AHEAD + 4 * distance + half & 0xFFFF_FFFF


def reach_a32(at: int, to: int) -> bool:
    """Return whether ``b`` reaches ``to``, which is in A32."""
    return to % 4 == 0 and -REACH <= to - at - AHEAD < REACH


def _branch(at: int, to: int, condition: int, text: str) -> int:
    if not reach_a32(at, to):
        raise Immovable(Why.FAR, text)
    return condition << 28 | B | (to - at - AHEAD) >> 2 & 0xFF_FFFF


def branch_a32(at: int, to: int, text: str) -> bytes:
    """``b to`` at ``at``."""
    return _branch(at, to, ALWAYS, text).to_bytes(4, "little")


def _address(at: int, register: int, value: int, condition: int) -> list[int]:
    """movw, movt and add, three words at ``at``."""
    distance = value - (at + 8) - AHEAD & 0xFFFF_FFFF
    out = []
    for kind, half in ((MOVW, distance & 0xFFFF), (MOVT, distance >> 16)):
        out.append(condition << 28 | kind | half >> 12 << 16 | register << 12 | half & 0xFFF)
    return [*out, condition << 28 | ADD_PC | register << 12 | register]


def literal_a32(insn: int, address: int) -> int | None:
    """The address that an instruction with an offset from pc reads, None for others."""
    if insn >> 25 & 7 in (2, 6):
        offset = insn & 0xFFF if insn >> 25 & 7 == 2 else 4 * (insn & 0xFF)
    elif insn >> 25 & 7 == 0 and _is_extra(insn):
        offset = insn >> 4 & 0xF0 | insn & 0xF
    else:
        return None
    return address + AHEAD + (offset if insn >> 23 & 1 else -offset)


def moved_a32(insn: int, address: int, to: int, displaced: range, text: str) -> tuple[bytes, str]:
    """One instruction as it must be at address ``to``, and its form; ``displaced``: the addresses
    behind the first one that are to go; ``text``: it as disassembled. Raises Immovable."""
    try:
        form = form_a32(insn)
    except ValueError as error:
        raise Immovable(error.args[0], text) from None
    condition = insn >> 28
    words = [insn]
    if not form and PC_NAMED.search(text):  # UNPREDICTABLE
        raise Immovable(Why.FORM, text)
    if form in ("b", "bl", "blx/i"):
        target = leads_a32(insn, address) or 0
        if target & ~1 in displaced:
            raise Immovable(Why.INSIDE, text)
        if form == "blx/i":
            words = [PUSH_R0_R1, *_address(to + 4, 0, target, ALWAYS), STR_R0]
            words += [*_address(to + 20, LR, address + 4, ALWAYS), POP_R0_PC]
        else:
            words = _address(to, LR, address + 4, condition) if form == "bl" else []
            words.append(_branch(to + 4 * len(words), target, condition, text))
    elif form == "blx":
        back = _address(to, LR, address + 4, condition)
        words = [*back, condition << 28 | BX | insn & 0xF]
    elif form == "nop":
        words = [NOP]
    elif form == "pc":
        if literal_a32(insn, address) in displaced:
            raise Immovable(Why.INSIDE, text)
        words = _instead(insn, address, to, text)
    return b"".join(word.to_bytes(4, "little") for word in words), form


def _instead(insn: int, address: int, to: int, text: str) -> list[int]:
    """An instruction with another register in place of pc."""
    named = {_field(insn, at) for at in (0, 8, 12, 16)}
    named.add(_field(insn, 12) + 1)  # of ldrd
    top = insn >> 25 & 7
    register = top == 0 and not _is_extra(insn)
    indexed = register or top == 3 or (top == 0 and not insn >> 22 & 1)
    used = (_field(insn, 16), _field(insn, 12), _field(insn, 0) if indexed else 0)
    if top != 6 and SP in used:
        raise Immovable(Why.FORM, text)
    scratch = next(one for one in range(8) if one not in named)
    condition = insn >> 28
    other = insn
    if _field(insn, 16) == PC:
        other = other & ~0xF_0000 | scratch << 16
    if register and _field(insn, 0) == PC:
        other = other & ~0xF | scratch
    push, pop = (condition << 28 | one | scratch << 12 for one in (PUSH, POP))
    return [push, *_address(to + 4, scratch, address + AHEAD, condition), other, pop]
