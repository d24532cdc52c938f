# SPDX-License-Identifier: MIT
"""Probes in the middle of a real kernel's functions, under Unicorn: is everything as without them?

A place runs twice, with the same random registers, flags and memory: as the kernel has it, until
control leaves the displaced instructions; and from the jump on, until control leaves the hook. What
must be the same: all registers, flags, every byte that was written, and where control is.
"""

from __future__ import annotations

import random
import re
import subprocess
from dataclasses import dataclass, field
from typing import Any

import capstone
import pytest

from ftpatch.arch.boot import Assembly, Wanted, boot_tracer_of
from ftpatch.arch.kernel_probe import (
    Aim,
    First,
    Hook,
    HookProbe,
    Value,
    kernel_probe_of,
    lay_hooks,
)
from ftpatch.errors import UsageError
from ftpatch.ftrace.sites import read_sites
from ftpatch.image import open_image
from ftpatch.inject.kernel_jumps import KernelJump, KernelJumps
from ftpatch.names.functions import read_functions
from tests.support import sampling
from tests.support.sampling import scaled

from .independent import Vmlinux
from .qemu import PREFIX, need

UNICORN = {"x86_64": ("X86", "64"), "arm64": ("ARM64", "ARM"), "riscv64": ("RISCV", "RISCV64")}
SP = {"x86_64": 4, "arm64": 31, "riscv64": 1}
STOPS = {"arm64": "00005ed4", "riscv64": "73001000"}
"""hlt #0xf000, ebreak: calls of the emulator."""
FETCHED = {"x86_64": range(16), "arm64": range(31), "riscv64": (1, 2, *range(4, 32))}
"""Registers of which a probe takes one."""
PAGE = 0x1000
CONSTANTS = {
    "x86_64": (rb"(?<=[\x48\x49][\xb8-\xbf])\xef\xcd\xab\x89\x67\x45\x23\x01", 2),
    "arm64": (rb"[\xe0-\xff]\xbd\x99\xd2(?=.{3}\xf2)", 0),
}
"""movabs of 0x0123456789abcdef, movz of its 0xcdef; and bytes of the instruction before them."""
BASE = 0x4000_0000
"""Where the code runs: what was displaced may depend on distances only."""
HOOK = BASE + 0x400_0000
WORD = HOOK + 0x10_0000
STACK = 0x7000_0000
LOST = 0x400
"""Bytes below the stack pointer that interrupts may overwrite at any time: so may a hook."""
LEAST = 0.4
"""Of the places that are drawn, at least so many can have a probe."""


@dataclass
class _State:
    """What a run left behind."""

    pc: int
    registers: list[int]
    written: dict[int, int]
    sent: int
    fault: str = ""


@dataclass
class _Machine:
    """A processor whose memory appears when it is touched, with random bytes."""

    arch: str
    kernel: Vmlinux
    seed: int
    hook: bytes
    sent: int = 0
    written: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        import unicorn as u

        kind, mode = UNICORN[self.arch]
        self.uc: Any = u.Uc(getattr(u, f"UC_ARCH_{kind}"), getattr(u, f"UC_MODE_{mode}"))
        if kind == "X86":
            import unicorn.x86_const as names

            texts = [f"R{n}" for n in ("AX", "CX", "DX", "BX", "SP", "BP", "SI", "DI")]
            texts += [*(f"R{n}" for n in range(8, 16)), "EFLAGS", "RIP"]
            self.uc.hook_add(u.UC_HOOK_INSN, self._out, None, 1, 0, names.UC_X86_INS_OUT)
        elif kind == "ARM64":
            import unicorn.arm64_const as names

            texts = [*(f"X{n}" for n in range(31)), "SP", "NZCV", "PC"]
        else:  # gp is not looked at, through which jumps go; sp is in the flags' place, too
            import unicorn.riscv_const as names

            texts = [f"X{n}" for n in (1, 2, *range(4, 32))] + ["X2", "PC"]
        self.ids = [getattr(names, f"UC_{kind}_REG_{text}") for text in texts]
        self.sp = self.ids[SP[self.arch]]
        self.uc.hook_add(u.UC_HOOK_CODE, self._step)
        self.uc.hook_add(u.UC_HOOK_MEM_UNMAPPED, self._map)
        self.uc.hook_add(u.UC_HOOK_MEM_WRITE, self._write)
        self.inside = (0, 0)

    def _out(self, uc: Any, port: int, size: int, value: int, _: Any) -> None:  # noqa: ANN401
        self.sent += 1

    def _map(self, uc: Any, kind: int, at: int, size: int, value: int, _: Any) -> bool:  # noqa: ANN401
        for page in {at // PAGE * PAGE, (at + size - 1) // PAGE * PAGE}:
            try:
                uc.mem_map(page, PAGE)
            except Exception:
                continue
            uc.mem_write(page, self._page(page))
        return True

    def _page(self, page: int) -> bytes:
        if HOOK <= page < HOOK + len(self.hook):
            return self.hook[page - HOOK :][:PAGE].ljust(PAGE, b"\0")
        if page == WORD:
            return (1 << 30).to_bytes(4, "little").ljust(PAGE, b"\0")
        held = _read(self.kernel, page + self.bias, PAGE)
        if held is None:
            return random.Random(f"{self.seed} {page}").randbytes(PAGE)
        return held

    @property
    def bias(self) -> int:
        return self.kernel.address("_text") - BASE

    def _write(self, uc: Any, kind: int, at: int, size: int, value: int, _: Any) -> None:  # noqa: ANN401
        if not WORD <= at < WORD + PAGE:
            self.written.update(range(at, at + size))

    def _step(self, uc: Any, at: int, size: int, _: Any) -> None:  # noqa: ANN401
        if self.arch in STOPS and bytes(uc.mem_read(at, 4)) == bytes.fromhex(STOPS[self.arch]):
            self.sent += 1
            uc.reg_write(self.ids[-1], at + 4)
        low, high = self.inside
        if not low <= at < high:
            uc.emu_stop()

    def run(self, start: int, inside: tuple[int, int]) -> _State:
        """Run from an address until control leaves a range."""
        rng = random.Random(self.seed)
        self.inside = inside
        for one in self.ids[:-2]:
            self.uc.reg_write(one, rng.choice((rng.randrange(1 << 46), rng.randrange(1 << 12))))
        flags = rng.randrange(1 << 12) & 0xCD5 | 2 if self.arch == "x86_64" else rng.randrange(16)
        if self.arch != "riscv64":
            self.uc.reg_write(self.ids[-2], flags if self.arch == "x86_64" else flags << 28)
        self.uc.reg_write(self.sp, STACK)
        fault = ""
        try:
            self.uc.emu_start(start, 0, count=4000)
        except Exception as error:
            fault = str(error)
        *registers, pc = (self.uc.reg_read(one) for one in self.ids)
        written = {at: self.uc.mem_read(at, 1)[0] for at in sorted(self.written)}
        return _State(pc, registers, written, self.sent, fault)


def _read(kernel: Vmlinux, at: int, size: int) -> bytes | None:
    """Bytes of the file at an address; None outside of what it loads."""
    for start, offset, held in kernel.sections.values():
        if start and start <= at and at + size <= start + held:
            return kernel.data[offset + at - start :][:size].tobytes()
    return None


def _drawn(kernel: Vmlinux, jumps: KernelJumps, rng: random.Random) -> KernelJump | None:
    """The jump in place of a drawn instruction of a drawn function, or None."""
    mode = {
        "x86_64": (capstone.CS_ARCH_X86, capstone.CS_MODE_64),
        "arm64": (capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM),
        "riscv64": (capstone.CS_ARCH_RISCV, capstone.CS_MODE_RISCV64 | capstone.CS_MODE_RISCVC),
    }[kernel.arch]
    row = rng.randrange(len(jumps.functions.start))
    start, end = int(jumps.functions.start[row]), int(jumps.functions.end[row])
    code = _read(kernel, start, end - start) or b""
    insns = list(capstone.Cs(*mode).disasm(code, start))
    at = rng.choice(insns).address if insns else start
    try:
        return jumps.at(at, None)
    except UsageError:
        return None


def test_everything_is_as_without_them(traceable: Vmlinux) -> None:
    pytest.importorskip("unicorn", reason="pip install unicorn")
    arch = traceable.arch
    if arch not in UNICORN:
        pytest.skip(f"no probes in a kernel on disk for {arch}")
    image = open_image(traceable.path)
    sites = read_sites(image)
    jumps = KernelJumps(sites, read_functions(image))
    rng = random.Random(f"{sampling.FUZZ} {arch}")
    sink = boot_tracer_of(arch).sinks[0]
    tracer = boot_tracer_of(arch).assemble(Wanted(sink, False, WORD - HOOK))
    drawn = ran = 0
    bias = traceable.address("_text") - BASE
    wanted = scaled(250, 40)
    while ran < wanted:
        drawn += 1
        jump = _drawn(traceable, jumps, rng)
        assert drawn < wanted / LEAST + 50, f"{ran} of {drawn}"
        if jump is None:
            continue
        number = rng.choice(FETCHED[arch])
        out = Assembly(arch, tracer.code + bytes(-len(tracer.code) % 16))
        aim = Aim(HOOK, tracer.entry, 0, 0, {}, len(tracer.code))
        values = (Value(First.REGISTER, number, (), 8),)
        hook = Hook(
            jump.site - bias, (HookProbe(values, returns=False),), jump.displaced, inside=True
        )
        laid = lay_hooks(out, kernel_probe_of(arch), [hook], aim)
        code, seed = bytes(out.code), rng.randrange(1 << 30)
        site, end = jump.site - bias, jump.site - bias + len(jump.displaced)
        plain = _Machine(arch, traceable, seed, code).run(site, (site, end))
        if plain.fault or plain.pc == site:
            continue  # privileged, or a loop of one instruction
        probed = _Machine(arch, traceable, seed, code).run(
            HOOK + laid.entries[0], (HOOK, HOOK + len(code))
        )
        where = f"{jump.site:#x} {jump.displaced.hex(' ')}, seed {seed}"
        assert not probed.fault, f"{where}: {probed.fault}"
        assert probed.pc == plain.pc, where
        assert probed.registers == plain.registers, where
        more = probed.written.keys() - plain.written.keys()
        assert all(STACK - LOST <= place < STACK for place in more), where
        assert {place: probed.written.get(place) for place in plain.written} == plain.written
        assert probed.sent >= 3 and not plain.sent, where
        ran += 1


def test_gp_is_only_set_saved_and_restored(traceable: Vmlinux) -> None:
    """GNU's disassembly of all code: jumps go through a register that nothing else looks at."""
    if traceable.arch != "riscv64":
        pytest.skip("jumps need no register")
    objdump = f"{PREFIX['riscv64']}objdump"
    need(objdump)
    sections = [f"-j{name}" for name in (".text", ".init.text", ".exit.text")]
    command = [objdump, "-d", "--no-show-raw-insn", *sections, str(traceable.path)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    text = [line.split("#")[0].split("\t", 1)[-1].strip() for line in out.splitlines()]
    lines = [line for line in text if re.search(r"\bgp\b", line)]
    usual = r"auipc\tgp,.*|addi?\tgp,gp,.*|[sl]d\tgp,24\(\w+\)"  # PT_GP; a suspended context's
    assert len(lines) > 5
    assert [line for line in lines if not re.fullmatch(usual, line)] == []


def test_no_jump_takes_what_the_kernel_writes(traceable: Vmlinux) -> None:
    """Runtime constants (from 6.11 on), known by what the compiler left in their place."""
    if traceable.arch not in CONSTANTS or not traceable.symbol(
        "__start_runtime_ptr_dentry_hashtable"
    ):
        pytest.skip("no runtime constants")
    start, offset, size = traceable.sections[".text"]
    text = traceable.data[offset : offset + size].tobytes()
    pattern, before = CONSTANTS[traceable.arch]
    found = [start + one.start() - before for one in re.finditer(pattern, text, re.DOTALL)]
    image = open_image(traceable.path)
    jumps = KernelJumps(read_sites(image), read_functions(image))
    told = 0
    for place in found:
        with pytest.raises(UsageError) as caught:
            jumps.at(place, None)
        told += "a constant that the kernel writes there" in caught.value.reason
    assert told >= 5  # those of dcache.c
