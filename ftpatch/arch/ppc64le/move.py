# SPDX-License-Identifier: MIT
"""ppc64le: instructions that run elsewhere.

    At the site            Elsewhere
    b L, ba L              b L, ba L
    bl L                   LR = back; b L
    bctrl                  LR = back; bctr            also bctarl, and either if a condition holds
    beq L, bdnz L          beq .+8; b .+8; b L
    bcl 20,31,L            LR = back; b L
    addpcis r3, n          addpcis r3, #; addi r3, r3, #
    pld r3, L              pld r3, L, and a nop before or behind it

LR = back is

    std r12, -296(r1); bcl 20,31,.+4; mflr r12; addis r12, r12, #; addi r12, r12, #; mtlr r12;
    ld r12, -296(r1)

since nothing else sets LR, and no register is free: _savegpr0_14 takes r0 and r12, and what is up
to 288 bytes below the stack pointer. Up to 512 bytes there no signal's handler writes (psABI,
ELFv2, 2.2.2.4). An instruction with a prefix does not cross 64 bytes (Power ISA 3.1, 1.6), so one
of three words is a nop. A jump takes one instruction away; between lwarx and stwcx. nothing may be
moved, as the reservation would be lost.

Encodings: Power ISA 3.1, book I, 1.6.3 (prefixes), 2.4 (branches), 3.3 (traps, ADDPCIS), book II,
4.6 (reservations).
"""

from __future__ import annotations

from typing import ClassVar, Final

from ftpatch.arch.disassemble import disassemble
from ftpatch.arch.move import Immovable, Moved, Mover, Why
from ftpatch.arch.ppc64le.encode import PPC, is_global_entry

__all__ = ["PPC64LE_MOVE"]

FORMS: Final[dict[str, tuple[int, int]]] = {
    # name: mask and value
    "b": (0xFC00_0000, 0x4800_0000),  # b, ba, bl, bla
    "bc": (0xFC00_0000, 0x4000_0000),  # bc, bca, bcl, bcla
    "bclr": (0xFC00_07FE, 0x4C00_0020),  # and bclrl
    "bcctr": (0xFC00_07FE, 0x4C00_0420),
    "bctar": (0xFC00_07FE, 0x4C00_0460),
    "addpcis": (0xFC00_003E, 0x4C00_0004),
    "tw": (0xFFE0_07FE, 0x7FE0_0008),  # trap: tw 31, whatever is compared
    "td": (0xFFE0_07FE, 0x7FE0_0088),
    "twi": (0xFFE0_0000, 0x0FE0_0000),
    "tdi": (0xFFE0_0000, 0x0BE0_0000),
    "lbarx": (0xFC00_07FE, 0x7C00_0068),
    "lharx": (0xFC00_07FE, 0x7C00_00E8),
    "lwarx": (0xFC00_07FE, 0x7C00_0028),
    "ldarx": (0xFC00_07FE, 0x7C00_00A8),
    "lqarx": (0xFC00_07FE, 0x7C00_0228),
    "stbcx.": (0xFC00_07FF, 0x7C00_056D),
    "sthcx.": (0xFC00_07FF, 0x7C00_05AD),
    "stwcx.": (0xFC00_07FF, 0x7C00_012D),
    "stdcx.": (0xFC00_07FF, 0x7C00_01AD),
    "stqcx.": (0xFC00_07FF, 0x7C00_016D),
}
LOADS = {"lbarx", "lharx", "lwarx", "ldarx", "lqarx"}
STORES = {"stbcx.", "sthcx.", "stwcx.", "stdcx.", "stqcx."}
TRAPS = {"tw", "td", "twi", "tdi"}
REGISTERS = {"bclr", "bcctr", "bctar"}
"""Branches whose target is in a register."""
LINK, ABSOLUTE = 1, 2  # LK; AA of an immediate
ALWAYS = 20 << 21  # BO 1z1zz, of which z are hints
PREFIX = 1  # primary opcode of the first word of two
RELATIVE = 1 << 20  # R of a prefix: the operand is relative to the instruction
PREFIX_KINDS = (0, 2)  # 8LS and MLS, which have R and an immediate of 34 bits
HIGH, LOW = 0x3_FFFF, 0xFFFF
BOUNDARY = 64
CONTEXT = 32
"""Instructions between lwarx and stwcx. at most, of what compilers and libc write."""
KEEP: Final = (0xF981_FED8, 0x429F_0005, 0x7D88_02A6)  # std r12,-296(r1); bcl 20,31,.+4; mflr r12
ADDIS_R12, ADDI_R12 = 0x3D8C_0000, 0x398C_0000  # addis r12,r12,0; addi r12,r12,0
SET: Final = (0x7D88_03A6, 0xE981_FED8)  # mtlr r12; ld r12,-296(r1)
ADDI = 0x3800_0000  # addi rt,ra,0


class _Ppc64le:
    jump_size: ClassVar[int] = 4
    trap: ClassVar[bytes] = bytes(4)  # no instruction: Power ISA 3.1, book I, 1.6.3
    signal: ClassVar[str] = "SIGILL"
    pad: ClassVar[bytes] = PPC.NOP.to_bytes(4, "little")

    def landing(self, code: bytes) -> int:
        """What makes r2 of r12 at a global entry, with NOPs of a pad that gcc left in front of it:
        calls from the same file come in behind."""
        nops = 0
        while code[4 * nops : 4 * nops + 4] == self.pad:
            nops += 1
        return 4 * nops + 8 if is_global_entry(code[4 * nops : 4 * nops + 8]) else 0

    def signing(self, code: bytes) -> int:
        """hashst needs no place of its own."""
        return 0

    def prefixed(self, code: bytes) -> bool:
        """No branch may skip a prefix."""
        return False

    def joined(self, before: bytes) -> bool:
        """True after a load that reserves without its store, within an instruction, and behind what
        is none: a zero ends a function's code, before what debuggers read of it."""
        insns = _split(before)
        if insns and len(insns[-1]) == 4 and _opcode(insns[-1]) == PREFIX:
            return True
        if any(not _number(insn) for insn in insns):
            return True
        for insn in insns[: -CONTEXT - 1 : -1]:
            form = _form(insn)
            if form in LOADS | STORES:
                return form in LOADS
            if _ends(insn, form):
                return False
        return False

    def reaches(self, at: int, to: int) -> bool:
        """32 MB either way."""
        return -PPC.REACH <= to - at < PPC.REACH

    def jump(self, at: int, to: int) -> bytes:
        """``b to``."""
        return _branch(at, to, f"{at:#x}: b {to:#x}")

    def move(self, code: bytes, at: int, to: int, need: int) -> Moved:
        """Move the first instructions of ``code``, and add ``b`` back."""
        insns, end = [], at
        for insn in _split(code):
            if end >= at + need:
                break
            insns.append((end, insn))
            end += len(insn)
        if end - at < need:
            raise Immovable(Why.SHORT, f"{end:#x}: end of the function")
        out, ends = b"", False
        for address, insn in insns:
            text, form = _text(insn, address), _form(insn)
            _refuse(insn, form, address, (at, end), text)
            out += _moved(insn, form, address, to + len(out), text)
            ends = _ends(insn, form)
            if ends and address + 4 < end:
                raise Immovable(Why.RETURNS if _number(insn) & LINK else Why.ENDS, text)
        return Moved(end - at, out if ends else out + self.jump(to + len(out), end))


def _number(insn: bytes) -> int:
    return int.from_bytes(insn[:4], "little")


def _opcode(insn: bytes) -> int:
    return _number(insn) >> 26


def _split(code: bytes) -> list[bytes]:
    """Instructions of four and eight bytes."""
    out, here = list[bytes](), 0
    while here + 4 <= len(code):
        size = 8 if _opcode(code[here : here + 4]) == PREFIX else 4
        out.append(code[here : here + size])
        here += size
    return out


def _form(insn: bytes) -> str:
    """Name in FORMS of the first match, ``relative`` for a prefixed instruction that is; empty for
    a position-independent instruction."""
    number = _number(insn)
    if len(insn) == 8:
        kind = number >> 24 & 3
        return "relative" if kind in PREFIX_KINDS and number & RELATIVE else ""
    return next((name for name, (mask, value) in FORMS.items() if number & mask == value), "")


def _ends(insn: bytes, form: str) -> bool:
    """Return whether it always branches: it never goes on to the next instruction, but by a call's
    return."""
    return form == "b" or (form in REGISTERS | {"bc"} and _number(insn) & ALWAYS == ALWAYS)


def _text(insn: bytes, address: int) -> str:
    """Disassemble it; refuse an invalid instruction. Capstone 5 knows neither scv nor prefixes."""
    read = disassemble("ppc64le", insn, address)
    if read:
        return f"{address:#x}: {read[0].mnemonic} {read[0].operands}".rstrip()
    shown = f"{address:#x}: " + " ".join(f"{_number(insn[i:]):08x}" for i in range(0, len(insn), 4))
    if len(insn) < 8 and _opcode(insn) in (0, PREFIX):
        raise Immovable(Why.UNKNOWN, shown)
    return shown


def _refuse(insn: bytes, form: str, address: int, displaced: tuple[int, int], text: str) -> None:
    """Raise Immovable for what cannot be moved anywhere."""
    number = _number(insn)
    if form in TRAPS:
        raise Immovable(Why.TRAP, text)
    if form in LOADS | STORES:
        raise Immovable(Why.JOINED, text)
    if form == "bclr" and number & LINK:
        raise Immovable(Why.LINK, text)
    if form == "addpcis" and not number >> 21 & 31:
        raise Immovable(Why.FORM, text)  # addi takes r0 for 0
    if form in ("b", "bc", "relative"):
        low, high = displaced
        if low < _target(insn, form, address) < high:
            raise Immovable(Why.INSIDE, text)


def _target(insn: bytes, form: str, address: int) -> int:
    """Target of an instruction with an immediate."""
    number = _number(insn)
    if form == "relative":
        held = (number & HIGH) << 16 | _number(insn[4:]) & LOW
        return address + held - (held >> 33 << 34)
    if form == "addpcis":  # d0, d1 and d2: bits 6 to 15, 16 to 20, and 0
        held = number >> 6 & 0x3FF
        held = held << 6 | (number >> 16 & 31) << 1 | number & 1
        return address + 4 + (held - (held >> 15 << 16) << 16)
    bits = 26 if form == "b" else 16
    distance = number & (1 << bits) - 4
    distance -= distance >> bits - 1 << bits
    return distance if number & ABSOLUTE else address + distance


def _branch(at: int, to: int, text: str) -> bytes:
    """``b to`` at ``at``."""
    if not -PPC.REACH <= to - at < PPC.REACH:
        raise Immovable(Why.FAR, text)
    return _words(PPC.B | to - at & PPC.LI)


def _words(*insns: int) -> bytes:
    return b"".join(insn.to_bytes(4, "little") for insn in insns)


def _halves(distance: int, text: str) -> tuple[int, int]:
    """A distance as addis and addi add it up."""
    high, low = distance + 0x8000 >> 16, distance & LOW
    if not -0x8000 <= high < 0x8000:
        raise Immovable(Why.FAR, text)
    return high & LOW, low


def _linked(at: int, back: int, text: str) -> bytes:
    """LR = back, 28 bytes at ``at``."""
    high, low = _halves(back - (at + 8), text)
    return _words(*KEEP, ADDIS_R12 | high, ADDI_R12 | low, *SET)


def _moved(insn: bytes, form: str, address: int, to: int, text: str) -> bytes:
    """One instruction as encoded for address ``to``."""
    number = _number(insn)
    if form == "relative":
        return _prefixed(insn, to, _target(insn, form, address), text)
    if len(insn) == 8:
        return _placed(insn, to)
    if form == "addpcis":
        register = number >> 21 & 31
        high, low = _halves(_target(insn, form, address) - (to + 4), text)
        fields = (high >> 6) << 6 | (high >> 1 & 31) << 16 | high & 1
        first = number & ~(0x3FF << 6 | 31 << 16 | 1) | fields
        return _words(first, ADDI | register << 21 | register << 16 | low)
    if form not in REGISTERS | {"b", "bc"}:
        return insn
    before = _linked(to, address + 4, text) if number & LINK else b""
    unlinked, to = number & ~LINK, to + len(before)
    if form in REGISTERS or number & ABSOLUTE:
        return before + _words(unlinked)
    target = _target(insn, form, address)
    if _ends(insn, form):
        return before + _branch(to, target, text)
    taken = unlinked & ~0xFFFC | 8
    return before + _words(taken, PPC.B | 8) + _branch(to + 8, target, text)


def _prefixed(insn: bytes, to: int, target: int, text: str) -> bytes:
    """The same with another distance."""
    at = to + (4 if _crosses(to) else 0)
    distance = target - at
    if not -(1 << 33) <= distance < 1 << 33:
        raise Immovable(Why.FAR, text)
    first = _number(insn) & ~HIGH | distance >> 16 & HIGH
    return _placed(_words(first, _number(insn[4:]) & ~LOW | distance & LOW), to)


def _crosses(to: int) -> bool:
    return to % BOUNDARY == BOUNDARY - 4


def _placed(insn: bytes, to: int) -> bytes:
    """A prefixed instruction, within 64 bytes, and a nop: twelve bytes at ``to``."""
    nop = _words(PPC.NOP)
    return nop + insn if _crosses(to) else insn + nop


PPC64LE_MOVE: Final[Mover] = _Ppc64le()
