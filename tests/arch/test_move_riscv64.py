# SPDX-License-Identifier: MIT
"""riscv64: how moved instructions, detours and the PLT read; GNU as is the oracle."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from ftpatch.arch.branches import branches_of
from ftpatch.arch.detour import detour_of
from ftpatch.arch.disassemble import disassemble
from ftpatch.arch.kernel_text import kernel_mover_of
from ftpatch.arch.move import Immovable, Why, mover_of
from ftpatch.arch.plt import plt_entries
from tests.support.gnu import link_at
from tests.support.moves import LIBRARIES, library
from tests.support.sampling import scaled

MOVER, KERNEL = mover_of("riscv64"), kernel_mover_of("riscv64")
ARCH = "riscv64"
AT, TO, TARGET = 0x40_1000, 0x46_2000, 0x40_4F34
OPPOSITES = {"beq": "bne", "bne": "beq", "blt": "bge", "bge": "blt", "bltu": "bgeu", "bgeu": "bltu"}
PLAIN = ".option norvc; "


def _address(register: str, symbol: str) -> str:
    return f"lla {register}, {symbol}"


FORMS = [
    # at the site; elsewhere, without the C extension but for what stays the same
    *((text, f"{text}; " + PLAIN + "j {back}") for text in (
        "c.addi16sp sp, -32", "c.sdsp ra, 8(sp)", "c.li a0, 5", "c.nop", "c.mv a0, a1",
        PLAIN + "addi sp, sp, -64", "lui a0, 0x12345", "amoadd.w a0, a1, (a2)", "ecall", "fence",
        "fld fa0, 8(sp)", "rdtime a0", PLAIN + "sd ra, 8(sp)",
    )),
    *((text, text) for text in ("c.jr ra", "c.jr a5", "jr 16(t1)")),
    (PLAIN + "j target", PLAIN + "j target"),
    ("c.j .+0x40", PLAIN + "j {at}+0x40"),
    (PLAIN + "jal target", PLAIN + _address("ra", "{back}") + "; j target"),
    (PLAIN + "jal t0, target", PLAIN + _address("t0", "{back}") + "; j target"),
    ("call target", PLAIN + _address("ra", "{back}") + "; j target"),
    ("c.jalr a5", PLAIN + _address("ra", "{back}") + "; jr a5"),
    ("jalr t0, 8(s3)", PLAIN + _address("t0", "{back}") + "; jr 8(s3)"),
    *((PLAIN + f"{a} a0, s3, .+0x60", PLAIN + f"{b} a0, s3, .+8; j {{at}}+0x60; j {{back}}")
      for a, b in OPPOSITES.items()),
    ("c.beqz s0, .+0x60", PLAIN + "bnez s0, .+8; j {at}+0x60; j {back}"),
    ("c.bnez s1, .+0x40", PLAIN + "beqz s1, .+8; j {at}+0x40; j {back}"),
    ("c.bnez a5, .-0x60", PLAIN + "beqz a5, .+8; j {at}-0x60; j {back}"),
    ("1: auipc a0, %pcrel_hi(target)", PLAIN + _address("a0", "{page}") + "; j {back}"),
    ("auipc zero, 1", PLAIN + "auipc zero, 1; j {back}"),
]  # fmt: skip
REFUSED = [
    ("c.ebreak", Why.TRAP),
    (PLAIN + "ebreak", Why.TRAP),
    ("c.unimp", Why.UNKNOWN),
    (".4byte 0xffffffff", Why.UNKNOWN),
    ("jalr ra", Why.LINK),
    ("c.jalr ra", Why.LINK),
    ("lr.w a0, (a1)", Why.JOINED),
    ("lr.d.aqrl a0, (a1)", Why.JOINED),
    ("sc.d a2, a0, (a1)", Why.JOINED),
    ("c.j .+2; c.nop", Why.INSIDE),
    ("c.jr ra; c.nop", Why.ENDS),
    ("c.jalr a5; c.nop", Why.RETURNS),
    ("c.nop", Why.SHORT),
]


def _assembled(*texts: str, at: int = AT) -> list[bytes]:
    pieces = [(at + 128 * i, f".option rvc; {text}", TARGET) for i, text in enumerate(texts)]
    return link_at(ARCH, pieces)


def test_every_form_reads_as_gnu_as_has_it() -> None:
    originals = _assembled(*(text for text, _ in FORMS))
    wanted = []
    for i, ((_, slot), code) in enumerate(zip(FORMS, originals, strict=True)):
        site = AT + 128 * i
        page = site + ((TARGET - site + 0x800) & ~0xFFF)
        names = {"back": site + len(code), "at": site, "page": page}
        held = {name: f"target-{TARGET - value}" for name, value in names.items()}
        wanted.append(slot.format(**held))
    for i, (code, expected) in enumerate(zip(originals, _assembled(*wanted, at=TO), strict=True)):
        moved = MOVER.move(code + b"\xff" * 16, AT + 128 * i, TO + 128 * i, len(code))
        assert moved.size == len(code)
        assert moved.code == expected, FORMS[i]
        far = MOVER.move(code, AT + 128 * i, TO + 0x2_0000, 1)
        assert len(far.code) == len(moved.code), "the length does not depend on the place"


def test_in_a_kernel_jumps_go_through_gp() -> None:
    """Every `j` becomes a pair, farther than a jal reaches, and branches skip eight bytes."""
    slots = [slot.replace(".+8;", ".+12;").replace("; j ", "; tail ") for _, slot in FORMS]
    slots = [
        slot.replace(PLAIN + "j ", PLAIN + "tail ").replace("tail ", "jump ") for slot in slots
    ]
    originals, wanted = _assembled(*(text for text, _ in FORMS)), []
    for i, (slot, code) in enumerate(zip(slots, originals, strict=True)):
        site = AT + 128 * i
        page = site + ((TARGET - site + 0x800) & ~0xFFF)
        held = {"back": site + len(code), "at": site, "page": page}
        named = {name: f"target-{TARGET - value}" for name, value in held.items()}
        pieces = slot.format(**named).split("; ")
        wanted.append("; ".join(f"{one}, gp" if one.startswith("jump ") else one for one in pieces))
    place = TO + 0x3000_0000
    for i, (code, expected) in enumerate(
        zip(originals, _assembled(*wanted, at=place), strict=True)
    ):
        moved = KERNEL.move(code + b"\xff" * 16, AT + 128 * i, place + 128 * i, len(code))
        assert (moved.size, moved.code) == (len(code), expected), FORMS[i]
    (jump,) = _assembled(PLAIN + f"jump target-{TARGET - place}, gp")
    assert KERNEL.jump(AT, place) == jump and len(jump) == KERNEL.jump_size
    assert not KERNEL.reaches(AT, AT + (1 << 31))
    with pytest.raises(Immovable, match="out of range"):
        KERNEL.jump(AT, AT + (1 << 31))


@pytest.mark.parametrize(("text", "why"), REFUSED, ids=[text for text, _ in REFUSED])
def test_what_cannot_be_moved(text: str, why: Why) -> None:
    (code,) = _assembled(text)
    with pytest.raises(Immovable) as caught:
        MOVER.move(code, AT, TO, 4 if ";" in text or why is Why.SHORT else 1)
    assert caught.value.why == why


def test_reach() -> None:
    far = 1 << 20
    for to in (AT + far - 2, AT - far, AT + 2):
        assert MOVER.reaches(AT, to)
        (insn,) = disassemble(ARCH, MOVER.jump(AT, to), AT)
        assert insn.target == to and insn.size == 4
    for to in (AT + far, AT - far - 2):
        assert not MOVER.reaches(AT, to)
        with pytest.raises(Immovable, match="out of range"):
            MOVER.jump(AT, to)


def test_what_nothing_may_come_between() -> None:
    lr, sc, nop, ret = _assembled("lr.w a0, (a1)", "sc.w a2, a0, (a1)", "c.nop", "c.jr ra")
    assert MOVER.joined(lr) and MOVER.joined(nop + lr + nop + nop)
    assert not MOVER.joined(lr + nop + sc)
    assert not MOVER.joined(lr + ret + nop)
    assert not MOVER.joined(nop) and not MOVER.joined(b"")
    assert not MOVER.joined(lr + nop * 16), "no such loop is that long"


@pytest.mark.parametrize("distance", [-0x8_0000, -16, 0x40, 0x7000_0000])
def test_detours(distance: int) -> None:
    near = detour_of(ARCH)
    for place in (0, 1, 0x7FF, 0x800, 0xFFFF, 0x1234_5FFF):
        around = (
            PLAIN + f"addi sp, sp, -16; sd ra, 0(sp); sd t0, 8(sp); lui t0, {place + 0x800 >> 12}; "
            f"addiw t0, t0, {(place + 0x800 & 0xFFF) - 0x800}; {{}}; "
            "ld ra, 0(sp); ld t0, 8(sp); addi sp, sp, 16"
        )
        call, load = "call target", "1: auipc ra, %pcrel_hi(target); ld ra, %pcrel_lo(1b)(ra)"
        for detour, text in ((near, call), (near.far, f"{load}; jalr ra")):
            (wanted,) = link_at(ARCH, [(AT, around.format(text), AT + distance)])
            code = detour.make(AT, place, AT + distance)
            assert len(code) == detour.size and code == wanted


def test_entries_of_a_plt() -> None:
    entry = PLAIN + "1: auipc t3, %pcrel_hi(target); ld t3, %pcrel_lo(1b)(t3); jalr t1, t3; nop"
    plain, guarded = _assembled(entry, PLAIN + "auipc zero, 0; " + entry.replace(PLAIN, ""))
    for code, lead, at in ((plain, 0, AT), (guarded, 4, AT + 128)):
        found = plt_entries(ARCH, np.frombuffer(code, np.uint8), at, 16, 0)
        assert [column.tolist() for column in found] == [[at], [at + lead], [TARGET]]


@pytest.mark.parametrize("name", LIBRARIES)
def test_every_branch_is_found(name: str) -> None:
    """Of a sample of functions: the targets that Capstone reads."""
    branches = branches_of(ARCH)
    functions = random.Random(5).sample(library(ARCH, name).functions, scaled(300, 60))
    counted: Counter[str] = Counter()
    for function in functions:
        code = np.frombuffer(function.code, np.uint8)
        far = set(branches.long_targets(code, function.address).tolist())
        near = set(branches.short_targets(code, function.address).tolist())
        for insn in disassemble(ARCH, function.code, function.address):
            if insn.target is not None:
                counted[insn.mnemonic.split()[0]] += 1
                short = insn.mnemonic in ("c.beqz", "c.bnez")
                assert insn.target in (near if short else far), insn
    assert {"c.beqz", "c.j", "jal", "bltu"} <= set(counted)
