# SPDX-License-Identifier: MIT
"""QEMU's gdb stub of riscv64."""

from __future__ import annotations

from typing import Final

from ftpatch.arch.gdb_stub import GdbStub

__all__ = ["GDB_STUB"]

GDB_STUB: Final = GdbStub(pc=32, before=True)  # riscv-64bit-cpu.xml; cc->gdb_stop_before_watchpoint
