# SPDX-License-Identifier: MIT
"""arm64: how moved instructions read, one by one and for all functions of two libraries."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from ftpatch.arch.disassemble import disassemble
from ftpatch.arch.move import Immovable, Mover, Why, mover_of
from tests.support.gnu import link_at
from tests.support.moves import LIBRARIES, library, moved_all, reading, table
from tests.support.sampling import scaled

AT, TO, TARGET = 0x40_1000, 0x90_2000, 0x40_4F34
LINK = "adrp x30, {back}; add x30, x30, :lo12:{back}; "
OPPOSITE = ("eq ne", "hs lo", "mi pl", "vs vc", "hi ls", "ge lt", "gt le")
OPPOSITES = {a: b for pair in OPPOSITE for a, b in (pair.split(), pair.split()[::-1])}


def _literal(load: str, register: str, base: str) -> str:
    address = f"adrp {base}, target; add {base}, {base}, :lo12:target"
    return f"{address}; {load} {register}, [{base}]"


def _pushed(register: str) -> str:
    load = _literal("ldr", register, "x0")
    return f"str x0, [sp, #-16]!; {load}; ldr x0, [sp], #16; b {{back}}"


FORMS = [
    *((text, f"{text}; b {{back}}") for text in (
        "paciasp", "bti c", "sub sp, sp, #16", "stp x29, x30, [sp, #-32]!", "svc #0", "hlt #3",
        "ldar x0, [x1]", "cas w0, w1, [x2]", "casp x0, x1, x2, x3, [x4]", "stlr w3, [x4]",
        "nop", "mrs x3, tpidr_el0", "add x0, sp, #32", "ldr x0, [x1, #8]!", "udf #0",
    )),
    *((text, text) for text in ("ret", "ret x3", "br x16", "retaa", "braa x3, sp", "eret")),
    ("b target", "b target"),
    ("bl target", LINK + "b target"),
    ("bl .+4", LINK + "b {back}"),
    ("blr x8", LINK + "ret x8"),
    *((f"b.{a} target", f"b.{b} .+8; b target; b {{back}}") for a, b in OPPOSITES.items()),
    ("b.al target", "b target"),
    ("b.nv target", "b target"),
    *((f"cb{a} {r}, target", f"cb{b} {r}, .+8; b target; b {{back}}")
      for a, b in (("z", "nz"), ("nz", "z")) for r in ("x0", "w3", "xzr", "x30")),
    *((f"tb{a} {r}, target", f"tb{b} {r}, .+8; b target; b {{back}}")
      for a, b in (("z", "nz"), ("nz", "z")) for r in ("w0, #0", "w7, #31", "x2, #32", "x9, #63")),
    ("cbz x4, .", "cbnz x4, .+8; b {at}; b {back}"),
    ("adr x5, target", "adrp x5, target; add x5, x5, :lo12:target; b {back}"),
    ("adr x5, target + 3", "adrp x5, target; add x5, x5, :lo12:target+3; b {back}"),
    ("adr xzr, target", "nop; b {back}"),
    ("adrp x9, target", "adrp x9, target; b {back}"),
    ("adrp xzr, target", "nop; b {back}"),
    *((f"ldr {r}, target", _literal("ldr", r, f"x{r[1:]}") + "; b {back}")
      for r in ("x1", "w2", "x30", "w0")),
    ("ldrsw x4, target", _literal("ldrsw", "x4", "x4") + "; b {back}"),
    ("ldr xzr, target", "nop; b {back}"),
    *((f"ldr {r}, target", _pushed(r)) for r in ("s0", "d1", "q2", "q31")),
    ("prfm pldl1keep, target", "nop; b {back}"),
]  # fmt: skip

REFUSED = [
    (0xD420_0000, Why.TRAP),  # brk #0
    (0xD420_1EE0, Why.TRAP),  # brk #0xf7
    (0xFFFF_FFFF, Why.UNKNOWN),
    (0xD63F_03C0, Why.LINK),  # blr x30
    (0xD73F_0900, Why.SIGNED),  # blraa x8, x0
    (0xD63F_091F, Why.SIGNED),  # blraaz x8
    (0xC85F_7C20, Why.JOINED),  # ldxr x0, [x1]
    (0x885F_FC20, Why.JOINED),  # ldaxr w0, [x1]
    (0xC802_7C20, Why.JOINED),  # stxr w2, x0, [x1]
    (0xC87F_0820, Why.JOINED),  # ldxp x0, x2, [x1]
    (0x0802_7C20, Why.JOINED),  # stxrb w2, w0, [x1]
    (0xD503_3F5F, Why.JOINED),  # clrex
    (0xD503_24FF, Why.JOINED),  # pacm
    (0x0420_BC20, Why.JOINED),  # movprfx z0, z1
    (0x04D1_2020, Why.JOINED),  # movprfx z0.d, p0/m, z1.d
]
IN_LIBRARIES = {"TRAP", "JOINED", "UNKNOWN", "INSIDE"}


def _mover() -> Mover:
    mover = mover_of("arm64")
    assert mover is not None
    return mover


MOVER = _mover()


def _word(insn: int) -> bytes:
    return insn.to_bytes(4, "little")


def test_every_form_reads_as_gnu_as_has_it() -> None:
    arch = ".arch armv8.5-a+lse; "
    originals = link_at("arm64", [(AT + 64 * i, arch + f[0], TARGET) for i, f in enumerate(FORMS)])
    wanted = []
    for i, (_, slot) in enumerate(FORMS):
        back, site = (f"target-{TARGET - a}" for a in (AT + 64 * i + 4, AT + 64 * i))
        wanted.append((TO + 64 * i, arch + slot.format(back=back, at=site), TARGET))
    for i, (code, expected) in enumerate(zip(originals, link_at("arm64", wanted), strict=True)):
        moved = MOVER.move(code + b"\xff" * 16, AT + 64 * i, TO + 64 * i, 4)
        assert moved.size == 4
        assert moved.code == expected, FORMS[i]
        assert MOVER.move(code, AT + 64 * i, TO + 64 * i, 1) == moved
        far = MOVER.move(code, AT + 64 * i, TO + 0x700_0000, 1)
        assert len(far.code) == len(moved.code), "the length does not depend on the place"


@pytest.mark.parametrize(("insn", "why"), REFUSED, ids=lambda v: hex(v) if type(v) is int else "")
def test_what_cannot_be_moved(insn: int, why: Why) -> None:
    with pytest.raises(Immovable) as caught:
        MOVER.move(_word(insn), AT, TO, 4)
    assert caught.value.why == why
    assert caught.value.text.startswith("0x401000: ")


def test_several_at_once() -> None:
    nop, bl, b, ret = 0xD503_201F, 0x9400_0002, 0x1400_0001, 0xD65F_03C0

    def moved(*insns: int) -> str:
        try:
            MOVER.move(b"".join(map(_word, insns)), AT, TO, 8)
        except Immovable as reason:
            return reason.why.name
        return "moved"

    assert moved(nop, bl) == moved(nop, ret) == moved(nop, nop) == "moved"
    assert moved(bl, nop) == "RETURNS"
    assert moved(ret, nop) == "ENDS"
    assert moved(b, nop) == "INSIDE"
    assert moved(nop) == "SHORT"


def test_reach() -> None:
    far, bl = 1 << 27, _word(0x9400_0000)
    assert MOVER.jump(AT, AT + 4) == _word(0x1400_0001)
    high = AT + far
    for to in (high + far - 4, high - far):
        assert MOVER.reaches(high, to)
        assert disassemble("arm64", MOVER.jump(high, to), high)[0].target == to
    for to in (high + far, high - far - 4):
        assert not MOVER.reaches(high, to)
        with pytest.raises(Immovable, match=r"0x8401000: b 0x.* out of range"):
            MOVER.jump(high, to)
    for code, to in ((bl, AT + far + 16), (_word(0x9000_0000), AT + (1 << 33))):
        with pytest.raises(Immovable, match="out of range"):
            MOVER.move(code, AT, to, 4)


def test_landing_pads_and_traps() -> None:
    bti, paciasp, pacibsp, nop = 0xD503_245F, 0xD503_233F, 0xD503_237F, 0xD503_201F
    assert [MOVER.landing(_word(w)) for w in (bti, paciasp, nop)] == [4, 0, 0]
    assert [MOVER.signing(_word(w)) for w in (bti, paciasp, pacibsp)] == [0, 4, 4]
    assert MOVER.landing(b"") == MOVER.signing(b"") == 0
    assert MOVER.trap == link_at("arm64", [(AT, "udf #0xf7", 0)])[0]
    assert MOVER.jump_size == 4


def test_what_nothing_may_come_between() -> None:
    ldxr, stxr, clrex, nop = 0xC85F_7C20, 0xC802_7C20, 0xD503_3F5F, 0xD503_201F
    movprfx, ret = 0x0420_BC20, 0xD65F_03C0

    def joined(*insns: int) -> bool:
        return MOVER.joined(b"".join(map(_word, insns)))

    assert joined(ldxr)
    assert joined(nop, ldxr, nop, nop)
    assert joined(movprfx)
    assert not joined(movprfx, nop)
    assert not joined(ldxr, nop, stxr)
    assert not joined(ldxr, clrex)
    assert not joined(ldxr, ret, nop)
    assert not joined(nop)
    assert not joined()
    assert joined(ldxr, *[nop] * 31)
    assert not joined(ldxr, *[nop] * 32), "no such section is that long"


def _expected(code: bytes, at: int) -> list[str]:
    """How the displaced instruction should read in a slot."""
    (insn,) = disassemble("arm64", code, at)
    name, end = insn.mnemonic, [f"b {at + 4:#x}"]
    *operands, last = insn.operands.split(", ")
    jump = [f"b {insn.target:#x}"] if insn.target is not None else []
    if name in ("bl", "blr"):
        back = [f"adrp x30, #{at + 4 & ~0xFFF:#x}", f"add x30, x30, #{_number(at + 4 & 0xFFF)}"]
        return back + (jump if name == "bl" else [f"ret {last}"])
    if name == "b":
        return jump
    if name.startswith("b.") or name[:2] in ("cb", "tb"):
        opposite = {"cbz": "cbnz", "cbnz": "cbz", "tbz": "tbnz", "tbnz": "tbz"}.get(name)
        opposite = opposite or "b." + OPPOSITES[name[2:]]
        return [f"{opposite} " + ", ".join([*operands, ".+8"]), *jump, *end]
    if name == "adrp":
        return [f"adrp {insn.operands}", *end]
    literal = name in ("ldr", "ldrsw") and last.startswith("#")
    if name == "adr" or (literal and "[" not in insn.operands):
        value, base = int(last[1:], 0), operands[0].replace("w", "x")
        vector = base[0] in "sdq"
        base = "x0" if vector else base
        out = [f"adrp {base}, #{value & ~0xFFF:#x}"]
        out.append(f"add {base}, {base}, #{_number(value & 0xFFF)}")
        out += [] if name == "adr" else [f"{name} {operands[0]}, [{base}]"]
        if vector:
            out = ["str x0, [sp, #-0x10]!", *out, "ldr x0, [sp], #0x10"]
        return out + end
    same = f"{name} {insn.operands}".rstrip()
    return [same] if name in ("ret", "br") else [same, *end]


def _number(value: int) -> str:
    return str(value) if value <= 9 else hex(value)


def test_every_function_of_the_libraries() -> None:
    counts, needs, bias, to = {}, (1, MOVER.jump_size), 0x10_0000_0000, 0x10_0400_0000
    for name in LIBRARIES:
        counts[name], moved = moved_all(MOVER, "arm64", name, needs, bias, to)
        for site, after in moved:
            assert after.size == 4
            assert reading("arm64", after.code, to) == _expected(site.code[:4], site.address)
        assert counts[name].total() > 4000
        assert counts[name][4, "moved"] > 0.99 * counts[name].total() / 2
        assert {why for _, why in counts[name]} <= {"moved", *IN_LIBRARIES}
    print(table(counts, needs))


@pytest.mark.scaled
def test_every_instruction_of_some_functions() -> None:
    counts: Counter[str] = Counter()
    for name in LIBRARIES:
        for function in random.Random(5).sample(library("arm64", name).functions, scaled(300, 80)):
            for i in range(0, min(len(function.code) // 4 * 4, 1024), 4):
                at, code = function.address + i, function.code[i : i + 4]
                try:
                    moved = MOVER.move(code, at, 0x400_0000, 4)
                except Immovable as reason:
                    counts[reason.why.name] += 1
                    continue
                counts["moved"] += 1
                assert reading("arm64", moved.code, 0x400_0000) == _expected(code, at)
    print(dict(counts))
    assert set(counts) <= {"moved", *IN_LIBRARIES}
    assert counts["moved"] > 0.95 * counts.total()
