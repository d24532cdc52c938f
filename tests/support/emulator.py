# SPDX-License-Identifier: MIT
"""Unicorn: the same instructions at their site and elsewhere, from the same state."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest

__all__ = ["Machine", "Outcome"]

STACK, STACK_SIZE = 0x7000_0000, 0x2_0000
DATA, DATA_SIZE = 0x6000_0000, 0x20_0000
HIGH = {"i386": 0, "arm": 0, "thumb": 0}
"""Bits by which these are higher, where addresses are wide: 16."""
PAGE = 0xFFFF


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was left: pc, registers, and each written byte; ``fault`` is a data access's or an
    unknown instruction's error."""

    fault: int
    pc: int
    registers: tuple[int, ...]
    memory: dict[int, int]
    near: bytes
    """256 bytes around the stack pointer that it began with."""


class Machine:
    """One emulator with an image at ``bias``, and room for slots behind it."""

    def __init__(self, arch: str, segments: tuple[tuple[int, bytes], ...], bias: int) -> None:
        self.u = pytest.importorskip("unicorn", reason="pip install unicorn")
        kind = {
            "x86_64": ("X86", "64"),
            "i386": ("X86", "32"),
            "arm64": ("ARM64", "ARM"),
            "riscv64": ("RISCV", "RISCV64"),
            "s390x": ("S390X", "BIG_ENDIAN"),
            "arm": ("ARM", "ARM"),
            "thumb": ("ARM", "THUMB"),
        }[arch]
        self.uc: Any = self.u.Uc(
            getattr(self.u, f"UC_ARCH_{kind[0]}"), getattr(self.u, f"UC_MODE_{kind[1]}")
        )
        if arch == "arm64":
            self.uc.ctl_set_cpu_model(3)  # UC_CPU_ARM64_MAX
        if arch in ("arm", "thumb"):
            self.uc.ctl_set_cpu_model(17)  # UC_CPU_ARM_CORTEX_A15
        self.status = 0
        high = HIGH.get(arch, 16)
        self.bits = 64 if high else 32
        self.stack, self.data = STACK << high, DATA << high
        end = max(address + len(data) for address, data in segments)
        self.slots = bias + (end + 2 * PAGE & ~PAGE)
        self.uc.mem_map(bias, self.slots - bias + 0x80_0000)
        self.uc.mem_map(self.stack, STACK_SIZE)
        self.uc.mem_map(self.data, DATA_SIZE)
        for address, data in segments:
            self.uc.mem_write(bias + address, data)
        self.uc.mem_write(self.data, random.Random(1).randbytes(DATA_SIZE))
        self.uc.mem_write(self.stack, random.Random(2).randbytes(STACK_SIZE))
        self.begin = self.last = self.stopped = 0
        self.inside = range(0)
        self.before: dict[int, int] = {}
        self._name(arch)
        self.uc.hook_add(self.u.UC_HOOK_CODE, self._step)
        self.uc.hook_add(self.u.UC_HOOK_MEM_WRITE, self._store)

    def _name(self, arch: str) -> None:
        if arch == "x86_64":
            import unicorn.x86_const as names

            kind, other = "X86", ["rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp"]
            self.flags, vector, self.mask = names.UC_X86_REG_EFLAGS, "XMM", 0x8D5
            other += [f"r{i}" for i in range(8, 16)]
            vectors, fixed = 16, ["fs_base", "gs_base"]
        elif arch == "i386":
            import unicorn.x86_const as names

            kind, other = "X86", ["eax", "ebx", "ecx", "edx", "esi", "edi", "ebp"]
            self.flags, vector, self.mask = names.UC_X86_REG_EFLAGS, "XMM", 0x8D5
            vectors, fixed = 8, []
        elif arch == "riscv64":
            import unicorn.riscv_const as names

            kind, vector, self.mask = "RISCV", "F", 0
            self.flags = names.UC_RISCV_REG_FFLAGS
            other = [f"x{i}" for i in range(1, 32) if i != 2]
            vectors, fixed = 32, []
            # mstatus.FS: floating-point instructions are allowed.
            self.uc.reg_write(names.UC_RISCV_REG_MSTATUS, 1 << 13)
        elif arch == "s390x":
            import unicorn.s390x_const as names

            kind, vector, self.mask = "S390X", "F", 3 << 44  # the condition code
            self.flags = names.UC_S390X_REG_PSWM
            other, vectors, fixed = [f"r{i}" for i in range(15)], 16, []
            # Additional floating-point registers are allowed.
            self.uc.reg_write(names.UC_S390X_REG_CR0, 1 << 18)
        elif arch in ("arm", "thumb"):
            import unicorn.arm_const as names

            kind, vector, self.mask = "ARM", "D", 0xF000_0000
            self.flags, self.status = names.UC_ARM_REG_APSR, names.UC_ARM_REG_CPSR
            other, vectors, fixed = [*(f"r{i}" for i in range(13)), "lr"], 32, []
            # CPACR.cp10 and cp11, FPEXC.EN: vector instructions are allowed.
            self.uc.reg_write(names.UC_ARM_REG_C1_C0_2, 0xF << 20)
            self.uc.reg_write(names.UC_ARM_REG_FPEXC, 1 << 30)
        else:
            import unicorn.arm64_const as names

            kind, vector, self.mask = "ARM64", "Q", 0xF000_0000
            self.flags = names.UC_ARM64_REG_NZCV
            other, vectors, fixed = [f"x{i}" for i in range(31)], 32, []
            # CPACR_EL1.FPEN: vector instructions are allowed.
            self.uc.reg_write(names.UC_ARM64_REG_CPACR_EL1, 3 << 20)

        def numbers(texts: list[str]) -> list[int]:
            return [getattr(names, f"UC_{kind}_REG_{text.upper()}") for text in texts]

        self.general, self.fixed = numbers(other), numbers(fixed)
        self.vectors = numbers([f"{vector}{i}" for i in range(vectors)])
        pair = {"x86_64": ["rsp", "rip"], "i386": ["esp", "eip"], "s390x": ["r15", "pc"]}.get(
            arch, ["sp", "pc"]
        )
        self.sp, self.pc = numbers(pair)
        # 64-bit addresses
        self.always = {"X86": 2, "S390X": 3 << 31}.get(kind, 0)

    def _step(self, uc: Any, address: int, size: int, data: object) -> None:  # noqa: ANN401
        again = address == self.begin and self.last not in (0, address)
        if address not in self.inside or again:
            self.stopped = address | self._second()
            uc.emu_stop()
        self.last = address

    def _second(self) -> int:
        """1 in the second instruction set (CPSR.T)."""
        return int(self.uc.reg_read(self.status)) >> 5 & 1 if self.status else 0

    def _store(
        self,
        uc: Any,  # noqa: ANN401
        access: int,
        address: int,
        size: int,
        value: int,
        data: object,
    ) -> None:
        for i, byte in enumerate(uc.mem_read(address, size)):
            self.before.setdefault(address + i, byte)

    def write(self, address: int, code: bytes) -> None:
        """Code that was not there before; Unicorn would keep what it made of the bytes there."""
        address &= ~1 if self.status else ~0
        self.uc.mem_write(address, code)
        self.uc.ctl_remove_cache(address, address + len(code))

    def state(self, chance: random.Random) -> dict[int, int]:
        """Registers of which most point at data, and some hold small numbers."""
        out = {self.sp: self.stack + STACK_SIZE // 2 + 16 * chance.randrange(64)}
        out[self.flags] = (
            chance.getrandbits(max(32, self.mask.bit_length())) & self.mask | self.always
        )
        for register in self.general:
            pointer = self.data + DATA_SIZE // 2 + 8 * chance.randrange(1 << 12)
            small, large = chance.randrange(4), chance.getrandbits(self.bits)
            out[register] = chance.choice([pointer, pointer, pointer, small, large])
        out |= {register: chance.getrandbits(128) for register in self.vectors}
        out |= dict.fromkeys(self.fixed, self.data + DATA_SIZE // 2)
        return out

    def run(self, state: dict[int, int], begin: int, size: int) -> Outcome:
        """From ``begin``, in Thumb with bit 0, until control leaves the ``size`` bytes there, or
        comes back to their start; the memory is as before when this returns."""
        for register, value in state.items():
            self.uc.reg_write(register, value)
        even = begin & ~1 if self.status else begin
        self.begin, self.inside = even, range(even, even + size)
        self.last, self.stopped = 0, 0
        self.before = {}
        fault = 0
        try:
            self.uc.emu_start(begin, 1, count=10_000)
        except self.u.UcError as error:
            self.stopped = int(self.uc.reg_read(self.pc)) | self._second()
            # A branch to nowhere has been taken; other errors are those of an instruction.
            nowhere = (self.u.UC_ERR_FETCH_UNMAPPED, self.u.UC_ERR_FETCH_PROT)
            fault = 0 if error.errno in nowhere else error.errno
        names = [*self.general, self.sp, self.flags, *self.vectors, *self.fixed]
        registers = tuple(int(self.uc.reg_read(name)) for name in names)
        near = bytes(self.uc.mem_read(state[self.sp] - 128, 256))
        memory = {at: self.uc.mem_read(at, 1)[0] for at in self.before}
        for at, byte in self.before.items():
            self.uc.mem_write(at, bytes([byte]))
        changed = {at: byte for at, byte in memory.items() if byte != self.before[at]}
        return Outcome(fault, self.stopped, registers, changed, near)
