# SPDX-License-Identifier: MIT
"""Ready-made images of architectures that the samples do not have, and containers around memory."""

from __future__ import annotations

import random
import struct

from tests.support.boot_images import ipl_image, zimage
from tests.support.boxes import PACKERS, sized
from tests.support.elf_writer import (
    PF_R,
    PF_W,
    PF_X,
    SHF_ALLOC,
    SHF_EXECINSTR,
    SHF_WRITE,
    Image,
    Section,
    Segment,
    Symbol,
)
from tests.support.images import FUNCTIONS, STEP, symbols_at
from tests.support.loose_forms import Form

__all__ = ["BASE", "CROSS_BOXES", "CROSS_FORMS", "CROSS_PROGRAMS", "cross_box", "cross_program"]

BASE, TABLE = 0x1_0000, 0x2_0000
"""Addresses of a program's text, and of its table."""
PAD_TABLE = "__patchable_function_entries"
CROSS_PROGRAMS = {
    # (machine, bits, big-endian, pad, return, flags, bit 0 of functions)
    "s390x": (22, 64, True, "070007000700", "07fe", 0, 0),  # nopr (x3); br %r14
    "ppc64le": (21, 64, False, "0000006000000060", "2000804e", 2, 0),  # nop (x2); blr
    "arm": (40, 32, False, "00f020e300f020e3", "1eff2fe1", 0x0500_0000, 0),  # nop (x2); bx lr
    "thumb": (40, 32, False, "00bf00bf00bf", "7047", 0x0500_0000, 1),  # nop (x3); bx lr
    "loongarch64": (258, 64, False, "0000400300004003", "2000004c", 0x43, 0),  # nop (x2); ret
}


def cross_program(name: str) -> Image:
    """A static program with a pad at every entry, and the section of the table."""
    machine, bits, big, pad, ret, flags, bit = CROSS_PROGRAMS[name]
    code = bytes.fromhex(pad + ret).ljust(STEP, b"\0")
    text = bytes.fromhex(ret).ljust(STEP, b"\0") + code * len(FUNCTIONS)
    places = symbols_at(BASE, FUNCTIONS)
    image = Image(machine, bits, big, header={"e_flags": flags})
    image.symbols = [Symbol("ftrace_caller", BASE + bit, 8)]
    image.symbols += [Symbol(function, at + bit, STEP) for function, at in places.items()]
    table = image.table(places.values())
    image.sections = [
        Section(".text", text, BASE, flags=SHF_ALLOC | SHF_EXECINSTR),
        Section(PAD_TABLE, table, TABLE, flags=SHF_ALLOC | SHF_WRITE, align=bits // 8),
    ]
    image.segments = [Segment((".text",), PF_R | PF_X), Segment((PAD_TABLE,), PF_R | PF_W)]
    return image


CROSS_FORMS = {
    "s390x": Form(
        "s390x",
        22,
        "__mcount_loc",
        bytes.fromhex("c00400000000"),  # brcl 0, .
        22,  # R_390_64
        20,  # R_390_PLT32DBL
        bytes.fromhex("c0e500000000"),  # brasl %r14, .
        bytes.fromhex("07fe"),  # br %r14
        bytes.fromhex("c00500000000"),  # brasl %r0, .
        bytes.fromhex("c00400000000"),
        place=2,
        neutral=0,  # R_390_NONE
        field=2,
        addend=2,
        big=True,
    ),
    "ppc64le": Form(
        "ppc64le",
        21,
        PAD_TABLE,
        bytes.fromhex("0000006000000060"),  # nop (x2)
        38,  # R_PPC64_ADDR64
        10,  # R_PPC64_REL24
        bytes.fromhex("0100004800000060"),  # bl .; nop
        bytes.fromhex("2000804e"),  # blr
        bytes.fromhex("a602087c01000048"),  # mflr r0; bl .
        bytes.fromhex("0000006000000060"),
        place=4,
        neutral=109,  # R_PPC64_TOCSAVE
        lead=4,
    ),
    "loongarch64": Form(
        "loongarch64",
        258,
        PAD_TABLE,
        bytes.fromhex("0000400300004003"),  # nop (x2)
        2,  # R_LARCH_64
        66,  # R_LARCH_B26
        bytes.fromhex("00000054"),  # bl .
        bytes.fromhex("2000004c"),  # ret
        bytes.fromhex("2c00150000000054"),  # move $t0, $ra; bl .
        bytes.fromhex("0000400300004003"),
        place=4,
        neutral=0,  # R_LARCH_NONE
    ),
}
"""Modules of these: see loose_forms.py."""


def _memory(order: str, word: int, base: int) -> bytes:
    """A kernel's memory, of which no more is known than where it is linked: strings, pointers."""
    rng = random.Random(word)
    text = b"".join(b"message number %d\0" % number for number in range(400))
    starts = [at + 1 for at, byte in enumerate(text[:-1]) if not byte]
    kind = {4: "I", 8: "Q"}[word]
    pointers = [base + 0x1000 + rng.choice(starts) for _ in range(600)]
    held = bytes(0x1000) + text.ljust(0x4000, b"\0")
    return held + struct.pack(f"{order}{len(pointers)}{kind}", *pointers) + bytes(1 << 20)


CROSS_BOXES = ("bzImage-gzip", "bzImage-xz", "zImage-gzip", "zImage-xz")


def cross_box(name: str) -> bytes:
    """A kernel as it is installed on IBM Z or 32-bit ARM, which has no table."""
    container, _, kind = name.partition("-")
    if container == "bzImage":
        places = [0x10_0000 + 8 * number for number in range(600)]
        return ipl_image(sized(kind, _memory(">", 8, 0x10_0000)), places)
    memory = _memory("<", 4, 0xC000_8000)
    stream = PACKERS[kind](memory)
    return zimage(stream[:-4] if kind == "gzip" else stream, len(memory))
