# SPDX-License-Identifier: MIT
"""The boot tracer without a boot: its code under Unicorn, damaged streams, depth from pointers."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ftpatch.arch.boot import (
    MEMORY,
    BootTracer,
    Events,
    Mark,
    Slots,
    Wanted,
    boot_tracer_of,
    read_mark,
)
from ftpatch.boot.calls import Calls
from ftpatch.boot.stream import Decoder, Source
from ftpatch.trace.decode import Event
from tests.support.command import ftpatch
from tests.support.ppc_tracer import PpcMachine

CODE, WORD, STACK = 0x10_0000, 0x20_0000, 0x30_0000
ARCHES = ("x86_64", "i386", "arm64", "riscv64", "ppc64le")
SENT = (
    *((arch, "") for arch in ARCHES),
    *(("riscv64", "sbi"), ("riscv64", "sbi of before 2.0")),
    *(("ppc64le", "hvc without"), ("ppc64le", "hvc busy")),
)
"""Architectures, and the sink if that is not the first one."""
PAGE = 0x1000


class _Machine:
    """One call of a tracer from a site behind it, and what it sent."""

    def __init__(self, arch: str, wanted: Wanted, count: int, *, old: bool = False) -> None:
        """``old``: the firmware has only the calls of before version 2.0."""
        self.u = pytest.importorskip("unicorn", reason="pip install unicorn")
        kind, mode = {
            "x86_64": ("X86", "64"),
            "i386": ("X86", "32"),
            "arm64": ("ARM64", "ARM"),
            "riscv64": ("RISCV", "RISCV64"),
        }[arch]
        self.arch, self.sent, self.old = arch, b"", old
        self.uc: Any = self.u.Uc(
            getattr(self.u, f"UC_ARCH_{kind}"), getattr(self.u, f"UC_MODE_{mode}")
        )
        self.tracer = _tracer(arch)
        self.laid = self.tracer.assemble(wanted)
        for at in (CODE, WORD, STACK):
            self.uc.mem_map(at, 16 * PAGE)
        self.uc.mem_map(WORD - PAGE, PAGE)
        self.uc.mem_write(CODE, self.laid.code)
        self.uc.mem_write(WORD, count.to_bytes(4, "little"))
        if kind == "X86":
            import unicorn.x86_const as names

            r = "R" if arch == "x86_64" else "E"
            texts = [f"{r}{name}" for name in ("AX", "BX", "CX", "DX", "SI", "DI", "BP")]
            texts += [f"R{i}" for i in range(8, 16)] if r == "R" else []
            hook, insn = self.u.UC_HOOK_INSN, names.UC_X86_INS_OUT
            self.uc.hook_add(hook, self._out, None, 1, 0, insn)
            self.pc, self.sp = (getattr(names, f"UC_X86_REG_{r}{n}") for n in ("IP", "SP"))
            texts.append("EFLAGS")
        elif kind == "RISCV":
            import unicorn.riscv_const as names

            texts = [f"X{i}" for i in (1, 3, 4, *range(8, 28))]
            self.uc.hook_add(self.u.UC_HOOK_CODE, self._riscv)
            self.pc, self.sp = names.UC_RISCV_REG_PC, names.UC_RISCV_REG_SP
        else:
            import unicorn.arm64_const as names

            kind, texts = "ARM64", [f"X{i}" for i in (*range(9), *range(18, 31))]
            self.uc.hook_add(self.u.UC_HOOK_CODE, self._semihosting)
            self.pc, self.sp = names.UC_ARM64_REG_PC, names.UC_ARM64_REG_SP
        self.names: Any = names
        self.kept = [getattr(names, f"UC_{kind}_REG_{text}") for text in texts]

    def _out(self, uc: Any, port: int, size: int, value: int, _: Any) -> None:  # noqa: ANN401
        assert (port, size) == (0xE9, 1)
        self.sent += bytes([value])

    def _semihosting(self, uc: Any, at: int, size: int, _: Any) -> None:  # noqa: ANN401
        if bytes(uc.mem_read(at, 4)) == bytes.fromhex("00005ed4"):  # hlt #0xf000
            text = bytes(uc.mem_read(uc.reg_read(self.names.UC_ARM64_REG_X1), 64))
            if uc.reg_read(self.names.UC_ARM64_REG_X0) == 3:  # SYS_WRITEC
                self.sent += text[:1]
            else:
                assert uc.reg_read(self.names.UC_ARM64_REG_X0) == 4  # SYS_WRITE0
                self.sent += text[: text.index(0)]
            uc.reg_write(self.pc, at + 4)

    def _riscv(self, uc: Any, at: int, size: int, _: Any) -> None:  # noqa: ANN401
        """Calls of the firmware, semihosting calls, and the counter, which Unicorn has not."""
        code, read = bytes(uc.mem_read(at, 4)), uc.reg_read
        a0, a1, a6, a7 = (getattr(self.names, f"UC_RISCV_REG_A{n}") for n in (0, 1, 6, 7))
        if code == bytes.fromhex("73001000"):  # ebreak
            around = uc.mem_read(at - 4, 4) + uc.mem_read(at + 4, 4)
            assert around == bytes.fromhex("1310f001 13507040")  # slli x0, x0, 31; srai x0, x0, 7
            assert (at - 4) // PAGE == (at + 7) // PAGE
            text = bytes(uc.mem_read(read(a1), 64))
            assert read(a0) in (3, 4)  # SYS_WRITEC, SYS_WRITE0
            self.sent += text[: 1 if read(a0) == 3 else text.index(0)]
            uc.reg_write(a0, 0x5A5A)  # unspecified
        elif code == bytes.fromhex("73000000"):  # ecall
            if read(a7) == 0x4442434E and read(a6) == 2 and not self.old:
                self.sent += bytes([read(a0)])
                uc.reg_write(a0, 0)
                uc.reg_write(a1, 0x5A5A)
            else:
                putchar = read(a7) == 1
                assert putchar or self.old
                self.sent += bytes([read(a0)] * putchar)
                uc.reg_write(a0, 0 if putchar else -2)  # SBI_ERR_NOT_SUPPORTED
        elif code[0] & 0x7F == 0x73 and code[2:] == bytes.fromhex("10c0"):  # rdtime
            self.ticks = getattr(self, "ticks", 1 << 40) + 7
            number = code[0] >> 7 | (code[1] & 0xF) << 1
            uc.reg_write(getattr(self.names, f"UC_RISCV_REG_X{number}"), self.ticks)
        else:
            return
        uc.reg_write(self.pc, at + 4)

    def call(self, site: int, entry: int, sp: int, returns: int = CODE + 0x1234) -> None:
        """As the site would, in a function that ``returns`` there; every register that lives at a
        function's entry is looked at."""
        chance = random.Random(site)
        for register in self.kept[: None if self.arch in ("arm64", "riscv64") else -1]:
            self.uc.reg_write(register, chance.randrange(1, 1 << 31))
        back = CODE + site
        self.uc.reg_write(self.sp, sp)
        if self.arch == "arm64":
            self.uc.reg_write(self.names.UC_ARM64_REG_X9, returns)
            self.uc.reg_write(self.names.UC_ARM64_REG_X30, back)
        elif self.arch == "riscv64":
            self.uc.reg_write(self.names.UC_RISCV_REG_X5, back)  # t0
            self.uc.reg_write(self.names.UC_RISCV_REG_X1, returns)  # ra
        else:
            word = 8 if self.arch == "x86_64" else 4
            self.uc.mem_write(sp - word, back.to_bytes(word, "little"))
            self.uc.mem_write(sp, returns.to_bytes(word, "little"))
            self.uc.reg_write(self.sp, sp - word)
        before = [self.uc.reg_read(register) for register in self.kept]
        self.uc.emu_start(CODE + entry, back, count=2000)
        after = [self.uc.reg_read(register) for register in self.kept]
        if self.arch == "arm64":
            before[-1] = returns  # lr is the caller's again
        assert after[:-1] == before[:-1]
        if self.arch in ("arm64", "riscv64"):
            assert after[-1] == before[-1]
        assert self.uc.reg_read(self.pc) == back
        assert self.uc.reg_read(self.sp) == sp


def _machine(arch: str, wanted: Wanted, count: int, more: str = "") -> _Machine | PpcMachine:
    """``more``: what the machine is like."""
    if arch == "ppc64le":
        return PpcMachine(wanted, count, more)
    return _Machine(arch, wanted, count, old=bool(more))


def _tracer(arch: str) -> BootTracer:
    tracer = boot_tracer_of(arch)
    assert tracer is not None
    return tracer


def source_of(arch: str, *, time: bool, sites: list[int], sink: int = 0) -> Source:
    """A tracer at CODE, and the sites that call it, as distances from there."""
    tracer = _tracer(arch)
    places = np.array(sorted(sites), np.int64)
    ip = (places + (CODE - tracer.behind)).astype(np.uint64)
    return Source(
        tracer=tracer,
        mark=Mark(sink=sink, time=time),
        at=CODE,
        places=places,
        ip=ip,
        last=np.zeros(len(ip), bool),
        hooks=np.zeros(len(ip), bool),
    )


@pytest.mark.parametrize(("arch", "sink"), SENT)
@pytest.mark.parametrize("time", [False, True])
def test_registers_survive_and_events_arrive(arch: str, sink: str, time: bool) -> None:
    name = sink.partition(" ")[0] or _tracer(arch).sinks[0]
    machine = _machine(arch, Wanted(name, time, WORD - CODE), 3, sink.partition(" ")[2])
    sites, pointers = [0x8000, 0x8010, 0x8020], [STACK + 0x8000, STACK + 0x7FC0, STACK + 0x7F00]
    returns = [CODE + 0x9000, CODE - 0x20, CODE + 0x7FFF_FFF0]
    for site, sp, to in zip(sites, pointers, returns, strict=True):
        machine.call(site, machine.laid.entry, sp, to)
    decoder = Decoder(source_of(arch, time=time, sites=sites))
    (events,) = decoder.feed(np.frombuffer(machine.sent, np.uint8))
    assert events.place.tolist() == sites
    assert events.sp.tolist() == pointers
    assert events.back is not None and events.back.tolist() == [to - CODE for to in returns]
    assert decoder.skipped == 0
    machine.call(0x8000, machine.laid.entry, STACK + 0x8000)  # the fourth of three
    assert len(machine.sent) == 3 * _tracer(arch).size(time=time)


@pytest.mark.parametrize("arch", ARCHES)
def test_the_last_function_stops_a_ring(arch: str) -> None:
    machine = _machine(arch, Wanted(MEMORY, False, WORD - CODE), 1000)
    for entry in (machine.laid.entry, machine.laid.last, machine.laid.entry, machine.laid.last):
        machine.call(0x8000, entry, STACK + 0x8000)
    assert machine.uc.mem_read(WORD + Slots.HEAD, 4) == (2).to_bytes(4, "little")


@pytest.mark.parametrize("arch", ARCHES)
def test_the_last_function_is_told_and_stops_it(arch: str) -> None:
    sink = _tracer(arch).sinks[0]
    machine = _machine(arch, Wanted(sink, False, WORD - CODE), 1000)
    machine.call(0x8000, machine.laid.last, STACK + 0x8000)
    told = machine.sent
    assert len(told) == _tracer(arch).size(time=False)
    machine.call(0x8000, machine.laid.entry, STACK + 0x8000)
    machine.call(0x8000, machine.laid.last, STACK + 0x8000)
    assert machine.sent == told


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("time", [False, True])
def test_a_ring_is_filled_and_waits_for_its_reader(arch: str, time: bool) -> None:
    machine = _machine(arch, Wanted(MEMORY, time, WORD - CODE), 1 << 20)
    slots, head = Slots(time), WORD + Slots.HEAD
    number = slots.count
    machine.uc.mem_write(head, (0xFFFF_FFFF).to_bytes(4, "little") * 2)  # both are about to wrap
    sites = [0x8000 + 16 * i for i in range(number)]
    returns = [CODE + 0x9000 - 4 * i for i in range(number)]
    pointers = [STACK + 0x8000 - 16 * i for i in range(number)]
    for site, sp, to in zip(sites, pointers, returns, strict=True):
        machine.call(site, machine.laid.entry, sp, to)
    assert len(machine.sent) == 2  # the reader is told twice a round
    raw = machine.uc.mem_read(WORD - Slots.RING, slots.count * slots.size)
    rows = np.frombuffer(bytes(raw), np.uint8).reshape(number, -1)
    events = slots.read(np.roll(rows, 1, axis=0))
    assert events.place.tolist() == sites
    assert events.sp.tolist() == pointers
    assert events.back is not None and events.back.tolist() == [to - CODE for to in returns]
    assert not time or (np.diff(events.time.astype(np.int64)) >= 0).all()
    with pytest.raises(AssertionError):  # it waits: no count of instructions brings it back
        machine.call(0x9000, machine.laid.entry, STACK + 0x8000)
    machine.uc.mem_write(WORD + Slots.TAIL, (1).to_bytes(4, "little"))  # two have been taken
    machine.call(0xA000, machine.laid.entry, STACK + 0x8000)  # the one that waited has the other
    first = bytes(machine.uc.mem_read(WORD - Slots.RING, 4))
    assert first == (0xA000).to_bytes(4, "little")


@pytest.mark.parametrize("arch", ARCHES)
def test_the_code_has_no_address_of_its_own(arch: str) -> None:
    for sink in _tracer(arch).sinks:
        laid = _tracer(arch).assemble(Wanted(sink, True, None))
        assert laid.last == 0
        number = _tracer(arch).sinks.index(sink)
        assert read_mark(laid.code) == Mark(
            sink=number, time=True, entry=laid.entry, last=laid.last
        )
        assert len(laid.code) < 600


@pytest.mark.parametrize("arch", ARCHES)
def test_damaged_streams_are_found_again(arch: str) -> None:
    sink = _tracer(arch).sinks[0]
    machine = _machine(arch, Wanted(sink, False, None), 0)
    sites = [0x8000 + 16 * i for i in range(8)]
    for i in range(400):
        machine.call(sites[i % 8], machine.laid.entry, STACK + 0x8000 - 16 * (i % 50))
    chance = random.Random(7)
    size = _tracer(arch).size(time=False)
    raw = bytearray(machine.sent)
    cut = sorted(chance.sample(range(399), 20), reverse=True)
    for number in cut:  # part of an event is lost, and a line of text stands in its place
        at = number * size
        raw[at + 2 : at + size - 1] = b"[    0.000000] text\r\n"[: chance.randrange(1, 20)]
    decoder = Decoder(source_of(arch, time=False, sites=sites))
    step, found = 97, 0
    for at in range(0, len(raw), step):
        for part in decoder.feed(np.frombuffer(bytes(raw[at : at + step]), np.uint8)):
            found += len(part.place)
            assert set(part.place.tolist()) <= set(sites)
    decoder.finish()
    assert found == 400 - len(cut)
    assert decoder.skipped == len(raw) - found * size


def test_depth_follows_from_stack_pointers() -> None:
    top = 0x8000
    sp = np.array([top, top - 64, top - 128, top - 64, 0x10000, top - 64, top], np.uint64)
    events = Events(np.zeros(7, np.int64), sp, np.arange(7, dtype=np.uint64))
    func = np.arange(1, 8, dtype=np.uint32)
    (batch,) = Calls([events], func, np.zeros(7, np.uint32), 0x4000)
    first = batch.thread == 0
    seen = list(zip(batch.type[first].tolist(), batch.func[first].tolist(), strict=True))
    enter, leave = int(Event.ENTRY), int(Event.EXIT)
    assert seen == [
        (enter, 1), (enter, 2), (enter, 3), (leave, 3), (leave, 2), (enter, 4),
        (leave, 4), (enter, 6), (leave, 6), (leave, 1), (enter, 7),
    ]  # fmt: skip
    assert batch.func[~first].tolist() == [5]


def test_options_are_for_the_boot_tracer_only(tmp_path: Path) -> None:
    done = ftpatch("enable", "/bin/true", "--max", "5", "-o", str(tmp_path / "out"))
    assert done.code == 2
    assert "require --tracer boot" in done.err


def _seen(rows: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """Of events (stack pointer, function, caller) on one stack: (depth, function) of each."""
    sp, func, caller = (np.array(column) for column in zip(*rows, strict=True))
    count = len(rows)
    events = Events(np.zeros(count, np.int64), sp.astype(np.uint64), np.arange(count, dtype="u8"))
    batches = Calls([events], func.astype("u4"), caller.astype("u4"), 0x4000)
    depth, seen, opened = 0, [], list[int]()
    for batch in batches:
        for kind, function in zip(batch.type.tolist(), batch.func.tolist(), strict=True):
            if kind == Event.EXIT:
                assert opened.pop() == function
                depth -= 1
            else:
                seen.append((depth, function))
                opened.append(function)
                depth += 1
    return seen


@pytest.mark.parametrize(
    ("rows", "depths"),
    [
        # 2 has returned when 1 calls 3 from deeper in its own frame
        ([(900, 1, 0), (800, 2, 1), (700, 3, 1), (600, 4, 3)], [0, 1, 1, 2]),
        # the same where the caller is not known: by stack pointers
        ([(900, 1, 0), (800, 2, 1), (700, 3, 0), (600, 4, 3)], [0, 1, 2, 3]),
        # a caller that has no event
        ([(900, 1, 0), (800, 2, 1), (700, 3, 9)], [0, 1, 2]),
        # recursion: the innermost
        ([(900, 1, 0), (800, 1, 1), (700, 1, 1), (600, 2, 1)], [0, 1, 2, 3]),
        # the inner one has returned
        ([(900, 1, 0), (800, 1, 1), (800, 2, 1)], [0, 1, 1]),
        # a tail call: 2 jumps to 3, which returns to 1
        ([(900, 1, 0), (800, 2, 1), (800, 3, 1), (700, 4, 3)], [0, 1, 1, 2]),
        # ... and, 2 having had arguments on the stack, to a higher frame of 1's callee
        ([(900, 1, 0), (800, 2, 1), (700, 5, 2), (790, 3, 1)], [0, 1, 2, 1]),
        # an interrupt's handler is called by assembly; behind it, 2 goes on
        ([(900, 1, 0), (800, 2, 1), (600, 7, 0), (500, 8, 7), (700, 3, 2)], [0, 1, 2, 3, 2]),
        # what 2 called has ended with it, and so has what was below
        ([(900, 1, 0), (800, 2, 1), (700, 3, 2), (650, 4, 3), (600, 5, 1)], [0, 1, 2, 3, 1]),
        # the event of the second 2 is missing: 4 is below what is there
        ([(900, 1, 0), (800, 2, 1), (700, 3, 1), (600, 4, 2)], [0, 1, 1, 2]),
        # a returned caller is not taken up again
        ([(900, 1, 0), (800, 2, 1), (850, 3, 1), (700, 4, 2)], [0, 1, 1, 2]),
    ],
)
def test_callers_are_those_that_are_returned_to(
    rows: list[tuple[int, int, int]], depths: list[int]
) -> None:
    assert _seen(rows) == [(depth, row[1]) for depth, row in zip(depths, rows, strict=True)]


def test_callers_of_many_events_are_those_of_one_by_one() -> None:
    chance = random.Random(11)
    rows, stack = [(16000, 1, 0)], [(16000, 1)]
    for _ in range(3000):
        del stack[chance.randrange(1, len(stack) + 1) if chance.random() < 0.6 else len(stack) :]
        sp, function = stack[-1]
        new = (sp - 8 * chance.randrange(1, 30), chance.randrange(2, 40))
        if new[0] < 4000 or function == new[1] or new[1] in {one for _, one in stack}:
            continue
        rows.append((*new, function))
        stack.append(new)
    wanted, opened = [], list[int]()
    for _, function, caller in rows:
        opened[opened.index(caller) + 1 if caller else 0 :] = [function]
        wanted.append((len(opened) - 1, function))
    assert len(rows) > 1500
    assert _seen(rows) == wanted
    by_pointer = _seen([(sp, function, 0) for sp, function, _ in rows])
    assert by_pointer != wanted


def test_streams_of_older_tracers_are_read() -> None:
    mark = Mark(sink=0, time=False, entry=17, last=0, back=False)
    assert read_mark(mark.pack()) == mark and mark.pack().startswith(b"FTPBOOT1")
    raw = bytes([0xF7]) + (0x8000).to_bytes(4, "little") + (0x8FF8).to_bytes(6, "little")
    source = source_of("x86_64", time=False, sites=[0x8000])
    decoder = Decoder(dataclasses.replace(source, mark=mark))
    (events,) = decoder.feed(np.frombuffer(raw * 2, np.uint8))
    assert events.place.tolist() == [0x8000] * 2 and events.sp.tolist() == [0x8FF8] * 2
    assert events.back is None and decoder.skipped == 0
