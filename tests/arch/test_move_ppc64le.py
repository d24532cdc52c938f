# SPDX-License-Identifier: MIT
"""ppc64le: how moved instructions and detours read, by GNU as, and what they do, by qemu: the same
as at their site, from the same state. Unicorn has no 64-bit instructions of Power."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from ftpatch.arch.detour import detour_of
from ftpatch.arch.disassemble import disassemble
from ftpatch.arch.move import Immovable, Why, mover_of
from ftpatch.arch.returns_twice import returns_twice
from tests.support.gnu import link_at
from tests.support.power_runs import BASE, EXITS, Run, run_all
from tests.support.sampling import scaled

ARCH = "ppc64le"
MOVER = mover_of(ARCH)
AT, TO, TARGET = 0x40_1000, 0x46_2000, 0x50_4F34
LINKED = (
    "std 12, -296(1); bcl 20, 31, .+4; 1: mflr 12; addis 12, 12, ({back} - 1b)@ha; "
    "addi 12, 12, ({back} - 1b)@l; mtlr 12; ld 12, -296(1); "
)
"""LR = back. ``{back}`` is relative to ``target``, an absolute symbol."""
BACK, ON = "; b {back}", "; b .+8; b {at}+0x60; b {back}"
FORMS = [
    # at the site; elsewhere
    *((text, text + BACK) for text in (
        "stdu 1, -64(1)", "std 31, -8(1)", "mflr 0", "ld 2, 24(1)", "nop", "sc", "scv 0", "lwsync",
        "addis 2, 12, 0x123", "stfd 1, -16(1)", "xxlor 1, 2, 3", "lq 6, 16(3)", "twnei 3, 0",
        "beqlr", "bdnzlr", "bnectr cr5", "bca 12, 2, 0x100",
    )),
    *((text, text) for text in ("blr", "bctr", "bctar 20, 0", "ba 0x100", "bca 20, 0, 0x100")),
    ("b target", "b target"),
    ("bl target", LINKED + "b target"),
    ("bl .+4", LINKED + "b {back}"),
    ("bcl 20, 31, .+4", LINKED + "b {back}"),
    ("bla 0x100", LINKED + "ba 0x100"),
    ("bctrl", LINKED + "bctr"),
    ("bctarl 20, 0", LINKED + "bctar 20, 0"),
    ("beqctrl", LINKED + "beqctr" + BACK),
    ("bcl 12, 2, .+0x60", LINKED + "beq .+8" + ON),
    *((f"{text} .+0x60", f"{text} .+8" + ON) for text in (
        "beq", "bne cr7,", "blt+ cr3,", "bso-", "bdnz", "bdz", "bdnzt 2,", "bdzf 30,",
    )),
    ("addpcis 3, 0x1234", "addpcis 3, ({near} + 0x12340000 - (. + 4) + 0x8000) >> 16; "
     "1: addi 3, 3, ({near} + 0x12340000 - 1b)@l" + BACK),
]  # fmt: skip
PREFIXED = ("pld 3, target@pcrel", "paddi 5, 0, target@pcrel, 1", "plwz 4, 8(3)", "pstd 4, 8(3)")
REFUSED = [
    ("trap", Why.TRAP),
    ("tdi 31, 3, 5", Why.TRAP),
    (".long 0", Why.UNKNOWN),
    ("blrl", Why.LINK),
    ("beqlrl", Why.LINK),
    ("addpcis 0, 5", Why.FORM),
    ("lwarx 3, 0, 4", Why.JOINED),
    ("ldarx 3, 4, 5, 1", Why.JOINED),
    ("stwcx. 3, 0, 4", Why.JOINED),
    ("stdcx. 3, 0, 4", Why.JOINED),
    ("b .+4; nop", Why.INSIDE),
    ("blr; nop", Why.ENDS),
    ("bctrl; nop", Why.RETURNS),
    ("nop", Why.SHORT),
]
RUN = [
    *(f"{b} {{t}}" for b in ("beq", "bne cr7,", "blt cr3,", "bge", "bso cr5,", "bdnz", "bdz",
                             "bdnzt 2,", "bdnzf 30,", "bdzt 1,", "beq+", "bne-", "b", "bl",
                             "bcl 20, 31,", "bcl 12, 2,", "bcl 16, 0,", "bcl 4, 31,")),
    "bl .+4", "bcl 20, 31, .+4", "blr", "beqlr", "bdnzlr", "bctr", "bctrl", "bnectr", "beqctrl",
    "bnectrl cr6", "addi 1, 1, -64", "stdu 1, -128(1)", "std 31, -8(1)", "std 0, 16(1)", "mflr 0",
    "mfctr 12", "mtctr 3", "addis 2, 12, 2", "cmpdi 3, 0", "mfcr 0", "addic. 3, 3, -1",
    "addpcis 4, 0", "addpcis 5, 0x7f", "addpcis 12, -3", "paddi 3, 0, {d}, 1",
    "paddi 4, 5, 0x12345678, 0", "pld 6, {d}(0), 1",
]  # fmt: skip
STEP, SITES, SLOTS = 0x80, 0x1000, 0x9000
STATES = 6


def _linked(*texts: str, at: int = AT) -> list[bytes]:
    return link_at(ARCH, [(at + STEP * i, text, TARGET) for i, text in enumerate(texts)])


def test_every_form_reads_as_gnu_as_has_it() -> None:
    originals = _linked(*(text for text, _ in FORMS))
    wanted = []
    for i, ((_, slot), code) in enumerate(zip(FORMS, originals, strict=True)):
        site = AT + STEP * i
        names = {"back": site + len(code), "at": site, "near": site + 4}
        here = TO + STEP * i
        held = {name: f"(start + {value - here})" for name, value in names.items()}
        wanted.append(
            "start: ".replace("start", f"s{i}") + slot.format(**held).replace("start", f"s{i}")
        )
    for i, (code, expected) in enumerate(zip(originals, _linked(*wanted, at=TO), strict=True)):
        moved = MOVER.move(code + b"\xff" * 16, AT + STEP * i, TO + STEP * i, len(code))
        assert moved.size == len(code)
        assert moved.code == expected, FORMS[i]
        far = MOVER.move(code, AT + STEP * i, TO + 0x2_0000, 1)
        assert len(far.code) == len(moved.code), "the length does not depend on the place"


def test_prefixed_instructions_do_not_cross_64_bytes() -> None:
    originals, moved, pieces = _linked(*PREFIXED), list[bytes](), []
    for n, (off, i) in enumerate(
        (off, i) for off in range(0, 128, 4) for i in range(len(PREFIXED))
    ):
        to, at, behind = TO + 0x400 * n + off, AT + STEP * i, off % 64 == 60
        one = MOVER.move(originals[i], at, to, 1)
        assert one.size == 8
        moved.append(one.code)
        text = f"{'nop; ' * behind}{PREFIXED[i]}; {'nop; ' * (not behind)}"
        pieces.append((to, f"s{n}: {text} b s{n} + {at + 8 - to}", TARGET))
    assert moved == link_at(ARCH, pieces)


@pytest.mark.parametrize(("text", "why"), REFUSED, ids=[text for text, _ in REFUSED])
def test_what_cannot_be_moved(text: str, why: Why) -> None:
    (code,) = _linked(text)
    with pytest.raises(Immovable) as caught:
        MOVER.move(code, AT, TO, 8 if ";" in text or why is Why.SHORT else 1)
    assert caught.value.why == why


def test_reach() -> None:
    far = 1 << 25
    for to in (AT + far - 4, AT - far, AT + 4):
        assert MOVER.reaches(AT, to)
        (insn,) = disassemble(ARCH, MOVER.jump(AT, to), AT)
        assert insn.target == to % (1 << 64) and insn.size == 4
    for to in (AT + far, AT - far - 4):
        assert not MOVER.reaches(AT, to)
        with pytest.raises(Immovable, match="out of range"):
            MOVER.jump(AT, to)


def test_what_nothing_may_come_between() -> None:
    texts = ("lwarx 3, 0, 4", "stwcx. 3, 0, 4", "nop", "blr", "pld 3, 8(4)")
    load, store, nop, ret, prefixed = _linked(*texts)
    assert MOVER.joined(load) and MOVER.joined(nop + load + nop * 2)
    assert not MOVER.joined(load + nop + store) and not MOVER.joined(load + ret + nop)
    assert not MOVER.joined(nop) and not MOVER.joined(b"")
    assert not MOVER.joined(load + nop * 32), "no such loop is that long"
    assert MOVER.joined(nop + ret + bytes(4)) and MOVER.joined(nop + bytes(8))
    assert MOVER.joined(nop + prefixed[:4]) and not MOVER.joined(nop + prefixed)


def test_global_entries_stay() -> None:
    texts = ("addis 2, 12, 5; addi 2, 2, 7", "lis 2, 5; addi 2, 2, 7", "ld 2, -8(12); add 2, 2, 12")
    for code in _linked(*texts):
        assert MOVER.landing(code + bytes(4)) == 8
        assert MOVER.landing(MOVER.pad * 2 + code) == 16  # a pad in front of it
        assert MOVER.landing(code[4:] + bytes(8)) == MOVER.landing(code[:4]) == 0
    (other,) = _linked("addis 2, 12, 5; addi 3, 2, 7")
    assert MOVER.landing(other) == MOVER.landing(MOVER.pad * 2) == MOVER.landing(b"") == 0


@pytest.mark.parametrize("distance", [-0x1FF_0000, -16, 0x40, 0x1FF_0000])
def test_detours(distance: int) -> None:
    detour = detour_of(ARCH)
    for place in (0, 1, 0x7FFF, 0x8000, 0xFFFF, 0x1234_FFFF):
        text = (
            "stdu 1, -592(1); std 0, 32(1); mflr 0; std 0, 40(1); "
            f"lis 0, {(place >> 16 ^ 0x8000) - 0x8000}; ori 0, 0, {place & 0xFFFF}; std 0, 48(1); "
            "bl target; ld 0, 40(1); mtlr 0; ld 0, 32(1); addi 1, 1, 592"
        )
        (wanted,) = link_at(ARCH, [(AT, text, AT + distance)])
        assert detour.make(AT, place, AT + distance) == wanted
        assert detour.far.make(AT, place, AT + distance) == wanted
        assert len(wanted) == detour.size == detour.far.size


def test_entries_to_what_is_far() -> None:
    for to in (0x1000, 0x7FFF_8765_4321_0FF0, 0x1234_5678_9ABC_DEF0):
        upper, high, low, least = (to >> shift & 0xFFFF for shift in (48, 32, 16, 0))
        text = (
            f"mflr 0; std 0, 56(1); lis 0, {upper}; ori 0, 0, {high}; sldi 0, 0, 32; "
            f"oris 0, 0, {low}; ori 0, 0, {least}; mtlr 0; blrl; ld 0, 56(1); mtlr 0; blr"
        )
        (wanted,) = link_at(ARCH, [(AT, text, 0)])
        assert detour_of(ARCH).far.entry(to) == wanted


def _values(chance: random.Random, text: str) -> dict[str, int]:
    """Registers of which most hold anything; what may be gone to leads to an exit."""
    out = {f"r{n}": chance.choice([chance.getrandbits(64), chance.randrange(4)]) for n in range(32)}
    leads = "ctr" in text and text.startswith("b")
    exits = {name: BASE + at for name, at in EXITS.items()}
    out["ctr"] = exits["ctr"] if leads else chance.choice([1, 2, chance.getrandbits(64)])
    return {
        **out,
        "lr": exits["lr"],
        "cr": chance.getrandbits(32),
        "xer": chance.randrange(8) << 29,
    }


def test_moved_instructions_do_the_same(tmp_path: Path) -> None:
    """From the same registers: all of them, the stack, and where it goes on."""
    chance, goal = random.Random(7), BASE + EXITS["target"]
    sites = [SITES + STEP * i for i in range(len(RUN))]
    texts = [
        text.format(t="target", d=goal - (BASE + at)) for text, at in zip(RUN, sites, strict=True)
    ]
    pieces = [(BASE + at, text, goal) for text, at in zip(texts, sites, strict=True)]
    code, runs = dict(zip(sites, link_at(ARCH, pieces), strict=True)), []
    for text, at in zip(texts, sites, strict=True):
        slot = SLOTS + (at - SITES) + 4 * chance.randrange(12)
        code[slot] = MOVER.move(code[at], BASE + at, BASE + slot, 1).code
        for _ in range(STATES):
            values = _values(chance, text)
            runs += [Run(at=at, values=values), Run(at=slot, values=values)]
    left = run_all(code, sites, runs, tmp_path)
    exits = Counter[tuple[int, int]]()
    for n, (there, here) in enumerate(zip(left[::2], left[1::2], strict=True)):
        assert (here.registers, here.exit) == (there.registers, there.exit), texts[n // STATES]
        changed = {at for at, byte in here.stack.items() if there.stack[at] != byte}
        assert changed <= set(range(-296, -288)), texts[n // STATES]
        exits[n // STATES, there.exit] += 1
    assert len(exits) > len(RUN) + 12, "conditions are true and false"
    assert {number for _, number in exits} == {0, 1, 2, 3}


@pytest.mark.scaled
def test_functions_that_return_twice() -> None:
    """glibc's, by what they do."""
    path = Path("/usr/powerpc64le-linux-gnu/lib/libc.so.6")
    if not path.exists():
        pytest.skip("install libc6-ppc64el-cross")
    with path.open("rb") as file:
        elf = ELFFile(file)
        text = elf.get_section_by_name(".text")
        code, start = text.data(), text["sh_addr"]
        symbols = list(elf.get_section_by_name(".dynsym").iter_symbols())
    places = {one.name: one["st_value"] for one in symbols if one["st_info"]["type"] == "STT_FUNC"}
    known = {"setjmp", "_setjmp", "__sigsetjmp", "getcontext", "vfork", "__vfork"}
    others = random.Random(2).sample(sorted(places), scaled(len(places), 100))
    twice = {
        name
        for name in {*known, "swapcontext", *others}
        if returns_twice(
            ARCH, places[name], lambda at: code[at - start :][:512] if at >= start else b""
        )
    }
    assert twice == known
