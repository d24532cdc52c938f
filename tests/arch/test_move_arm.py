# SPDX-License-Identifier: MIT
"""32-bit ARM: what is not moved, detours, and branches, in both instruction sets; GNU as and
Capstone are the oracles."""

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
from tests.support.moves import library
from tests.support.sampling import scaled

MOVER = mover_of("arm")
AT, TO = 0x800_1000, 0x806_2000
SECOND = {"arm": 0, "thumb": 1}
REFUSED = [
    *(("arm", text, why) for text, why in (
        ("bkpt #0", Why.TRAP), ("udf #16", Why.TRAP), (".word 0xfffffff0", Why.UNKNOWN),
        ("ldr pc, [pc, #8]", Why.FORM), ("ldrls pc, [pc, r3, lsl #2]", Why.FORM),
        ("add pc, pc, r2", Why.FORM), ("bx pc", Why.FORM), ("blx lr", Why.LINK),
        ("push {r4, pc}", Why.FORM), ("str pc, [r3]", Why.FORM), ("subs pc, lr, #4", Why.FORM),
        ("ldrex r0, [r1]", Why.JOINED), ("strexd r0, r2, r3, [r1]", Why.JOINED),
        ("clrex", Why.JOINED), ("cmpeq pc, r0", Why.FORM), ("addseq r0, pc, r1", Why.FORM),
        ("setend be", Why.FORM), ("add sp, sp, pc", Why.FORM),
    )),
    *(("thumb", text, why) for text, why in (
        ("bkpt #0", Why.TRAP), ("udf #1", Why.TRAP), ("udf.w #1", Why.TRAP),
        ("it eq; moveq r0, #1", Why.JOINED), ("ite lt; movlt r0, r1; movge r0, r2", Why.JOINED),
        ("tbb [pc, r0]", Why.FORM), ("tbh [pc, r0, lsl #1]", Why.FORM), ("add pc, r0", Why.FORM),
        ("ldr.w pc, .+0x40", Why.FORM), ("bx pc", Why.FORM), ("blx lr", Why.LINK),
        ("ldrex r0, [r1]", Why.JOINED), ("strexb r0, r2, [r1]", Why.JOINED),
        ("ldrexd r0, r1, [r2]", Why.JOINED), ("clrex", Why.JOINED), ("setend le", Why.FORM),
        ("subs pc, lr, #4", Why.FORM), ("add sp, pc", Why.FORM), (".short 0x4578", Why.FORM),
    )),
]  # fmt: skip
TOGETHER = [
    ("b.n .+2; nop", Why.INSIDE),
    ("bx lr; nop", Why.ENDS),
    ("blx r3; nop", Why.RETURNS),
    ("cbz r0, .+4; nop.w", Why.INSIDE),
    ("nop", Why.SHORT),
    ("nop; it eq; moveq r0, #1", Why.JOINED),
]


def _assembled(mode: str, *texts: str, target: int = AT + 0x1000) -> list[bytes]:
    pieces = [(AT + 128 * i, f".syntax unified; {text}", target) for i, text in enumerate(texts)]
    return link_at(mode, pieces)


@pytest.mark.parametrize("mode", SECOND)
def test_what_cannot_be_moved(mode: str) -> None:
    cases = [(text, why) for one, text, why in REFUSED if one == mode]
    codes = _assembled(mode, *(text for text, _ in cases))
    for code, (text, why) in zip(codes, cases, strict=True):
        with pytest.raises(Immovable) as caught:
            MOVER.move(code, AT | SECOND[mode], TO, 1)
        assert caught.value.why == why, text


def test_what_cannot_be_moved_together() -> None:
    codes = _assembled("thumb", *(text for text, _ in TOGETHER))
    for i, (code, (text, why)) in enumerate(zip(codes, TOGETHER, strict=True)):
        with pytest.raises(Immovable) as caught:
            MOVER.move(code, AT + 128 * i | 1, TO, 4)
        assert caught.value.why == why, text


def test_which_set_is_unknown() -> None:
    with pytest.raises(Immovable, match="which instruction set"):
        mover_of("arm", lambda at: None).move(bytes(8), AT, TO, 4)


@pytest.mark.parametrize("mode", SECOND)
def test_reach(mode: str) -> None:
    second = SECOND[mode]
    far, ahead, step = (1 << 24, 4, 2) if second else (1 << 25, 8, 4)
    for to in (AT + ahead + far - step, AT + ahead - far):
        assert MOVER.reaches(AT | second, to)
        (insn,) = disassemble("arm", MOVER.jump(AT | second, to), AT | second)
        assert insn.target == to and insn.size == 4
    for to in (AT + ahead + far, AT + ahead - far - step):
        assert not MOVER.reaches(AT | second, to)
        with pytest.raises(Immovable, match="out of range"):
            MOVER.jump(AT | second, to)


@pytest.mark.parametrize("distance", [-0x8_0000, 0x40, 0xF0_0000])
@pytest.mark.parametrize("mode", SECOND)
def test_detours(mode: str, distance: int) -> None:
    """The runtime is in A32."""
    near, second = detour_of("arm"), SECOND[mode]
    call = "blx target" if second else "bl target"
    load = (
        "movw lr, #:lower16:(target - (1f + {ahead}));"
        "movt lr, #:upper16:(target - (1f + {ahead})); 1: {add}; ldr.w lr, [lr]; blx lr; {nop}"
    )
    load = load.format(
        ahead=4 if second else 8,
        add="add lr, pc" if second else "add lr, pc, lr",
        nop="nop.w" if second else "",
    ).replace("ldr.w", "ldr.w" if second else "ldr")
    for place in (0, 1, 0xFFFF, 0x1234_5678):
        around = (
            f"push {{{{ip, lr}}}}; movw ip, #{place & 0xFFFF}; movt ip, #{place >> 16}; {{}}; "
            "pop {{ip, lr}}"
        )
        for detour, text in ((near, call), (near.far, load)):
            (wanted,) = _assembled(mode, around.format(text), target=AT + distance)
            code = detour.make(AT | second, place, AT + distance)
            assert len(code) == detour.size and code == wanted, text


@pytest.mark.parametrize("name", ["libc.so.6", "libstdc++.so.6"])
def test_every_branch_is_found(name: str) -> None:
    """Of a sample of functions: the targets that Capstone reads."""
    branches, counted = branches_of("arm"), Counter[str]()
    functions = random.Random(5).sample(library("thumb", name).functions, scaled(300, 60))
    for function in functions:
        start = function.address & ~1
        code = np.frombuffer(function.code, np.uint8)
        targets = set(branches.long_targets(code, start).tolist())
        for insn in disassemble("arm", function.code, function.address):
            if insn.target is not None:
                counted[insn.mnemonic] += 1
                assert insn.target & ~1 in targets, insn
    assert {"bl", "cbz", "beq", "b", "b.w"} <= set(counted)


def test_words_of_both_sets_are_read() -> None:
    texts = ("b .+0x400", "bl .+0x800", "blx .+0x402", "bne .-0x40", "blxeq r3")
    branches = branches_of("arm")
    for i, code in enumerate(_assembled("arm", *texts)):
        at = AT + 128 * i
        (insn,) = disassemble("arm", code, at)
        found = branches.long_targets(np.frombuffer(code, np.uint8), at).tolist()
        assert insn.target is None or insn.target & ~1 in found


def test_data_between_code_is_not_read() -> None:
    text = (
        "push {r4, lr}; ldr r0, 2f; cmp r0, #1; it eq; popeq {r4, pc}; ldrex r1, [r0]; "
        "adds r1, #1; strex r2, r1, [r0]; bl .+0x100; .balign 4; 2: .word 0xffffffff; "
        ".word 0xe8d0f000"
    )
    (code,) = _assembled("thumb", text)
    branches = branches_of("arm")
    assert branches.read is not None and branches.begins is not None
    read = branches.read(code, AT | 1)
    assert read is not None and not branches.has_indirect_jump(read)
    assert max(one.address for one in read) < AT + len(code) - 8
    begins = branches.begins(code, AT | 1)
    names = [one.mnemonic for one in read if one.address not in begins]
    assert names == ["popeq", "adds", "strex"]
    lost = branches.read(code.replace(b"\xff" * 4, b"")[:-8] + b"\xff" * 8, AT | 1)
    assert lost is None or len(lost) >= len(read)


def test_entries_of_a_plt() -> None:
    """Those that link editors make, with two additions or three."""
    last = "add ip, ip, #0x5000; ldr pc, [ip, #0x678]!"
    text = f".thumb; bx pc; mov r8, r8; .arm; add ip, pc, #0, 12; add ip, ip, #0x34, 20; {last}"
    short = f"add ip, pc, #0x300000; {last}"
    code, other = _assembled("arm", text, short)
    for held, at, lead, wanted in (
        (code, AT, 4, AT + 12 + 0x3_4000 + 0x5678),
        (other, AT + 128, 0, AT + 136 + 0x30_0000 + 0x5678),
    ):
        found = plt_entries("arm", np.frombuffer(held, np.uint8), at, 0, 0)
        assert [column.tolist() for column in found] == [[at], [at + lead], [wanted]]
        assert MOVER.landing(held) == lead


@pytest.mark.parametrize("name", ["setjmp", "__sigsetjmp", "getcontext", "vfork"])
def test_libc_s_functions_that_return_twice(name: str) -> None:
    found = {}
    for function in library("thumb", "libc.so.6").functions:
        found[function.address] = function.code
    with Path("/usr/arm-linux-gnueabihf/lib/libc.so.6").open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym").iter_symbols()
        at = next(one["st_value"] for one in symbols if one.name == name)
    assert returns_twice("arm", at, lambda address: found.get(address, b""))


def test_others_return_once() -> None:
    chosen = random.Random(7).sample(library("thumb", "libc.so.6").functions, 200)
    codes = {function.address: function.code[:512] for function in chosen}
    twice = [at for at in codes if returns_twice("arm", at, lambda one: codes.get(one, b""))]
    assert len(twice) <= 2, [hex(at) for at in twice]
