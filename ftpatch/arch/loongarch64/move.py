# SPDX-License-Identifier: MIT
"""loongarch64: instructions that run elsewhere.

    At the site            Elsewhere
    b L                    b L
    bl L                   pcaddu12i $ra, back; addi.d $ra, $ra, #; b L
    jirl rd, rj, #         pcaddu12i rd, back; addi.d rd, rd, #; jirl $zero, rj, #
    beq rj, rd, L          bne rj, rd, .+8; b L     also blt and bge, beqz and bnez, bceqz and bcnez
    pcaddi rd, L           pcaddu12i rd, L; addi.d rd, rd, #        also pcaddu12i and pcaddu18i
    pcalau12i rd, L        pcalau12i rd, L

A jump is `b`, which goes 128 MB either way in place of any one instruction. A trap is `break 0`:
no word is said to stay undefined, and qemu-user tells no code of SIGILL. Between ll and sc
nothing may be moved, as the reservation would be lost.

Encodings: LoongArch Reference Manual, volume 1, appendix B ("Table of Instruction Encoding").
"""

from __future__ import annotations

from typing import ClassVar, Final

from ftpatch.arch.disassemble import disassemble
from ftpatch.arch.loongarch64.encode import LA, address_of, branch_form, distance_of, upper
from ftpatch.arch.move import Immovable, Moved, Mover, PlainMover, Why

__all__ = ["LOONGARCH64_MOVE"]

RA = 1
FORMS: Final[dict[str, tuple[int, int]]] = {
    # name: mask and value
    "jirl": (0xFC00_0000, 0x4C00_0000),
    "pcaddi": (0xFE00_0000, 0x1800_0000),
    "pcalau12i": (0xFE00_0000, 0x1A00_0000),
    "pcaddu12i": (0xFE00_0000, 0x1C00_0000),
    "pcaddu18i": (0xFE00_0000, 0x1E00_0000),
    "break": (0xFFFF_0000, 0x002A_0000),  # and dbcl
    "ll": (0xFD00_0000, 0x2000_0000),  # ll.w, ll.d
    "sc": (0xFD00_0000, 0x2100_0000),  # sc.w, sc.d
    "sc.q": (0xFFFF_8000, 0x3857_0000),
    "llacq": (0xFFFF_F400, 0x3857_8000),  # llacq.w, llacq.d
    "screl": (0xFFFF_F400, 0x3857_8400),  # screl.w, screl.d
    "undefined": (0x8000_0000, 0x8000_0000),  # no instruction begins so
    "zero": (0xFFFF_F000, 0),  # nor so
}
SHIFTS: Final = {"pcaddi": 2, "pcalau12i": 12, "pcaddu12i": 12, "pcaddu18i": 18}
"""Of si20."""
LOADS, STORES = ("ll", "llacq"), ("sc", "sc.q", "screl")
CONTEXT = 32
"""Instructions between ll and sc at most."""
OPPOSITE: Final = {"bceqz": 1 << 8, "bcnez": 1 << 8}
"""The bit by which a branch differs from its opposite: bit 26 of the others."""
SKIP: Final = 2 << 10
"""offs of a branch over itself and a jump."""


class _LoongArch64(PlainMover):
    jump_size: ClassVar[int] = 4
    trap: ClassVar[bytes] = b"\x00\x00\x2a\x00"  # break 0
    signal: ClassVar[str] = "SIGTRAP"
    pad: ClassVar[bytes] = b"\x00\x00\x40\x03"  # nop

    def joined(self, before: bytes) -> bool:
        """True after ll without its sc."""
        for insn in _words(before)[: -CONTEXT - 1 : -1]:
            form = _form(insn)
            if form in LOADS or form in STORES:
                return form in LOADS
            if form in ("b", "bl", "jirl"):
                return False
        return False

    def reaches(self, at: int, to: int) -> bool:
        """offs26: 128 MB either way."""
        return -LA.REACH <= to - at < LA.REACH

    def jump(self, at: int, to: int) -> bytes:
        """``b to``."""
        return _jump(at, to, f"{at:#x}: b {to:#x}")

    def move(self, code: bytes, at: int, to: int, need: int) -> Moved:
        """Move the first instructions of ``code``, and add ``b`` back."""
        insns = _words(code[: -(-need // 4) * 4])
        end = at + 4 * len(insns)
        if end - at < need:
            raise Immovable(Why.SHORT, f"{end:#x}: end of the function")
        out, ends = b"", False
        for address, insn in zip(range(at, end, 4), insns, strict=True):
            text, form = _text(insn, address), _form(insn)
            _refuse(insn, form, address, (at, end), text)
            out += _moved(insn, form, address, to + len(out), text)
            ends = form in ("b", "bl", "jirl")
            if ends and address + 4 < end:
                calls = form == "bl" or (form == "jirl" and insn & 31)
                raise Immovable(Why.RETURNS if calls else Why.ENDS, text)
        return Moved(end - at, out if ends else out + self.jump(to + len(out), end))


def _words(code: bytes) -> list[int]:
    whole = len(code) // 4 * 4
    return [int.from_bytes(code[i : i + 4], "little") for i in range(0, whole, 4)]


def _form(insn: int) -> str:
    """Name in LA.BRANCHES or FORMS; empty for a position-independent instruction."""
    forms = FORMS.items()
    return branch_form(insn) or next(
        (name for name, (mask, value) in forms if insn & mask == value), ""
    )


def _text(insn: int, address: int) -> str:
    (read,) = disassemble("loongarch64", insn.to_bytes(4, "little"), address)
    return f"{address:#x}: {read.mnemonic} {read.operands}".rstrip()


def _refuse(insn: int, form: str, address: int, displaced: tuple[int, int], text: str) -> None:
    """Raise Immovable for what cannot be moved anywhere."""
    if form in ("undefined", "zero"):
        raise Immovable(Why.UNKNOWN, text)
    if form == "break":
        raise Immovable(Why.TRAP, text)
    if form in LOADS or form in STORES:
        raise Immovable(Why.JOINED, text)
    if form.startswith("jiscr"):
        raise Immovable(Why.FORM, text)
    if form == "jirl" and insn & 31 and insn & 31 == insn >> 5 & 31:
        raise Immovable(Why.LINK, text)
    if form in LA.BRANCHES:
        low, high = displaced
        if low < address + distance_of(insn, form) < high:
            raise Immovable(Why.INSIDE, text)


def _jump(at: int, to: int, text: str) -> bytes:
    """``b to`` at ``at``."""
    distance = to - at
    if not -LA.REACH <= distance < LA.REACH:
        raise Immovable(Why.FAR, text)
    low, high = distance >> 2 & 0xFFFF, distance >> 18 & 0x3FF
    return (LA.B | low << 10 | high).to_bytes(4, "little")


def _address(at: int, register: int, value: int, text: str) -> bytes:
    """pcaddu12i and addi.d, eight bytes at ``at``."""
    code = address_of(at, value, register)
    if not code:
        raise Immovable(Why.FAR, text)
    return code


def _moved(insn: int, form: str, address: int, to: int, text: str) -> bytes:
    """One instruction as encoded for address ``to``."""
    rd = insn & 31
    if form == "jirl" and rd:
        return _address(to, rd, address + 4, text) + (insn & ~31).to_bytes(4, "little")
    if form in SHIFTS and rd:
        return _computed(insn, form, address, to, text)
    if form not in LA.BRANCHES:
        return insn.to_bytes(4, "little")
    target = address + distance_of(insn, form)
    if form == "b":
        return _jump(to, target, text)
    if form == "bl":
        return _address(to, RA, address + 4, text) + _jump(to + 8, target, text)
    # The inverted condition, over two instructions.
    bits = LA.BRANCHES[form][2]
    field = 0xFFFF << 10 | ((1 << bits - 16) - 1 if bits > 16 else 0)
    opposite = (insn ^ OPPOSITE.get(form, 1 << 26)) & ~field | SKIP
    return opposite.to_bytes(4, "little") + _jump(to + 4, target, text)


def _computed(insn: int, form: str, address: int, to: int, text: str) -> bytes:
    """An address, made elsewhere."""
    value = address + (upper(insn) << SHIFTS[form])
    if form != "pcalau12i":
        return _address(to, insn & 31, value, text)
    pages = (value >> 12) - (to >> 12)
    if not -(1 << 19) <= pages < 1 << 19:
        raise Immovable(Why.FAR, text)
    return (insn & ~(0xF_FFFF << 5) | (pages & 0xF_FFFF) << 5).to_bytes(4, "little")


LOONGARCH64_MOVE: Final[Mover] = _LoongArch64()
