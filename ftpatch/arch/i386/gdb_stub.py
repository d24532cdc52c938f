# SPDX-License-Identifier: MIT
"""QEMU's gdb stub of i386; it is qemu-system-x86_64's."""

from __future__ import annotations

from typing import Final

from ftpatch.arch.gdb_stub import GdbStub

__all__ = ["GDB_STUB"]

GDB_STUB: Final = GdbStub(pc=16, before=False)  # SDM vol. 3, section 18.3.1.2: a trap
