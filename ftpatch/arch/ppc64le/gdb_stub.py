# SPDX-License-Identifier: MIT
"""QEMU's gdb stub of ppc64le."""

from __future__ import annotations

from typing import Final

from ftpatch.arch.gdb_stub import GdbStub

__all__ = ["GDB_STUB"]

GDB_STUB: Final = GdbStub(pc=64, before=False, alone=True)  # power64-core.xml
