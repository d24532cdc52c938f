# SPDX-License-Identifier: MIT
"""The code of probes in a kernel on disk, under Unicorn: what it sends and what it leaves alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ftpatch.arch.boot import Assembly, Events, Wanted, boot_tracer_of
from ftpatch.arch.kernel_probe import (
    TEXT,
    Aim,
    First,
    Hook,
    HookProbe,
    Laid,
    Read,
    Value,
    kernel_probe_of,
    lay_hooks,
)
from ftpatch.boot.hook_hits import BootHits
from ftpatch.boot.hooks import Hooked
from ftpatch.boot.stream import Decoder
from ftpatch.trace.hits import Column

from .test_boot_tracer import source_of

ARCHES = ("x86_64", "arm64", "riscv64")
UNICORN = {"x86_64": ("X86", "64"), "arm64": ("ARM64", "ARM"), "riscv64": ("RISCV", "RISCV64")}
CODE, WORDS, STACK, MEMORY, KERNEL = 0x10_0000, 0x20_0000, 0x30_0000, 0x40_0000, 0x50_0000
TOP = STACK + 0x8000
PAGE = 0x1000
SITE = 0x4000
BACK = CODE + 0x5000
"""A caller of the function."""
INSTANCES = 2
EFAULT = 14
FIRST = {"x86_64": (7, 6, 2), "arm64": (0, 1, 2), "riscv64": (10, 11, 12)}
"""Numbers of the first arguments' registers."""
RESULT = {"x86_64": 0, "arm64": 0, "riscv64": 10}
SP = {"x86_64": 4, "arm64": 31, "riscv64": 2}
LINKS = {"arm64": (9, 30, 30), "riscv64": (1, 5, 1)}
"""Where the function returns, at its site; where the site's call does; and the first, behind it."""
CHANGED = {
    "x86_64": (0, 1, 2, 6, 7, 8, 9, 10, 11),
    "arm64": range(18),
    "riscv64": (5, 6, 7, *range(10, 18), *range(28, 32)),
}
"""By any C function."""
LIVE = {
    "x86_64": tuple(n for n in range(16) if n != 4),
    "arm64": (*range(9), *range(18, 30)),
    "riscv64": (3, 4, *range(8, 28)),
}
"""At a function's entry."""
SEEN = {
    "x86_64": (0, 2, 3, 5, *range(12, 16)),
    "arm64": (*range(8), *range(19, 30)),
    "riscv64": (3, 4, *range(8, 28)),
}
"""By a caller, when a function has returned."""
RET = {"x86_64": "c3", "arm64": "c0035fd6", "riscv64": "67800000"}
STOPS = {"arm64": "00005ed4", "riscv64": "73001000"}
"""hlt #0xf000, ebreak: calls of the emulator, with a second argument."""
READER = {"copy_from_kernel_nofault": KERNEL, "strncpy_from_kernel_nofault": KERNEL + 0x100}


class _Machine:
    """A processor on which functions are called that have hooks, and what the tracer sent."""

    def __init__(self, arch: str, probes: Sequence[HookProbe]) -> None:
        u: Any = pytest.importorskip("unicorn", reason="pip install unicorn")
        self.arch, self.sent = arch, b""
        kind, mode = UNICORN[arch]
        self.uc: Any = u.Uc(getattr(u, f"UC_ARCH_{kind}"), getattr(u, f"UC_MODE_{mode}"))
        sink = "debugcon" if arch == "x86_64" else "semihosting"
        tracer = boot_tracer_of(arch).assemble(Wanted(sink, False, WORDS + 0x800 - CODE))
        self.laid, code = _assembled(arch, tracer.code, tracer.entry, probes)
        for at in (CODE, WORDS, STACK, MEMORY, KERNEL):
            self.uc.mem_map(at, 16 * PAGE)
        self.uc.mem_write(CODE, code)
        self.uc.mem_write(WORDS + 0x800, (1 << 30).to_bytes(4, "little"))
        if kind == "X86":
            import unicorn.x86_const as names

            texts = [f"R{n}" for n in ("AX", "CX", "DX", "BX", "SP", "BP", "SI", "DI")]
            texts += [f"R{n}" for n in range(8, 16)]
            self.uc.hook_add(u.UC_HOOK_INSN, self._out, None, 1, 0, names.UC_X86_INS_OUT)
        elif kind == "ARM64":
            import unicorn.arm64_const as names

            texts = [f"X{n}" for n in range(31)] + ["SP"]
        else:
            import unicorn.riscv_const as names

            texts = [f"X{n}" for n in range(32)]
        if arch in STOPS:
            self.uc.hook_add(u.UC_HOOK_CODE, self._semihosting)
        ret = bytes.fromhex(RET[arch])
        self.uc.mem_write(KERNEL, ret * (0x200 // len(ret)))
        self.names: Any = names
        self.registers = [getattr(names, f"UC_{kind}_REG_{text}") for text in texts]
        self.pc = getattr(names, f"UC_{kind}_REG_{'RIP' if kind == 'X86' else 'PC'}")
        self.sp = self.registers[SP[arch]]
        self.uc.hook_add(u.UC_HOOK_CODE, self._reads, None, KERNEL, KERNEL + 0x200)

    def _out(self, uc: Any, port: int, size: int, value: int, _: Any) -> None:  # noqa: ANN401
        self.sent += bytes([value])

    def _semihosting(self, uc: Any, at: int, size: int, _: Any) -> None:  # noqa: ANN401
        if bytes(uc.mem_read(at, 4)) == bytes.fromhex(STOPS[self.arch]):
            text = bytes(uc.mem_read(uc.reg_read(self.registers[FIRST[self.arch][1]]), 64))
            self.sent += text[: text.index(0)]
            uc.reg_write(self.pc, at + 4)

    def _reads(self, uc: Any, at: int, size: int, _: Any) -> None:  # noqa: ANN401
        """The kernel's function: it changes all that a C function may change."""
        order = FIRST[self.arch]
        to, place, count = (uc.reg_read(self.registers[n]) for n in order)
        for number in CHANGED[self.arch]:
            uc.reg_write(self.registers[number], random.Random(number).randrange(1 << 62))
        done = 0
        if MEMORY <= place < MEMORY + PAGE:
            held = bytes(uc.mem_read(place, count))
            if at != KERNEL:
                held = held[: held.index(0) + 1] if 0 in held else held[:-1] + b"\0"
                done = len(held)
            uc.mem_write(to, held)
        else:
            done = -EFAULT % (1 << 64)
        uc.reg_write(self.registers[RESULT[self.arch]], done)

    def enter(self, sp: int, back: int) -> int:
        """Call the function from its site with ``sp``, returning to ``back``; return where it will
        return to. Every register that lives at a function's entry must stay."""
        chance = random.Random(sp)
        x86 = self.arch == "x86_64"
        kept = LIVE[self.arch]
        for number in kept:
            self.uc.reg_write(self.registers[number], chance.randrange(1 << 62))
        self.prepare()
        site = CODE + SITE
        if x86:
            self.uc.mem_write(sp - 8, site.to_bytes(8, "little") + back.to_bytes(8, "little"))
            self.uc.reg_write(self.sp, sp - 8)
        else:
            self.uc.reg_write(self.sp, sp)
            for number, value in zip(LINKS[self.arch], (back, site), strict=False):
                self.uc.reg_write(self.registers[number], value)
        before = [self.uc.reg_read(self.registers[n]) for n in kept]
        self.uc.emu_start(CODE + self.laid.entries[0], site, count=20000)
        assert [self.uc.reg_read(self.registers[n]) for n in kept] == before
        assert self.uc.reg_read(self.pc) == site
        assert self.uc.reg_read(self.sp) == sp
        if x86:
            return int.from_bytes(self.uc.mem_read(sp, 8), "little")
        return int(self.uc.reg_read(self.registers[LINKS[self.arch][2]]))

    def prepare(self) -> None:
        """Set arguments, before a call."""

    def leave(self, sp: int, to: int, until: int, result: int) -> None:
        """Return ``result`` to ``to``; it must get back ``until``, with what a caller looks at."""
        x86 = self.arch == "x86_64"
        kept = SEEN[self.arch]
        self.uc.reg_write(self.registers[RESULT[self.arch]], result)
        self.uc.reg_write(self.sp, sp + 8 * x86)
        before = [self.uc.reg_read(self.registers[n]) for n in kept]
        self.uc.emu_start(to, until, count=20000)
        assert [self.uc.reg_read(self.registers[n]) for n in kept] == before
        assert self.uc.reg_read(self.pc) == until
        assert self.uc.reg_read(self.sp) == sp + 8 * x86

    def hits(self, fields: Sequence[Sequence[Sequence[Any]]], returns: Sequence[bool]) -> BootHits:
        """Decode what was sent; ``fields`` of each probe, as a record has them."""
        rows = np.array(sorted(self.laid.places), np.int64)
        probes = tuple(
            {
                "name": f"p{number}",
                "text": "p f",
                "symbol": "f",
                "ip": CODE + SITE,
                "site": CODE + SITE,
                "returns": back,
                "offset": 0,
                "way": "pad",
                "fields": list(one),
            }
            for number, (one, back) in enumerate(zip(fields, returns, strict=True))
        )
        hooked = Hooked(
            probes=probes, place=rows[:, 0], probe=rows[:, 1], value=rows[:, 2], part=rows[:, 3]
        )
        source = replace(
            source_of(self.arch, time=False, sites=rows[:, 0].tolist()),
            hooks=np.ones(len(rows), bool),
            hooked=hooked,
        )
        decoder = Decoder(source)
        events = list(decoder.feed(np.frombuffer(self.sent, np.uint8)))
        decoder.finish()
        assert not decoder.skipped
        whole = Events.concat(events)
        return BootHits(whole, source, np.zeros(len(whole.place), np.int32))


def _assembled(
    arch: str, tracer: bytes, entry: int, probes: Sequence[HookProbe]
) -> tuple[Laid, bytes]:
    out = Assembly(arch, tracer + bytes(-len(tracer) % 16))
    aim = Aim(
        at=CODE,
        entry=entry,
        words=WORDS - CODE,
        instances=WORDS + 16 - CODE,
        callees={name: at - CODE for name, at in READER.items()},
        span=0x4000,
    )
    laid = lay_hooks(out, kernel_probe_of(arch), [Hook(CODE + SITE, tuple(probes))], aim)
    return laid, bytes(out.code)


def _values(hits: BootHits, number: int) -> list[Column]:
    rows = np.flatnonzero(hits.point == number)
    return list(hits.group(number, rows).values)


@pytest.mark.parametrize("arch", ARCHES)
def test_arguments_memory_and_strings(arch: str) -> None:
    one, two, three = FIRST[arch]
    probe = HookProbe(
        (
            Value(First.REGISTER, one, (), 8),
            Value(First.REGISTER, one, (), 2),
            Value(First.REGISTER, two, (Read(8, 8, False), Read(0, 4, False)), 4),
            Value(First.REGISTER, two, (Read(16, 8, False), Read(-4, 0, False)), 0),
            Value(First.REGISTER, three, (Read(0, 8, False),), 8),
            Value(First.ADDRESS, MEMORY + 24, (Read(0, 1, False),), 1),
            None,
            Value(First.STACK, 0, (), 8),
        ),
        returns=False,
    )
    machine = _Machine(arch, [probe])
    held = (MEMORY + 64).to_bytes(8, "little") + (MEMORY + 132).to_bytes(8, "little") + b"\xfe"
    machine.uc.mem_write(MEMORY + 8, held)
    machine.uc.mem_write(MEMORY + 64, (0x89ABCDEF).to_bytes(4, "little"))
    machine.uc.mem_write(MEMORY + 128, b"/etc/passwd\0")
    number = 0xFEDC_BA98_7654_3210

    def prepare() -> None:
        for register, value in ((one, number), (two, MEMORY), (three, 0xBAD0_0000_0000)):
            machine.uc.reg_write(machine.registers[register], value)

    machine.prepare = prepare  # type: ignore[method-assign]
    back = BACK
    assert machine.enter(TOP, back) == back
    machine.uc.mem_write(MEMORY + 128, b"x" * 200)  # a string that is cut
    assert machine.enter(TOP - 0x100, back) == back
    fields = [
        ["a", "pointer_value", 0, 8, None, False],
        ["b", "int_value", 0, 2, None, False],
        ["c", "int_value", 0, 4, None, False],
        ["d", "string", TEXT - 1, 0, None, False],
        ["e", "uint_value", 0, 8, None, False],
        ["f", "int_value", 0, 1, None, False],
        ["g", "int_value", 0, 1, "-7", False],
        ["h", "pointer_value", 0, 8, None, False],
    ]
    hits = machine.hits([fields], [False])
    assert len(hits) == 2 and not hits.torn
    found = _values(hits, 0)
    assert found[0].number.tolist() == [number] * 2
    assert found[1].number.tolist() == [0x3210] * 2
    assert found[2].number.tolist() == [0x89ABCDEF - (1 << 32)] * 2
    assert found[3].strings() == [b"/etc/passwd", b"x" * (TEXT - 1)]
    assert found[3].cut.tolist() == [False, True]
    assert found[4].lost.tolist() == [True, True]
    assert not any(one.lost.any() for index, one in enumerate(found) if index != 4)
    assert found[5].number.tolist() == [-2, -2]
    assert found[6].number.tolist() == [-7, -7]
    assert found[7].number.tolist() == [TOP, TOP - 0x100]


RETURNS = {
    arch: HookProbe((Value(First.REGISTER, number, (), 8),), returns=True, instances=INSTANCES)
    for arch, number in RESULT.items()
}
VALUE = [["ret", "pointer_value", 0, 8, None, False]]


@pytest.mark.parametrize("arch", ARCHES)
def test_returns_nest_and_are_missed(arch: str) -> None:
    """As many calls at once as there are instances; each gets back to its own caller."""
    machine = _Machine(arch, [RETURNS[arch]])
    backs = [BACK + 0x10 * n for n in range(INSTANCES + 1)]
    places = [TOP - 0x100 * n for n in range(INSTANCES + 1)]
    tos = [machine.enter(sp, back) for sp, back in zip(places, backs, strict=True)]
    assert tos[-1] == backs[-1]  # missed
    assert CODE <= tos[0] == tos[1] < CODE + SITE
    for number in reversed(range(INSTANCES)):
        machine.leave(places[number], tos[number], backs[number], 0x1_0000_0000_0000 + number)
    assert machine.enter(TOP, backs[0]) == tos[0]  # free again
    machine.leave(TOP, tos[0], backs[0], 5)
    hits = machine.hits([VALUE], [True])
    assert hits.points[0].missed == 1
    assert _values(hits, 0)[0].number.tolist() == [0x1_0000_0000_0001, 0x1_0000_0000_0000, 5]
    assert hits.group(0, np.arange(3)).caller.tolist() == [backs[1], backs[0], backs[0]]
    assert (hits.begin < hits.time).all()


@pytest.mark.parametrize("arch", ARCHES)
def test_a_tail_call_of_itself(arch: str) -> None:
    """Both calls return, the inner one into the code that the outer one returns to."""
    machine = _Machine(arch, [RETURNS[arch]])
    back = BACK
    to = machine.enter(TOP, back)
    assert machine.enter(TOP, to) == to
    machine.leave(TOP, to, back, 7)
    hits = machine.hits([VALUE], [True])
    assert _values(hits, 0)[0].number.tolist() == [7, 7]
    assert hits.group(0, np.arange(2)).caller.tolist() == [to, back]


@pytest.mark.parametrize("arch", ARCHES)
def test_a_task_that_died_leaves_its_instance(arch: str) -> None:
    """The next one with that stack takes it, and others do not return through it."""
    machine = _Machine(arch, [RETURNS[arch]])
    dead, back = BACK, BACK + 16
    to = machine.enter(TOP, dead)
    for turn in range(2 * INSTANCES):
        assert machine.enter(TOP, back) == to, turn
        machine.leave(TOP, to, back, turn)
        machine.enter(TOP, dead)
    hits = machine.hits([VALUE], [True])
    assert hits.points[0].missed == 0
    assert _values(hits, 0)[0].number.tolist() == list(range(2 * INSTANCES))


@pytest.mark.parametrize("arch", ARCHES)
def test_two_probes_of_one_function(arch: str) -> None:
    """The entry's values come before the call, and both r probes see the return."""
    entry = HookProbe((Value(First.REGISTER, FIRST[arch][0], (), 4),), returns=False)
    machine = _Machine(arch, [entry, RETURNS[arch], RETURNS[arch]])
    back = BACK
    to = machine.enter(TOP, back)
    assert to != back
    machine.leave(TOP, to, back, 9)
    hits = machine.hits([VALUE] * 3, [False, True, True])
    assert [len(_values(hits, n)[0].number) for n in range(3)] == [1, 1, 1]
    assert hits.point.tolist() == [0, 2, 1]
    callers = [hits.group(n, np.flatnonzero(hits.point == n)).caller.tolist() for n in (1, 2)]
    assert callers == [[back], [back]]


@pytest.mark.parametrize("arch", ARCHES)
def test_reads_do_not_nest_for_ever(arch: str) -> None:
    """With many under way, the kernel's function is not called."""
    one = FIRST[arch][0]
    machine = _Machine(
        arch, [HookProbe((Value(First.REGISTER, one, (Read(0, 8, False),), 8),), False)]
    )
    machine.uc.mem_write(MEMORY, (77).to_bytes(8, "little"))
    machine.prepare = lambda: machine.uc.reg_write(machine.registers[one], MEMORY)  # type: ignore[method-assign]
    for under_way in (0, 7, 8, 100):
        machine.uc.mem_write(WORDS, under_way.to_bytes(4, "little"))
        machine.enter(TOP, BACK)
        assert int.from_bytes(machine.uc.mem_read(WORDS, 4), "little") == under_way
    found = _values(machine.hits([[["v", "uint_value", 0, 8, None, False]]], [False]), 0)[0]
    assert found.lost.tolist() == [False, False, True, True]
    assert found.number[:2].tolist() == [77, 77]


NOPS = {
    "x86_64": bytes.fromhex("0f1f440000"),
    "arm64": bytes.fromhex("1f2003d5"),
    "riscv64": bytes.fromhex("0100" * 4),
}
FLAGS = {"x86_64": ("EFLAGS", 16, 0xCD5 | 2), "arm64": ("NZCV", 32, 0xA << 28)}
"""The flags' register, its number, and a value: on x86 with DF, which no C function may meet."""
EVERY = {
    "x86_64": range(16),
    "arm64": range(31),
    "riscv64": tuple(n for n in range(1, 32) if n not in (2, 3)),  # sp; gp, through which jumps go
}


@pytest.mark.parametrize("arch", ARCHES)
def test_a_jump_leaves_every_register(arch: str) -> None:
    """In the middle of a function flags are live, and what a site's caller saves."""
    numbers = [n for n in EVERY[arch] if n != SP[arch]]
    flags = {name: held for name, _, held in filter(None, [FLAGS.get(arch)])}
    fetched = [*numbers, *(number for _, number, _ in filter(None, [FLAGS.get(arch)]))]
    reads = Value(First.REGISTER, FIRST[arch][0], (Read(0, 8, False),), 8)
    values = (*(Value(First.REGISTER, n, (), 8) for n in fetched), reads)
    machine = _Machine(arch, [])
    tracer = boot_tracer_of(arch)
    sink = tracer.sinks[0]
    laid = tracer.assemble(Wanted(sink, False, WORDS + 0x800 - CODE))
    out = Assembly(arch, laid.code + bytes(-len(laid.code) % 16))
    callees = {name: at - CODE for name, at in READER.items()}
    aim = Aim(CODE, laid.entry, WORDS - CODE, 0, callees, 0x4000)
    hook = Hook(CODE + SITE, (HookProbe(values, returns=False),), NOPS[arch], inside=True)
    machine.laid = lay_hooks(out, kernel_probe_of(arch), [hook], aim)
    machine.uc.mem_write(CODE, bytes(out.code))
    machine.uc.mem_write(MEMORY, (77).to_bytes(8, "little"))
    kind = UNICORN[arch][0]
    named = {getattr(machine.names, f"UC_{kind}_REG_{name}"): held for name, held in flags.items()}
    chance = random.Random(arch)
    held = {n: chance.randrange(1 << 62) for n in numbers} | {FIRST[arch][0]: MEMORY}
    for n, value in held.items():
        machine.uc.reg_write(machine.registers[n], value)
    for name, value in named.items():
        machine.uc.reg_write(name, value)
    machine.uc.reg_write(machine.sp, TOP)
    above = chance.randbytes(0x200)
    machine.uc.mem_write(TOP, above)
    end = CODE + SITE + len(NOPS[arch])
    machine.uc.emu_start(CODE + machine.laid.entries[0], end, count=20000)
    assert {n: machine.uc.reg_read(machine.registers[n]) for n in numbers} == held
    assert {name: machine.uc.reg_read(name) for name in named} == named
    assert machine.uc.reg_read(machine.sp) == TOP
    assert machine.uc.reg_read(machine.pc) == end
    assert machine.uc.mem_read(TOP, len(above)) == above
    fields = [[f"v{n}", "pointer_value", 0, 8, None, False] for n in range(len(values))]
    found = [one.number.tolist() for one in _values(machine.hits([fields], [False]), 0)]
    assert found == [*([held[n]] for n in numbers), *([value] for value in flags.values()), [77]]
