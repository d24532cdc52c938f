# SPDX-License-Identifier: MIT
"""Instructions of z/Architecture as numbers, over columns: one branch reaches anywhere within 4 GB.

    brasl r0, addr   c0 05 disp32    r0 = the next instruction, go to addr
    brasl r1, addr   c0 15 disp32    the same with r1
    brcl  m, addr    c0 m4 disp32    go to addr if m allows it: 0 never, 15 always

``disp32`` is signed and counts halfwords from the instruction's own address. Keystone takes the
distance from the wrong address, so there are no templates here: the tests compare with GNU as and
Capstone. Encodings: z/Architecture Principles of Operation (SA22-7832), chapter 7, "BRANCH RELATIVE
AND SAVE LONG", "BRANCH RELATIVE ON CONDITION LONG", "LOAD ADDRESS RELATIVE LONG".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.contract import U8, U64
from ftpatch.core.byte_order import BIG

__all__ = [
    "CALLS",
    "EXECUTING",
    "LONG_BRANCHES",
    "SHORT_BRANCHES",
    "Form",
    "Z",
    "branch",
    "branch_target",
    "form_of",
    "length",
    "opcodes",
]

HALF: Final = np.int64(2)


class Z:
    """Instructions (the first halfword of those that are followed by a distance), and limits."""

    SIZE = 6
    BRASL_R0 = 0xC005  # brasl %r0, addr
    BRASL_R1 = 0xC015  # brasl %r1, addr
    BRASL_R14 = 0xC0E5  # brasl %r14, addr
    BRCL_0 = 0xC004  # brcl 0, addr: jgnop
    BRCL_15 = 0xC0F4  # brcl 15, addr: jg
    LARL = 0xC000  # larl %r0, addr
    LARL_R1 = 0xC010  # larl %r1, addr
    LGRL_R1 = 0xC418  # lgrl %r1, addr
    LG_R1 = bytes.fromhex("e310 1000 0004 07f1")  # lg %r1, 0(%r1); br %r1
    NOPR = 0x0700  # nopr %r0, 2 bytes
    NOP = bytes.fromhex("4700 0000")  # nop: bc 0, 0
    REACH = 1 << 32
    PADS = np.array(
        [
            list(bytes.fromhex("c004 0000 0000")),  # brcl 0, .
            list(bytes.fromhex("0700 0700 0700")),  # nopr; nopr; nopr
        ],
        np.uint8,
    )


def opcodes(code: U8) -> NDArray[np.uint16]:
    """The first halfword of each row."""
    return BIG.unsigned(np.ascontiguousarray(code[:, :2]), 2).astype(np.uint16)


def branch(opcode: int | NDArray[np.integer], ip: U64, addr: U64) -> U8:
    """The instruction at each ip that leads to ``addr``, uint8[n, 6]; one opcode, or n."""
    code = np.empty((len(ip), Z.SIZE), np.uint8)
    code[:, :2] = BIG.rows(np.broadcast_to(opcode, len(ip)), 2)
    code[:, 2:] = BIG.rows((addr - ip).view(np.int64) // HALF, 4)
    return code


def branch_target(code: U8, ip: U64) -> U64:
    """Targets of instructions at ``ip``, uint64[n]."""
    distance = BIG.signed(np.ascontiguousarray(code[:, 2:6]), 4) * HALF
    return ip + distance.view(np.uint64)


@dataclass(frozen=True, slots=True)
class Form:
    """An instruction whose operand is an address, relative to its own. ``first``: the first
    halfword under ``mask``; ``last``: the sixth byte, None if that does not count; ``wide``: the
    distance has 32 bits, else 16; both begin at the third byte, and count halfwords."""

    name: str
    first: int
    mask: int
    last: int | None = None
    wide: bool = False

    def matches(self, insn: bytes) -> bool:
        """Test an instruction's bytes."""
        first = BIG.integer(insn[:2]) & self.mask == self.first
        return first and (self.last is None or insn[5:6] == bytes([self.last]))

    def target(self, insn: bytes, address: int) -> int:
        """The address that an instruction at another one is about."""
        return address + 2 * int(
            BIG.signed(insn[2 : 6 if self.wide else 4], 4 if self.wide else 2)[0]
        )

    def leading(self, insn: bytes, distance: int) -> bytes:
        """The same instruction with another distance (bytes)."""
        size = 4 if self.wide else 2
        return insn[:2] + BIG.packed(distance // 2, size) + insn[2 + size :]


CALLS: Final = ("bras", "brasl")
RI, RIL = 0xFF0F, 0xFF0F  # a register or a mask in the second byte's upper half
SHORT_BRANCHES: Final = (
    *(Form(name, 0xA700 | n, RI) for n, name in enumerate(("brc", "bras", "brct", "brctg"), 4)),
    *(Form(name, n << 8, 0xFF00) for n, name in ((0x84, "brxh"), (0x85, "brxle"))),
    *(
        Form(name, 0xEC00, 0xFF00, last=n)
        for n, name in {
            0x44: "brxhg",
            0x45: "brxlg",
            0x64: "cgrj",
            0x65: "clgrj",
            0x76: "crj",
            0x77: "clrj",
            0x7C: "cgij",
            0x7D: "clgij",
            0x7E: "cij",
            0x7F: "clij",
        }.items()
    ),
)
LONG_BRANCHES: Final = (
    Form("brcl", 0xC004, RIL, wide=True),
    Form("brasl", 0xC005, RIL, wide=True),
    Form("brcth", 0xCC06, RIL, wide=True),
)
EXECUTING: Final = (
    Form("larl", 0xC000, RIL, wide=True),
    Form("exrl", 0xC600, RIL, wide=True),
)
OTHERS: Final = (
    *(
        Form(name, 0xC400 | n, RIL, wide=True)
        for n, name in {
            0x2: "llhrl",
            0x4: "lghrl",
            0x5: "lhrl",
            0x6: "llghrl",
            0x7: "sthrl",
            0x8: "lgrl",
            0xB: "stgrl",
            0xC: "lgfrl",
            0xD: "lrl",
            0xE: "llgfrl",
            0xF: "strl",
        }.items()
    ),
    *(
        Form(name, 0xC600 | n, RIL, wide=True)
        for n, name in {
            0x2: "pfdrl",
            0x4: "cghrl",
            0x5: "chrl",
            0x6: "clghrl",
            0x7: "clhrl",
            0x8: "cgrl",
            0xA: "clgrl",
            0xC: "cgfrl",
            0xD: "crl",
            0xE: "clgfrl",
            0xF: "clrl",
        }.items()
    ),
)


def length(first: bytes) -> int:
    """Bytes of the instruction that begins with a byte, 0 without one: its upper two bits tell."""
    return (2, 4, 4, 6)[first[0] >> 6] if first else 0


def form_of(insn: bytes) -> Form | None:
    """The form of an instruction; None for one without such an operand."""
    every = (*SHORT_BRANCHES, *LONG_BRANCHES, *EXECUTING, *OTHERS)
    return next((form for form in every if form.matches(insn)), None)
