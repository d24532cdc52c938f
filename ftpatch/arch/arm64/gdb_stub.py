# SPDX-License-Identifier: MIT
"""QEMU's gdb stub of arm64."""

from __future__ import annotations

from typing import Final

from ftpatch.arch.gdb_stub import GdbStub

__all__ = ["GDB_STUB"]

GDB_STUB: Final = GdbStub(pc=32, before=True)  # Arm ARM, D2.10: a watchpoint debug event
