# SPDX-License-Identifier: MIT
"""Modules that GNU ld places as a kernel's loader might, run by Unicorn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from tests.support.gnu import link_sections
from tests.support.loose_forms import Form
from tests.support.loose_images import PLACES
from tests.support.loose_reader import read_loose

__all__ = ["KERNEL", "STACK", "STARTS", "Placed"]

STARTS = {
    ".text": 0x10_0000,
    ".init.text": 0x80_0000,
    ".text.unlikely": 0x10_4000,
    ".text.ftpatch": 0x11_0000,
    ".data.ftpatch": 0x40_0000,
}
"""Places in another order, and at other distances, than in the file."""
STACK, KERNEL = 0x70_0000, 0x7000_0000


class Placed:
    """A module that GNU ld has placed, and what its tracer sends."""

    def __init__(self, path: Path, form: Form, folder: Path) -> None:
        self.u = pytest.importorskip("unicorn", reason="pip install unicorn")
        self.form, self.sent = form, b""
        names = [name for name in STARTS if name in read_loose(path).contents]
        starts = {name: STARTS[name] for name in names}
        symbols = {"printk": KERNEL, "__fentry__": KERNEL}
        linked = folder / "linked"
        link_sections(form.arch, path, starts, symbols, linked)
        kind, mode = {
            "x86_64": ("X86", "64"),
            "arm64": ("ARM64", "ARM"),
            "riscv64": ("RISCV", "RISCV64"),
        }[form.arch]
        machine = getattr(self.u, f"UC_ARCH_{kind}"), getattr(self.u, f"UC_MODE_{mode}")
        self.uc: Any = self.u.Uc(*machine)
        for at in {at & ~0xFFFF for at in (*starts.values(), STACK)}:
            self.uc.mem_map(at, 0x1_0000)
        with linked.open("rb") as file:
            for section in ELFFile(file).iter_sections():
                if section.name in starts:
                    self.uc.mem_write(section["sh_addr"], section.data())
        if form.arch == "x86_64":
            import unicorn.x86_const as names_

            self.uc.hook_add(self.u.UC_HOOK_INSN, self._out, None, 1, 0, names_.UC_X86_INS_OUT)
            self.pc, self.sp = names_.UC_X86_REG_RIP, names_.UC_X86_REG_RSP
            texts = [
                "RAX",
                "RBX",
                "RCX",
                "RDX",
                "RSI",
                "RDI",
                "RBP",
                *map("R{}".format, range(8, 16)),
            ]
        elif form.arch == "riscv64":
            import unicorn.riscv_const as names_

            self.uc.hook_add(self.u.UC_HOOK_CODE, self._riscv)
            self.pc, self.sp = names_.UC_RISCV_REG_PC, names_.UC_RISCV_REG_SP
            texts = [f"X{i}" for i in (3, 4, *range(8, 28), 1)]
        else:
            import unicorn.arm64_const as names_

            self.uc.hook_add(self.u.UC_HOOK_CODE, self._semihosting)
            self.pc, self.sp = names_.UC_ARM64_REG_PC, names_.UC_ARM64_REG_SP
            texts = [f"X{i}" for i in (*range(9), *range(18, 31))]
        self.names: Any = names_
        self.kept = [getattr(names_, f"UC_{kind}_REG_{text}") for text in texts]

    def _out(self, uc: Any, port: int, size: int, value: int, _: Any) -> None:  # noqa: ANN401
        assert (port, size) == (0xE9, 1)
        self.sent += bytes([value])

    def _semihosting(self, uc: Any, at: int, size: int, _: Any) -> None:  # noqa: ANN401
        if bytes(uc.mem_read(at, 4)) == bytes.fromhex("00005ed4"):  # hlt #0xf000
            text = bytes(uc.mem_read(uc.reg_read(self.names.UC_ARM64_REG_X1), 64))
            one = uc.reg_read(self.names.UC_ARM64_REG_X0) == 3  # SYS_WRITEC, else SYS_WRITE0
            self.sent += text[: 1 if one else text.index(0)]
            uc.reg_write(self.pc, at + 4)

    def _riscv(self, uc: Any, at: int, size: int, _: Any) -> None:  # noqa: ANN401
        """Semihosting calls, and a counter, which Unicorn has not."""
        code = bytes(uc.mem_read(at, 4))
        if code == bytes.fromhex("73001000"):  # ebreak
            text = bytes(uc.mem_read(uc.reg_read(self.names.UC_RISCV_REG_A1), 64))
            number = uc.reg_read(self.names.UC_RISCV_REG_A0)
            assert number in (3, 4)
            self.sent += text[: 1 if number == 3 else text.index(0)]  # SYS_WRITEC, SYS_WRITE0
        elif code[0] & 0x7F != 0x73 or code[2:] != bytes.fromhex("10c0"):  # rdtime
            return
        uc.reg_write(self.pc, at + 4)

    def call(self, function: str, sp: int, returns: int) -> None:
        """Run the site of a function that ``returns`` there: every register that lives at a
        function's entry stays."""
        section, record = PLACES[function]
        start = STARTS[section] + record + self.form.before
        for number, register in enumerate(self.kept):
            self.uc.reg_write(register, 0x1234_0000_5678 + number)
        self.uc.reg_write(self.sp, sp)
        if self.form.arch == "arm64":
            self.uc.reg_write(self.names.UC_ARM64_REG_X30, returns)
        elif self.form.arch == "riscv64":
            self.uc.reg_write(self.names.UC_RISCV_REG_X1, returns)
        else:
            self.uc.mem_write(sp, returns.to_bytes(8, "little"))
        before = [self.uc.reg_read(register) for register in self.kept]
        end = start + len(self.form.enabled)
        self.uc.emu_start(start, end, count=4000)
        assert self.uc.reg_read(self.pc) == end
        assert self.uc.reg_read(self.sp) == sp
        assert [self.uc.reg_read(register) for register in self.kept] == before
