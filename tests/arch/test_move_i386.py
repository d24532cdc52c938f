# SPDX-License-Identifier: MIT
"""i386: how moved instructions read, one by one and for all functions of two libraries."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ftpatch.arch.disassemble import disassemble
from ftpatch.arch.move import Immovable, Why, mover_of
from ftpatch.arch.x86.branches import has_indirect_jump, is_thunk, short_targets
from tests.support.gnu import link_at
from tests.support.moves import LIBRARIES, moved_all, reading, table

AT, TO, TARGET = 0x40_1000, 0x90_2003, 0x48_0010
BACK = "push %eax; call .+5; pop %eax; {{disp32}} lea {back}(%eax), %eax; xchg %eax, (%esp); "
"""``back``: from behind that call to behind the site's."""
HERE = 6

FORMS = [
    ("push %ebp", "push %ebp; jmp {next}"),
    ("endbr32", "endbr32; jmp {next}"),
    ("int $0x80", "int $0x80; jmp {next}"),
    ("inc %eax", "inc %eax; jmp {next}"),
    ("ret", "ret"),
    ("ret $4", "ret $4"),
    ("repz ret", "repz ret"),
    ("iret", "iret"),
    ("jmp target", "jmp target"),
    (".byte 0xeb, 0x20", "jmp {at}+0x22"),
    ("jne target", "jne target; jmp {next}"),
    (".byte 0x7c, 0xfe", "jl {at}; jmp {next}"),
    (".byte 0xe2, 0x10", "loop .+4; .byte 0xeb, 5; jmp {at}+0x12; jmp {next}"),
    (".byte 0xe3, 0x10", "jecxz .+4; .byte 0xeb, 5; jmp {at}+0x12; jmp {next}"),
    (".byte 0x67, 0xe3, 0x10", "jcxz .+5; .byte 0xeb, 5; jmp {at}+0x13; jmp {next}"),
    ("xbegin target", "xbegin target; jmp {next}"),
    ("call target", BACK + "jmp target"),
    ("call .+5", BACK + "jmp {next}"),
    ("call *%eax", BACK + "jmp *%eax"),
    ("notrack call *%edx", BACK + "notrack jmp *%edx"),
    ("call *0x10(%ebx)", BACK + "jmp *0x10(%ebx)"),
    ("call *target", BACK + "jmp *target"),
    ("call *%gs:0x10", BACK + "jmp *%gs:0x10"),
    ("call *8(%esp)", BACK + "{{disp32}} jmp *12(%esp)"),
    ("call *-16(%esp)", BACK + "{{disp32}} jmp *-12(%esp)"),
    ("call *0x1000(%esp,%ecx,4)", BACK + "jmp *0x1004(%esp,%ecx,4)"),
    ("jmp *target", "jmp *target"),
    ("movl $0x12345678, target", "movl $0x12345678, target; jmp {next}"),
    ("mov %gs:0x14, %eax", "mov %gs:0x14, %eax; jmp {next}"),
    ("les (%eax), %ecx", "les (%eax), %ecx; jmp {next}"),
    ("vmovdqa target, %xmm1", "vmovdqa target, %xmm1; jmp {next}"),
]
REFUSED = [
    ("cc", 1, Why.TRAP),
    ("f1", 1, Why.TRAP),
    ("d6", 5, Why.SHORT),
    ("90", 5, Why.SHORT),
    ("", 1, Why.SHORT),
    ("eb01c3c390", 5, Why.INSIDE),
    ("31c074fd90", 5, Why.INSIDE),
    ("ffd0909090", 5, Why.RETURNS),
    ("ff5008909090", 5, Why.RETURNS),
    ("c390909090", 5, Why.ENDS),
    ("ffe0909090", 5, Why.ENDS),
    ("66e90000", 1, Why.FORM),
    ("66ffd0", 1, Why.FORM),
    ("66c7f80000", 1, Why.FORM),
    ("ff1c24", 1, Why.FORM),
    ("9a000000003300", 1, Why.FORM),
    ("ea000000003300", 1, Why.FORM),
    ("0f34", 1, Why.FORM),
    ("0f05", 1, Why.FORM),
    ("ffd4", 1, Why.STACK),
    ("ff5424fc", 1, Why.STACK),
    ("ff5424f8", 1, Why.STACK),
    ("ff5424f5", 1, Why.STACK),
]
IN_LIBRARIES = {"SHORT", "INSIDE", "RETURNS", "ENDS", "UNKNOWN", "TRAP"}
CALL = re.compile(r"^(notrack )?call[lq]? ")
ESP = re.compile(r"\*(-?(?:0x)?[0-9a-f]*)\(%esp")
MOVER = mover_of("i386")


def test_every_form_reads_as_gnu_as_has_it() -> None:
    wanted = []
    originals = link_at("i386", [(AT + 64 * i, f[0], TARGET) for i, f in enumerate(FORMS)])
    for i, ((text, slot), code) in enumerate(zip(FORMS, originals, strict=True)):
        at, to = AT + 64 * i, TO + 64 * i
        behind, site = (f"target-{TARGET - a}" for a in (at + len(code), at))
        back = at + len(code) - (to + HERE)
        slot = slot.format(back=back, next=behind, at=site)
        assert "target" in slot or "(%eax)" in slot or text == slot
        wanted.append((to, slot, TARGET))
    for i, (code, expected) in enumerate(zip(originals, link_at("i386", wanted), strict=True)):
        moved = MOVER.move(code + b"\x90" * 16, AT + 64 * i, TO + 64 * i, 1)
        assert moved.size == len(code)
        assert moved.code == expected, FORMS[i]
        far = MOVER.move(code + b"\x90" * 16, AT + 64 * i, 0xF000_0000, 1)
        assert len(far.code) == len(moved.code), "the length does not depend on the place"


@pytest.mark.parametrize(("code", "need", "why"), REFUSED)
def test_what_cannot_be_moved(code: str, need: int, why: Why) -> None:
    with pytest.raises(Immovable) as caught:
        MOVER.move(bytes.fromhex(code), AT, TO, need)
    assert caught.value.why == why
    assert str(caught.value).startswith("0x40100")


@pytest.mark.parametrize("to", [0, AT + 5, 0x8000_0000, 0xC000_0000, 0xFFFF_FFF0])
def test_everything_is_within_reach(to: int) -> None:
    assert MOVER.reaches(AT, to)
    (read,) = disassemble("i386", MOVER.jump(AT, to), AT)
    assert read.target is not None and read.target & 0xFFFF_FFFF == to


def test_landing_pads_stay() -> None:
    codes = ("f30f1efb90", "f30f1efa90", "90f30f1efb", "")
    assert [MOVER.landing(bytes.fromhex(code)) for code in codes] == [4, 0, 0, 0]
    assert (MOVER.trap, MOVER.jump_size) == (b"\xcc", 5)


def _slot(code: bytes, to: int) -> list[str]:
    """How a slot reads, with the address that is told to a called function."""
    texts = reading("i386", code, to)
    insns = disassemble("i386", code, to)
    for row in range(2, len(insns) - 2):
        if texts[row - 1 : row + 1] == ["call .+5", "popl %eax"]:
            away = re.fullmatch(r"leal (-?(?:0x)?[0-9a-f]+)\(%eax\),%eax", texts[row + 1])
            assert away, texts
            told = insns[row].address + int(away[1], 0)
            texts[row - 1 : row + 2] = [f"told {told % (1 << 32):#x}"]
            break
    return texts


def _expected(code: bytes, at: int) -> list[str]:
    """How the displaced ``code`` should read in a slot."""
    out, end, goes_on = list[str](), at + len(code), True
    texts = reading("i386", code, at, slot=False)
    for insn, text in zip(disassemble("i386", code, at), texts, strict=True):
        name, _, operands = text.partition(" ")
        if CALL.match(text):
            out += ["pushl %eax", f"told {end:#x}", "xchgl %eax, (%esp)"]
            text = re.sub(r"\bcall[lq]? ", "jmp ", text)
            text = ESP.sub(lambda m: f"*{_number(int(m[1] or '0', 0) + 4)}(%esp", text)
        elif name.startswith("loop") or name.endswith("cxz"):
            out += [f"{name} .+{insn.size + 2}", "jmp .+7"]
            text = f"jmp {operands}"
        out.append(text)
        goes_on = not re.match(r"(\w+ )?(jmp|ret|iret|lret)", text)
    return out + [f"jmp {end:#x}"] * (goes_on or "loop" in texts[-1] or "cxz" in texts[-1])


def _number(value: int) -> str:
    return str(value) if -9 <= value <= 9 else hex(value)


def test_every_function_of_the_libraries() -> None:
    counts, needs, bias, to = {}, (1, MOVER.jump_size), 0x1000_0000, 0x9400_0000
    for name in LIBRARIES:
        counts[name], moved = moved_all(MOVER, "i386", name, needs, bias, to)
        for site, after in moved:
            expected = _expected(site.code[: after.size], site.address)
            assert _slot(after.code, to) == expected, site.code[: after.size].hex()
        assert counts[name].total() > 4000
        assert counts[name][1, "moved"] > 0.99 * counts[name].total() / 2
        assert counts[name][5, "moved"] > 0.85 * counts[name].total() / 2
        assert {why for _, why in counts[name]} <= {"moved", *IN_LIBRARIES}
    print(table(counts, needs))


def test_indirect_jumps() -> None:
    true = [
        "jmp *%eax",
        "notrack jmp *%edx",
        "jmp *target(,%eax,4)",
        "ljmp *(%eax)",
        "jmp *8(%ebx)",
    ]
    true += ["push %eax; ret", "mov %eax, (%esp); ret"]
    false = ["jmp *target", "jmp target", "call *%eax", "ret", "mov (%esp), %ebx; ret"]
    false += ["fldl 4(%esp); ret", "fldl (%esp); ret", "mov %eax, 4(%esp); ret"]
    codes = link_at("i386", [(AT + 64 * i, t, TARGET) for i, t in enumerate(true + false)])
    found = [has_indirect_jump(disassemble("i386", code, AT)) for code in codes]
    assert found == [True] * len(true) + [False] * len(false)
    (thunk, plain) = link_at("i386", [(AT, "jmp *%edx", 0), (AT + 64, "mov (%esp), %ebx; ret", 0)])
    assert is_thunk(disassemble("i386", thunk, AT)) and not is_thunk(disassemble("i386", plain, AT))


def test_short_branches_of_bytes() -> None:
    (code,) = link_at("i386", [(AT, "jmp .+0x20; jecxz .-4", TARGET)])
    targets = short_targets(np.frombuffer(code, np.uint8), AT)
    assert {AT + 0x20, AT + 2 - 4} <= set(targets.tolist())
