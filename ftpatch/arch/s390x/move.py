# SPDX-License-Identifier: MIT
"""s390x: instructions that run elsewhere.

    At the site            Elsewhere
    j L, jg L, jne L       jg L, jgne L
    brasl %r14, L          larl %r14, back; jg L               also bras
    basr %r14, %r1         larl %r14, back; br %r1
    basr %r13, 0           larl %r13, back
    brct %r1, L            brct %r1, 1f; jg 2f; 1: jg L; 2:    also cgrj, brxh and their like
    larl %r1, L            larl %r1, L                         also lgrl, exrl and their like

A jump is `jg`, which needs no register and goes 4 GB either way; its six bytes displace one, two or
three instructions. There is no trap (system_calls.c), and no sequence that an interruption undoes
but transactions. None of these changes the condition code.

Encodings: z/Architecture Principles of Operation (SA22-7832), chapter 7.
"""

from __future__ import annotations

from typing import ClassVar, Final

from ftpatch.arch.disassemble import disassemble
from ftpatch.arch.move import Immovable, Moved, Mover, PlainMover, Why
from ftpatch.arch.s390x.encode import CALLS, Z, branch, form_of, length
from ftpatch.core.byte_order import BIG
from ftpatch.core.columns import addresses

__all__ = ["S390X_MOVE"]

BASR, BALR, BCR = 0x0D, 0x05, 0x07
UNLIKE: Final = (0x0B, 0x0C, 0x45, 0x4D)  # bsm, bassm, bal, bas
TRANSACTIONS: Final = (0xE560, 0xE561)  # tbegin, tbeginc
TEND: Final = 0xB2F8
TRAP: Final = b"\0\1"  # of debuggers, which S390_BREAKPOINT of gdb writes, and kprobes
BRANCHES: Final = (BASR, BALR)


class _S390x(PlainMover):
    jump_size: ClassVar[int] = Z.SIZE
    trap: ClassVar[bytes] = b"\0\0"  # no operation has this code
    signal: ClassVar[str] = "SIGILL"
    pad: ClassVar[bytes] = BIG.packed(Z.NOPR, 2)

    def joined(self, before: bytes) -> bool:
        """True in a transaction: a constrained one that is aborted each time never ends."""
        at, within = 0, False
        while size := length(before[at : at + 1]):
            opcode = BIG.integer(before[at : at + 2])
            within = opcode in TRANSACTIONS or (within and opcode != TEND)
            at += size
        return within

    def reaches(self, at: int, to: int) -> bool:
        """4 GB either way, in halfwords."""
        return -Z.REACH <= to - at < Z.REACH and (to - at) % 2 == 0

    def jump(self, at: int, to: int) -> bytes:
        """``jg to``."""
        return _to(Z.BRCL_15, at, to, f"{at:#x}: jg {to:#x}")

    def move(self, code: bytes, at: int, to: int, need: int) -> Moved:
        """Move the first instructions of ``code``, and add ``jg`` back."""
        insns, end = [], at
        while end < at + need:
            insn = code[end - at : end - at + length(code[end - at : end - at + 1])]
            if not insn or end - at + len(insn) > len(code):
                raise Immovable(Why.SHORT, f"{end:#x}: end of the function")
            insns.append((end, insn))
            end += len(insn)
        out, ends = b"", False
        for address, insn in insns:
            text = _text(insn, address)
            _refuse(insn, address, (at, end), text)
            out += _moved(insn, address, to + len(out), text)
            calls = _calls(insn)
            ends = calls or _leaves(insn)
            if ends and address + len(insn) < end:
                raise Immovable(Why.RETURNS if calls else Why.ENDS, text)
        return Moved(end - at, out if ends else out + self.jump(to + len(out), end))


def _text(insn: bytes, address: int) -> str:
    """Disassemble it; refuse an invalid instruction."""
    shown = f"{address:#x}: {insn.hex()}"
    if insn == TRAP:
        raise Immovable(Why.TRAP, shown)
    read = disassemble("s390x", insn, address)
    if [one.size for one in read] != [len(insn)]:
        raise Immovable(Why.UNKNOWN, shown)
    return f"{address:#x}: {read[0].mnemonic} {read[0].operands}".rstrip()


def _refuse(insn: bytes, address: int, displaced: tuple[int, int], text: str) -> None:
    """Raise Immovable for what cannot be moved anywhere."""
    if insn[0] in UNLIKE:
        raise Immovable(Why.FORM, text)
    if BIG.integer(insn[:2]) in TRANSACTIONS:
        raise Immovable(Why.JOINED, text)
    if insn[0] in BRANCHES and insn[1] >> 4 == insn[1] & 15:
        raise Immovable(Why.LINK, text)
    form, (low, high) = form_of(insn), displaced
    if form is not None and low < form.target(insn, address) < high:
        raise Immovable(Why.INSIDE, text)


def _calls(insn: bytes) -> bool:
    """Return whether it leaves a return address and goes elsewhere."""
    if insn[0] in BRANCHES:
        return insn[1] & 15 != 0
    form = form_of(insn)
    return form is not None and form.name in CALLS


def _leaves(insn: bytes) -> bool:
    """Return whether it always goes elsewhere: `br`, `b`, `j`, `jg`."""
    if insn[0] == BCR:
        return insn[1] >> 4 == 15 and insn[1] & 15 != 0
    if insn[0] == 0x47:  # bc
        return insn[1] >> 4 == 15
    form = form_of(insn)
    return form is not None and form.name in ("brc", "brcl") and insn[1] >> 4 == 15


def _to(opcode: int, at: int, to: int, text: str) -> bytes:
    """An instruction of six bytes that leads to, or is about, an address."""
    if not -Z.REACH <= to - at < Z.REACH:
        raise Immovable(Why.FAR, text)
    return branch(opcode, addresses(at), addresses(to)).tobytes()


def _moved(insn: bytes, address: int, to: int, text: str) -> bytes:
    """One instruction as encoded for address ``to``."""
    form, back = form_of(insn), address + len(insn)
    larl = Z.LARL | insn[1] & 0xF0
    if insn[0] in BRANCHES:  # basr, balr
        out = _to(larl, to, back, text)
        return out + bytes([BCR, 0xF0 | insn[1] & 15]) if insn[1] & 15 else out
    if form is None:
        return insn
    target = form.target(insn, address)
    if form.name in CALLS:
        return _to(larl, to, back, text) + _to(Z.BRCL_15, to + Z.SIZE, target, text)
    if form.name == "brc":
        return _to(Z.BRCL_0 | insn[1] & 0xF0, to, target, text)
    if form.wide and form.name != "brcth":
        return _to(BIG.integer(insn[:2]), to, target, text)
    # It counts or compares, and goes 64 KB far: over a jump around the one that leads there.
    over, after = len(insn) + Z.SIZE, len(insn) + 2 * Z.SIZE
    around = _to(Z.BRCL_15, to + len(insn), to + after, text)
    return form.leading(insn, over) + around + _to(Z.BRCL_15, to + over, target, text)


S390X_MOVE: Final[Mover] = _S390x()
