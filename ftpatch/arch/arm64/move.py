# SPDX-License-Identifier: MIT
"""arm64: instructions that run elsewhere.

    At the site            Elsewhere
    b L                    b L
    bl L                   adrp x30, back; add x30, x30, #; b L
    blr x8                 adrp x30, back; add x30, x30, #; ret x8
    b.eq L                 b.ne .+8; b L            also cbz and cbnz, tbz and tbnz
    adr x0, L              adrp x0, L; add x0, x0, #
    adrp x0, L             adrp x0, L
    ldr x0, L              adrp x0, L; add x0, x0, #; ldr x0, [x0]      also w, ldrsw
    ldr q0, L              str x0, [sp, -16]!; adrp x0, L; add x0, x0, #;
                           ldr q0, [x0]; ldr x0, [sp], 16              also s, d
    prfm L                 nop

Words are 4-aligned where ldr with a register has a scaled offset, so the whole address is made. A
call by register becomes ``ret``: as ``br`` it would meet ``bti c`` where pages are guarded, which
is for calls (Arm ARM, "Effective BTYPE"). Signed calls have no such form and are refused.

Encodings: Arm ARM (DDI 0487) C4.1 "A64 instruction set encoding" and C6.2; exclusives: B2.9.
udf: C6.2, whose immediate is anybody's.
"""

from __future__ import annotations

from typing import ClassVar, Final

from ftpatch.arch.arm64.encode import A64, address_of
from ftpatch.arch.assemble import template
from ftpatch.arch.disassemble import disassemble
from ftpatch.arch.move import Immovable, Moved, Mover, PlainMover, Why

__all__ = ["ARM64_MOVE"]

LR = 30
ZERO = 31  # xzr, or sp
FORMS: Final[dict[str, tuple[int, int]]] = {
    # name: mask and value, C4.1
    "b": (0xFC00_0000, 0x1400_0000),
    "bl": (0xFC00_0000, 0x9400_0000),
    "b.cond": (0xFF00_0000, 0x5400_0000),  # and bc.cond
    "cbz": (0x7E00_0000, 0x3400_0000),  # and cbnz
    "tbz": (0x7E00_0000, 0x3600_0000),  # and tbnz
    "adr": (0x9F00_0000, 0x1000_0000),
    "adrp": (0x9F00_0000, 0x9000_0000),
    "literal": (0x3B00_0000, 0x1800_0000),  # ldr, ldrsw, prfm
    "blr": (0xFFFF_FC1F, 0xD63F_0000),
    "blra": (0xFEFF_F000, 0xD63F_0000),  # blraa, blrab, blraaz, blrabz
    "register": (0xFE00_0000, 0xD600_0000),  # br, ret, their signed forms, eret
    "brk": (0xFFE0_001F, 0xD420_0000),
    "casp": (0xBFA0_0000, 0x0820_0000),  # a subset of the next; it is complete by itself
    "exclusive": (0x3F80_0000, 0x0800_0000),  # ldxr, stxr, ldxp, stxp, and with a and l
    "clrex": (0xFFFF_F0FF, 0xD503_305F),
    "pacm": (0xFFFF_FFFF, 0xD503_24FF),  # makes the next paciasp sign with its own address
    "movprfx": (0xFFFF_FC00, 0x0420_BC00),  # works on the next instruction, no other
    "movprfx/m": (0xFF3E_E000, 0x0410_2000),
}
JOINED = {"exclusive", "clrex", "pacm", "movprfx", "movprfx/m"}
LOAD = 1 << 22  # L of exclusives
CONTEXT = 32  # instructions between ldxr and stxr at most: MAX_ATOMIC_CONTEXT_SIZE of decode-insn.c
PACISP = (0xD503_233F, 0xD503_237F)  # paciasp; pacibsp
RET = 0xD65F_0000  # ret xn
PUSH = "str {0}, [sp, -16]!"
POP = "ldr {0}, [sp], 16"
LOADS: Final[dict[tuple[int, int], int]] = {
    # (opc, V) of a literal: the same with [xn] and no offset, C6.2 and C7.2
    (0, 0): 0xB940_0000,  # ldr wt, [xn]
    (1, 0): 0xF940_0000,  # ldr xt, [xn]
    (2, 0): 0xB980_0000,  # ldrsw xt, [xn]
    (0, 1): 0xBD40_0000,  # ldr st, [xn]
    (1, 1): 0xFD40_0000,  # ldr dt, [xn]
    (2, 1): 0x3DC0_0000,  # ldr qt, [xn]
}


class _Arm64(PlainMover):
    jump_size: ClassVar[int] = 4
    trap: ClassVar[bytes] = b"\xf7\x00\x00\x00"  # udf #0xf7
    signal: ClassVar[str] = "SIGILL"
    pad: ClassVar[bytes] = b"\x5f\x24\x03\xd5"  # bti c

    def landing(self, code: bytes) -> int:
        """Any BTI."""
        return 4 if int.from_bytes(code[:4], "little") in A64.BTI else 0

    def signing(self, code: bytes) -> int:
        """paciasp, pacibsp: Arm ARM, PACIASP, "an implicit BTI C"; so is brk of any kind."""
        return 4 if int.from_bytes(code[:4], "little") in PACISP else 0

    def joined(self, before: bytes) -> bool:
        """True after an exclusive load without its store, after movprfx, after pacm."""
        insns = _words(before)
        last = _form(insns[-1]) if insns else ""
        if last in JOINED - {"exclusive", "clrex"}:
            return True
        for insn in insns[: -CONTEXT - 1 : -1]:
            if _form(insn) == "exclusive":
                return bool(insn & LOAD)
            if _form(insn) in ("clrex", "register", "blr", "blra", "bl", "b"):
                return False
        return False

    def reaches(self, at: int, to: int) -> bool:
        """imm26: 128 MB either way."""
        return -A64.REACH <= to - at < A64.REACH

    def jump(self, at: int, to: int) -> bytes:
        """``b to``."""
        return _branch(at, to, f"{at:#x}: b {to:#x}")

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
            ends = form in ("b", "bl", "blr", "register") or _always(insn, form)
            if ends and address + 4 < end:
                raise Immovable(Why.RETURNS if form in ("bl", "blr") else Why.ENDS, text)
        return Moved(end - at, out if ends else out + self.jump(to + len(out), end))


def _words(code: bytes) -> list[int]:
    whole = len(code) // 4 * 4
    return [int.from_bytes(code[i : i + 4], "little") for i in range(0, whole, 4)]


def _form(insn: int) -> str:
    """Name in FORMS of the first match; empty for a position-independent instruction."""
    return next((name for name, (mask, value) in FORMS.items() if insn & mask == value), "")


def _text(insn: int, address: int) -> str:
    """Disassemble it; refuse an invalid instruction."""
    read = disassemble("arm64", insn.to_bytes(4, "little"), address)
    if not read:
        raise Immovable(Why.UNKNOWN, f"{address:#x}: {insn:08x}")
    return f"{address:#x}: {read[0].mnemonic} {read[0].operands}".rstrip()


def _refuse(insn: int, form: str, address: int, displaced: tuple[int, int], text: str) -> None:
    """Raise Immovable for what cannot be moved anywhere."""
    if form == "brk":
        raise Immovable(Why.TRAP, text)
    if form in JOINED:
        raise Immovable(Why.JOINED, text)
    if form == "blra":
        raise Immovable(Why.SIGNED, text)
    if form == "blr" and insn >> 5 & 31 == LR:
        raise Immovable(Why.LINK, text)
    if form not in ("", "casp", "register", "blr", "adrp"):
        low, high = displaced
        if low < _target(insn, form, address) < high:
            raise Immovable(Why.INSIDE, text)


def _always(insn: int, form: str) -> bool:
    """b.al and b.nv: neither has an opposite."""
    return form == "b.cond" and insn & 0xE == 0xE


def _target(insn: int, form: str, address: int) -> int:
    """Target of an instruction with a pc-relative immediate."""
    low, bits, scale = {"b": (0, 26, 4), "bl": (0, 26, 4), "tbz": (5, 14, 4)}.get(form, (5, 19, 4))
    distance = insn >> low & (1 << bits) - 1
    if form in ("adr", "adrp"):  # immhi:immlo
        distance, bits, scale = distance << 2 | insn >> 29 & 3, 21, 1
    if distance >> bits - 1:
        distance -= 1 << bits
    if form == "adrp":
        return (address & ~0xFFF) + (distance << 12)
    return address + distance * scale


def _branch(at: int, to: int, text: str) -> bytes:
    """``b to`` at ``at``."""
    distance = to - at
    if not -A64.REACH <= distance < A64.REACH:
        raise Immovable(Why.FAR, text)
    return (A64.B | distance >> 2 & 0x03FF_FFFF).to_bytes(4, "little")


def _address(at: int, register: int, value: int, text: str) -> bytes:
    """adrp and add, eight bytes at ``at``."""
    code = address_of(at, value, f"x{register}")
    if not code:
        raise Immovable(Why.FAR, text)
    return code


def _moved(insn: int, form: str, address: int, to: int, text: str) -> bytes:
    """One instruction as encoded for address ``to``."""
    rd = insn & 31
    if form in ("", "casp", "register"):
        return insn.to_bytes(4, "little")
    if form == "blr":
        back = _address(to, LR, address + 4, text)
        return back + (RET | insn & 31 << 5).to_bytes(4, "little")
    target = _target(insn, form, address)
    if form == "b" or _always(insn, form):
        return _branch(to, target, text)
    if form == "bl":
        return _address(to, LR, address + 4, text) + _branch(to + 8, target, text)
    if form in ("b.cond", "cbz", "tbz"):
        # The inverted condition (bit 0, bit 24), skipping two instructions.
        field = 0x0007_FFE0 if form == "tbz" else 0x00FF_FFE0
        opposite = (insn ^ (1 if form == "b.cond" else 1 << 24)) & ~field | 2 << 5
        return opposite.to_bytes(4, "little") + _branch(to + 4, target, text)
    if form == "literal":
        return _literal(insn, to, target, text)
    # Discarded results: add would write sp where adr writes xzr.
    if rd == ZERO:
        return template("arm64", "nop", ("nop",))
    return _address(to, rd, target, text)[: 4 if form == "adrp" else 8]


def _literal(insn: int, to: int, target: int, text: str) -> bytes:
    """A load through a register that holds the address."""
    opc, vector, rt = insn >> 30, insn >> 26 & 1, insn & 31
    if (opc, vector) not in LOADS or (not vector and rt == ZERO):
        return template("arm64", "nop", ("nop",))  # prfm; ldr xzr
    base = 0 if vector else rt
    push = template("arm64", PUSH.format(f"x{base}"), ("str",)) if vector else b""
    pop = template("arm64", POP.format(f"x{base}"), ("ldr",)) if vector else b""
    load = (LOADS[opc, vector] | base << 5 | rt).to_bytes(4, "little")
    return push + _address(to + len(push), base, target, text) + load + pop


ARM64_MOVE: Final[Mover] = _Arm64()
