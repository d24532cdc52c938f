# SPDX-License-Identifier: MIT
"""x86-64: how moved instructions read, one by one and for all functions of two libraries."""

from __future__ import annotations

import random
import re
from collections import Counter

import numpy as np
import pytest

from ftpatch.arch.branches import branched_into, targets_in
from ftpatch.arch.disassemble import disassemble
from ftpatch.arch.move import Immovable, Mover, Why, mover_of
from ftpatch.arch.x86.branches import (
    has_indirect_jump,
    long_targets,
    short_targets,
)
from tests.support.gnu import link_at
from tests.support.moves import LIBRARIES, library, moved_all, reading, table
from tests.support.sampling import scaled

AT, TO, TARGET = 0x40_1000, 0x90_2003, 0x48_0010
BACK = "push %rax; lea {back}(%rip), %rax; xchg %rax, (%rsp); "

FORMS = [
    ("push %rbp", "push %rbp; jmp {back}"),
    ("endbr64", "endbr64; jmp {back}"),
    ("syscall", "syscall; jmp {back}"),
    ("ud2", "ud2; jmp {back}"),
    ("int $0x80", "int $0x80; jmp {back}"),
    ("ret", "ret"),
    ("repz ret", "repz ret"),
    ("iretq", "iretq"),
    ("jmp target", "jmp target"),
    (".byte 0xeb, 0x20", "jmp {at}+0x22"),
    ("bnd jmp target", "bnd jmp target"),
    ("jne target", "jne target; jmp {back}"),
    (".byte 0x7c, 0xfe", "jl {at}; jmp {back}"),
    (".byte 0x2e, 0x74, 0x10", "je,pn {at}+0x13; jmp {back}"),
    (".byte 0xe2, 0x10", "loop .+4; .byte 0xeb, 5; jmp {at}+0x12; jmp {back}"),
    (".byte 0xe1, 0x80", "loope .+4; .byte 0xeb, 5; jmp {at}-0x7e; jmp {back}"),
    (".byte 0x67, 0xe3, 0x10", "jecxz .+5; .byte 0xeb, 5; jmp {at}+0x13; jmp {back}"),
    ("xbegin target", "xbegin target; jmp {back}"),
    ("call target", BACK + "jmp target"),
    ("call .+5", BACK + "jmp {back}"),
    ("call *%rax", BACK + "jmp *%rax"),
    ("notrack call *%r11", BACK + "notrack jmp *%r11"),
    ("call *(%rax)", BACK + "jmp *(%rax)"),
    ("call *target(%rip)", BACK + "jmp *target(%rip)"),
    ("call *%fs:0x10", BACK + "jmp *%fs:0x10"),
    ("call *8(%rsp)", BACK + "{{disp32}} jmp *16(%rsp)"),
    ("call *(%rsp)", BACK + "{{disp32}} jmp *8(%rsp)"),
    ("call *-16(%rsp)", BACK + "{{disp32}} jmp *-8(%rsp)"),
    ("call *0x1000(%rsp,%r9,8)", BACK + "jmp *0x1008(%rsp,%r9,8)"),
    ("call *8(%r12)", BACK + "jmp *8(%r12)"),
    ("jmp *target(%rip)", "jmp *target(%rip)"),
    ("jmp *%rsp", "jmp *%rsp"),
    *((f"{text}", f"{text}; jmp {{back}}") for text in (
        "lea target(%rip), %r9", "movl $0x12345678, target(%rip)", "addb $7, target(%rip)",
        "movw $0x1234, target(%rip)", "vmovdqa target(%rip), %xmm1",
        "vpermilps $5, target(%rip), %xmm0", "vmovdqa64 target(%rip), %zmm20",
        "vpcmpd $2, target(%rip), %zmm1, %k1",
        "mov %fs:target(%rip), %rax", "fxsave target(%rip)", "prefetcht0 target(%rip)",
    )),
]  # fmt: skip

REFUSED = [
    ("cc", 1, Why.TRAP),
    ("f1", 1, Why.TRAP),
    ("06", 1, Why.UNKNOWN),
    ("90", 5, Why.SHORT),
    ("", 1, Why.SHORT),
    ("eb01c3c390", 5, Why.INSIDE),
    ("31c074fd90", 5, Why.INSIDE),
    ("488d05fcffffff", 5, Why.INSIDE),
    ("ffd0909090", 5, Why.RETURNS),
    ("c390909090", 5, Why.ENDS),
    ("ffe0909090", 5, Why.ENDS),
    ("eb20909090", 5, Why.ENDS),
    ("66e900000000", 1, Why.FORM),
    ("66ffd0", 1, Why.FORM),
    ("66c7f80000", 1, Why.FORM),
    ("ff1c24", 1, Why.FORM),
    ("ff2c24", 1, Why.FORM),
    ("67488b0578563412", 1, Why.FORM),
    ("ffd4", 1, Why.STACK),
    ("ff5424f8", 1, Why.STACK),
    ("ff5424fc", 1, Why.STACK),
    ("67ff1424", 1, Why.STACK),
]
IN_LIBRARIES = {"SHORT", "INSIDE", "RETURNS", "ENDS", "UNKNOWN"}
CALL = re.compile(r"^(notrack |bnd )?callq? ")
RSP = re.compile(r"\*(-?(?:0x)?[0-9a-f]*)\(%rsp")


def _mover() -> Mover:
    mover = mover_of("x86_64")
    assert mover is not None
    return mover


MOVER = _mover()


def test_every_form_reads_as_gnu_as_has_it() -> None:
    wanted = []
    originals = link_at("x86_64", [(AT + 64 * i, f[0], TARGET) for i, f in enumerate(FORMS)])
    for i, ((text, slot), code) in enumerate(zip(FORMS, originals, strict=True)):
        at = AT + 64 * i
        back, site = (f"target-{TARGET - a}" for a in (at + len(code), at))
        slot = slot.format(back=back, at=site)
        assert "target" in slot or text == slot
        wanted.append((TO + 64 * i, slot, TARGET))
    for i, (code, expected) in enumerate(zip(originals, link_at("x86_64", wanted), strict=True)):
        moved = MOVER.move(code + b"\x90" * 16, AT + 64 * i, TO + 64 * i, 1)
        assert moved.size == len(code)
        assert moved.code == expected, FORMS[i]
        far = MOVER.move(code + b"\x90" * 16, AT + 64 * i, TO + 0x4000_0000, 1)
        assert len(far.code) == len(moved.code), "the length does not depend on the place"


def test_several_instructions_take_one_jump() -> None:
    code = bytes.fromhex("55 4889e5 4157 90")  # push %rbp; mov %rsp, %rbp; push %r15; nop
    moved = MOVER.move(code, AT, TO, MOVER.jump_size)
    assert moved.size == 6
    assert moved.code[:6] == code[:6]
    assert reading("x86_64", moved.code, TO)[-1] == f"jmp {AT + 6:#x}"


@pytest.mark.parametrize(("code", "need", "why"), REFUSED)
def test_what_cannot_be_moved(code: str, need: int, why: Why) -> None:
    with pytest.raises(Immovable) as caught:
        MOVER.move(bytes.fromhex(code), AT, TO, need)
    assert caught.value.why == why
    assert str(caught.value).startswith("0x40100")


def test_reach() -> None:
    lea = bytes.fromhex("488d0500000000")
    edge = AT + (1 << 31) - 5  # of the jump behind it, which ends 12 bytes from ``to``
    assert MOVER.move(lea, AT, edge, 1)
    for to in (edge + 1, AT + (1 << 40)):
        with pytest.raises(Immovable, match="out of range"):
            MOVER.move(lea, AT, to, 1)
    assert MOVER.jump(AT, AT + 5) == bytes.fromhex("e900000000")
    high = AT + (1 << 32)
    for to in (high + 5 + (1 << 31) - 1, high + 5 - (1 << 31)):
        assert MOVER.reaches(high, to)
        assert disassemble("x86_64", MOVER.jump(high, to), high)[0].target == to
    assert not MOVER.reaches(AT, AT + 5 + (1 << 31))
    with pytest.raises(Immovable, match="0x401000: jmp"):
        MOVER.jump(AT, AT + 4 - (1 << 31))


def test_landing_pads_stay() -> None:
    codes = ("f30f1efa90", "f30f1efb90", "90f30f1efa", "")
    assert [MOVER.landing(bytes.fromhex(code)) for code in codes] == [4, 0, 0, 0]
    assert (MOVER.trap, MOVER.jump_size) == (b"\xd6", 5)
    assert not MOVER.joined(b"\xf0")
    assert MOVER.signing(b"\x90") == 0


def _expected(code: bytes, at: int) -> list[str]:
    """How the displaced ``code`` should read in a slot."""
    out, end, goes_on = [], at + len(code), True
    texts = reading("x86_64", code, at, slot=False)
    for insn, text in zip(disassemble("x86_64", code, at), texts, strict=True):
        name, _, operands = text.partition(" ")
        if CALL.match(text):
            out += ["pushq %rax", f"leaq {end:#x}(%rip),%rax", "xchgq %rax, (%rsp)"]
            text = text.replace("callq ", "jmpq ").replace("call ", "jmp ")
            text = RSP.sub(lambda m: f"*{_number(int(m[1] or '0', 0) + 8)}(%rsp", text)
        elif name.startswith("loop") or name.endswith("cxz"):
            out += [f"{name} .+{insn.size + 2}", "jmp .+7"]
            text = f"jmp {operands}"
        out.append(text)
        goes_on = not re.match(r"(\w+ )?(jmp|ret|iret|lret)", text)
    return out + [f"jmp {end:#x}"] * (goes_on or "loop" in texts[-1] or "cxz" in texts[-1])


def _number(value: int) -> str:
    return str(value) if -9 <= value <= 9 else hex(value)


def test_every_function_of_the_libraries() -> None:
    counts, needs, bias, to = {}, (1, MOVER.jump_size), 0x10_0000_0000, 0x10_0400_0000
    for name in LIBRARIES:
        counts[name], moved = moved_all(MOVER, "x86_64", name, needs, bias, to)
        for site, after in moved:
            expected = _expected(site.code[: after.size], site.address)
            assert reading("x86_64", after.code, to) == expected, site.code[: after.size].hex()
        assert counts[name].total() > 4000
        assert counts[name][1, "moved"] > 0.99 * counts[name].total() / 2
        assert counts[name][5, "moved"] > 0.9 * counts[name].total() / 2
        assert {why for _, why in counts[name]} <= {"moved", *IN_LIBRARIES}
    print(table(counts, needs))


@pytest.mark.scaled
def test_every_instruction_of_some_functions() -> None:
    counts: Counter[str] = Counter()
    for name in LIBRARIES:
        for function in random.Random(5).sample(library("x86_64", name).functions, scaled(150, 40)):
            for insn in disassemble("x86_64", function.code[:1024], function.address):
                code = function.code[insn.address - function.address :]
                for need in (1, MOVER.jump_size):
                    try:
                        moved = MOVER.move(code, insn.address, 0x400_0000, need)
                    except Immovable as reason:
                        counts[reason.why.name] += 1
                        continue
                    counts["moved"] += 1
                    expected = _expected(code[: moved.size], insn.address)
                    assert reading("x86_64", moved.code, 0x400_0000) == expected
    print(dict(counts))
    assert set(counts) <= {"moved", *IN_LIBRARIES}
    assert counts["moved"] > 0.8 * counts.total()


def test_targets_of_bytes() -> None:
    texts = ["call target", "jmp target", "jb target", "xbegin target", "jmp .+0x20", "loop .-4"]
    code = link_at("x86_64", [(AT, "; ".join(texts), TARGET)])[0]
    array = np.frombuffer(code, np.uint8)
    long = long_targets(array, AT)
    assert np.count_nonzero(long == TARGET) == 4
    at = AT + len(code) - 4
    assert {at + 0x20, at - 2} <= set(short_targets(array, AT).tolist())
    lows = np.array([TARGET - 4, TARGET, TARGET + 1, TARGET - 5])
    assert targets_in(long, lows, lows + 5).tolist() == [True, True, False, False]
    assert targets_in(long, lows, lows + 6).tolist() == [True, True, False, True]
    for size in range(6):
        assert len(long_targets(array[:size], AT)) == (size >= 5)
        short_targets(array[:size], AT)
    read = disassemble("x86_64", code, AT)
    assert branched_into(read, TARGET, TARGET + 1)
    assert not branched_into(read, TARGET + 1, TARGET + 9)


def test_indirect_jumps() -> None:
    true = ["jmp *%rax", "notrack jmp *%rdx", "jmp *8(,%rax,8)", "ljmp *(%rax)", "bnd jmp *(%rax)"]
    false = ["jmp *target(%rip)", "jmp target", "call *%rax", "notrack jmp *target(%rip)", "ret"]
    codes = link_at("x86_64", [(AT + 64 * i, t, TARGET) for i, t in enumerate(true + false)])
    found = [has_indirect_jump(disassemble("x86_64", code, AT)) for code in codes]
    assert found == [True] * 5 + [False] * 5
