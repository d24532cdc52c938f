# SPDX-License-Identifier: MIT
"""Images with sites in their text and a table among their pointers, for tests of whole commands."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from ftpatch.elf.relocations import Form
from tests.support.images import FUNCTIONS
from tests.support.kallsyms_writer import write_kallsyms
from tests.support.raw_images import ARM64, RISCV64, TABLES, TEXT, V6, V7, Made

__all__ = ["FORMS", "NOPS", "OPS", "TABLE", "RawKernel", "raw_kernel"]

TABLE = 0x36000
"""Where the table is, behind the pointers and before the relocations (offset)."""
FIRST, STEP = TEXT + 0x100, 32
HELPERS = ("ftrace_stub", "ftrace_caller", "_mcount")
OPS = 0x37F00
"""Where ftrace_nop_ops is."""
NAMES = (*FUNCTIONS, *(f"do_work_{i}" for i in range(300)))
NOPS = {ARM64: bytes.fromhex("1f2003d5") * 2, RISCV64: bytes.fromhex("0100") * 4}
RET = {ARM64: bytes.fromhex("c0035fd6"), RISCV64: bytes.fromhex("67800000")}


@dataclass
class RawKernel(Made):
    """``ops``: CALL_OPS, a literal before each function, at which the record points; ``bounds``:
    its kallsyms names where the table is; ``nulls``: so many records before the first and behind
    the 100th. ``sites``: address of each function -> name; ``records``: the table."""

    ops: bool = False
    bounds: bool = True
    nulls: int = 0
    sites: dict[int, str] = field(default_factory=dict)
    records: list[int] = field(default_factory=list)

    def _symbols(self) -> dict[str, int]:
        self.sites = {self.base + FIRST + STEP * i: name for i, name in enumerate(NAMES)}
        before = 8 if self.ops else 0
        values = [at - before for at in self.sites]
        self.records = [0] * self.nulls + values[:100] + [0] * self.nulls + values[100:]
        ends = {
            "_stext": TEXT,
            "_etext": 0x6000,
            "_sinittext": 0x6000,
            "_einittext": 0x7000,
            "__start_mcount_loc": TABLE,
            "__stop_mcount_loc": TABLE + 8 * len(self.records),
            "ftrace_nop_ops": OPS,
        }
        if not self.bounds:
            del ends["__start_mcount_loc"], ends["__stop_mcount_loc"]
        if not self.ops:
            del ends["ftrace_nop_ops"]
        helpers = {name: TEXT + 16 + 16 * i for i, name in enumerate(HELPERS)}
        return {name: self.base + at for name, at in (ends | helpers).items()} | {
            name: at for at, name in self.sites.items()
        }

    def _kallsyms(self) -> int:
        assert self.layout is not None
        rows = sorted((at, "D" if at >= self.base + TABLE else "T", name)
                      for name, at in self._symbols().items())  # fmt: skip
        self.symbols = rows
        written = write_kallsyms(rows, self.layout, 8, self.base + TABLES)
        self.data[TABLES : TABLES + len(written.data)] = written.data
        at = written.at.get("relative_base", -TABLES)
        if at >= 0:
            self.data[TABLES + at : TABLES + at + 8] = bytes(8)
        return TABLES + at

    def _relocations(self) -> list[tuple[int, int, int]]:
        if not self.records:
            self._symbols()
        self.data[TEXT:FIRST] = (RET[self.magic] * 64)[: FIRST - TEXT]
        code = NOPS[self.magic] + RET[self.magic]
        for at in self.sites:
            start = at - self.base
            self.data[start - 8 : start] = NOPS[self.magic] if self.ops else bytes(8)
            self.data[start : start + len(code)] = code
        # Another number on each side, so that the table is a run of its own.
        struct.pack_into("<Q", self.data, TABLE - 8, 9)
        struct.pack_into("<Q", self.data, TABLE + 8 * len(self.records), 9)
        self.slots |= {TABLE + 8 * i: value for i, value in enumerate(self.records)}
        return super()._relocations()


FORMS: dict[str, tuple[bytes, int, bool]] = {
    "arm64-rela": (ARM64, Form.RELA, False),
    "arm64-rela-callops": (ARM64, Form.RELA, True),
    "arm64-relr": (ARM64, Form.RELR, False),
    "arm64-relr-callops": (ARM64, Form.RELR, True),
    "riscv64": (RISCV64, Form.NONE, False),
    "riscv64-rela": (RISCV64, Form.RELA, False),
    "riscv64-relr-callops": (RISCV64, Form.RELR, True),
}
"""Magic, form of the relocations, whether there are literals."""


def raw_kernel(form: str, *, named: bool = True, bounds: bool = True, nulls: int = 0) -> RawKernel:
    """An Image of one form; without ``named`` it has no kallsyms."""
    magic, relocations, ops = FORMS[form]
    layout = (V7 if relocations == Form.RELR else V6) if named else None
    return RawKernel(magic, relocations, layout, ops=ops, bounds=bounds, nulls=nulls)
