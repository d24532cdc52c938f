# SPDX-License-Identifier: MIT
"""s390x: how moved instructions, detours and the PLT read; GNU as is the oracle."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from ftpatch.arch.branches import branches_of
from ftpatch.arch.detour import detour_of
from ftpatch.arch.disassemble import disassemble
from ftpatch.arch.move import Immovable, Why, mover_of
from ftpatch.arch.plt import plt_entries
from ftpatch.arch.returns_twice import returns_twice
from tests.support.gnu import link_at
from tests.support.moves import LIBRARIES, library
from tests.support.sampling import scaled

MOVER = mover_of("s390x")
ARCH = "s390x"
AT, TO, TARGET = 0x40_1000, 0x46_2000, 0x40_4F34
FORMS = [
    # at the site; elsewhere
    *((text, f"{text}; jg {{back}}") for text in (
        "stmg %r6, %r15, 48(%r15)", "lay %r15, -160(%r15)", "lgr %r1, %r2", "ltr %r2, %r2",
        "nopr", "svc 1", "bner %r14", "bc 8, 16(%r3)",
    )),
    *((text, text) for text in ("br %r14", "br %r1", "b 0(%r3)")),
    ("jg target", "jg target"),
    ("j .+0x40", "jg {at}+0x40"),
    ("jne .+0x40", "jgne {at}+0x40; jg {back}"),
    ("jgh target", "jgh target; jg {back}"),
    ("brcl 0, target", "brcl 0, target; jg {back}"),
    ("brasl %r14, target", "larl %r14, {back}; jg target"),
    ("bras %r13, .+0x40", "larl %r13, {back}; jg {at}+0x40"),
    ("basr %r14, %r1", "larl %r14, {back}; br %r1"),
    ("balr %r14, %r1", "larl %r14, {back}; br %r1"),
    ("basr %r13, 0", "larl %r13, {back}; jg {back}"),
    ("brctg %r3, .+0x40", "brctg %r3, .+10; jg .+12; jg {at}+0x40; jg {back}"),
    ("brxle %r2, %r4, .+0x40", "brxle %r2, %r4, .+10; jg .+12; jg {at}+0x40; jg {back}"),
    ("cgrjne %r2, %r4, .+0x40", "cgrjne %r2, %r4, .+12; jg .+12; jg {at}+0x40; jg {back}"),
    ("clgijh %r2, 9, .-0x40", "clgijh %r2, 9, .+12; jg .+12; jg {at}-0x40; jg {back}"),
    *((f"{text} target", f"{text} target; jg {{back}}") for text in (
        "larl %r1,", "lgrl %r3,", "lrl %r3,", "stgrl %r3,", "exrl %r2,", "cgrl %r2,", "pfdrl 1,",
    )),
]  # fmt: skip
REFUSED = [
    (".2byte 0x0001", Why.TRAP),
    (".2byte 0x0000", Why.UNKNOWN),
    ("basr %r14, %r14", Why.LINK),
    ("bassm %r14, %r1", Why.FORM),
    ("bas %r14, 0(%r1)", Why.FORM),
    ("tbegin 0(%r0), 0xff0c", Why.JOINED),
    ("j .+2; nopr; nopr", Why.INSIDE),
    ("j .+8; nopr", Why.ENDS),
    ("br %r14; nopr; nopr", Why.ENDS),
    ("basr %r14, %r1; nopr; nopr", Why.RETURNS),
    ("nopr; nopr", Why.SHORT),
]


def _assembled(*texts: str, at: int = AT) -> list[bytes]:
    return link_at(ARCH, [(at + 128 * i, text, TARGET) for i, text in enumerate(texts)])


def test_every_form_reads_as_gnu_as_has_it() -> None:
    originals = _assembled(*(text for text, _ in FORMS))
    wanted = []
    for i, ((_, slot), code) in enumerate(zip(FORMS, originals, strict=True)):
        site = AT + 128 * i
        names = {"back": site + len(code), "at": site}
        held = {name: f"target-{TARGET - value}" for name, value in names.items()}
        wanted.append(slot.format(**held))
    for i, (code, expected) in enumerate(zip(originals, _assembled(*wanted, at=TO), strict=True)):
        moved = MOVER.move(code + b"\xff" * 16, AT + 128 * i, TO + 128 * i, len(code))
        assert moved.size == len(code)
        assert moved.code == expected, FORMS[i]
        far = MOVER.move(code, AT + 128 * i, TO + 0x2000_0000, 1)
        assert len(far.code) == len(moved.code), "the length does not depend on the place"


@pytest.mark.parametrize(("text", "why"), REFUSED, ids=[text for text, _ in REFUSED])
def test_what_cannot_be_moved(text: str, why: Why) -> None:
    (code,) = _assembled(text)
    with pytest.raises(Immovable) as caught:
        MOVER.move(code, AT, TO, 6 if ";" in text else 1)
    assert caught.value.why == why


def test_reach() -> None:
    at = 0x2_0000_0000
    far = 1 << 32
    for to in (at + far - 2, at - far, at + 6):
        assert MOVER.reaches(at, to)
        (insn,) = disassemble(ARCH, MOVER.jump(at, to), at)
        assert insn.target == to and insn.size == 6
    for to in (at + far, at - far - 2):
        assert not MOVER.reaches(at, to)
        with pytest.raises(Immovable, match="out of range"):
            MOVER.jump(at, to)


def test_what_nothing_may_come_between() -> None:
    begin, end, nop = _assembled("tbegin 0, 0", "tend", "nopr")
    assert MOVER.joined(begin) and MOVER.joined(nop + begin + nop)
    assert not MOVER.joined(begin + nop + end)
    assert not MOVER.joined(nop) and not MOVER.joined(b"")


@pytest.mark.parametrize("distance", [-0x20_0000, -16, 0x40, 0x7000_0000])
def test_detours(distance: int) -> None:
    near = detour_of(ARCH)
    for place in (0, 1, 0x7FFF, 0x8000, 0x1234_5678):
        around = (
            f"lay %r15, -16(%r15); stmg %r0, %r1, 0(%r15); lgfi %r0, {place}; {{}}; "
            "lmg %r0, %r1, 0(%r15); la %r15, 16(%r15)"
        )
        call, load = "brasl %r1, target", "lgrl %r1, target; basr %r1, %r1"
        for detour, text in ((near, call), (near.far, load)):
            (wanted,) = link_at(ARCH, [(AT, around.format(text), AT + distance)])
            code = detour.make(AT, place, AT + distance)
            assert len(code) == detour.size and code == wanted


def test_entries_of_a_plt() -> None:
    (code,) = _assembled("nopr; larl %r1, target; lg %r1, 0(%r1); br %r1; basr %r1, 0")
    found = plt_entries(ARCH, np.frombuffer(code, np.uint8), AT, 16, 0)
    assert [column.tolist() for column in found] == [[AT + 2], [AT + 2], [TARGET]]


@pytest.mark.parametrize("name", LIBRARIES)
def test_every_branch_is_found(name: str) -> None:
    """Of a sample of functions: the targets that Capstone reads."""
    branches = branches_of(ARCH)
    functions = random.Random(5).sample(library(ARCH, name).functions, scaled(300, 60))
    counted: Counter[str] = Counter()
    for function in functions:
        code = np.frombuffer(function.code, np.uint8)
        found = set(branches.long_targets(code, function.address).tolist())
        assert not len(branches.short_targets(code, function.address))
        for insn in disassemble(ARCH, function.code, function.address):
            if insn.target is not None:
                counted[insn.mnemonic.split()[0]] += 1
                assert insn.target in found, insn
    assert {"brasl", "j", "je"} <= set(counted)


def test_functions_that_return_twice() -> None:
    """Of glibc, by its symbols' names."""
    known = library(ARCH, "libc.so.6")
    code = {one.address: one.code for one in known.functions}
    with Path("/usr/s390x-linux-gnu/lib/libc.so.6").open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym")
        names = {one.name: one["st_value"] for one in symbols.iter_symbols() if one["st_value"]}
    twice = {
        name
        for name, at in names.items()
        if at in code and returns_twice(ARCH, at, lambda at: code.get(at, b"")[:512])
    }
    assert {"setjmp", "_setjmp", "__sigsetjmp", "getcontext", "vfork"} & set(names) <= twice
    assert not {"swapcontext", "longjmp", "printf", "fork", "malloc", "memcpy", "qsort"} & twice
    assert len(twice) < 20, twice
