# SPDX-License-Identifier: MIT
"""The boot tracer of i386."""

from __future__ import annotations

from typing import Final

from ftpatch.arch.boot import BootTracer
from ftpatch.arch.x86.boot import BootX86

__all__ = ["BOOT"]

BOOT: Final[BootTracer] = BootX86("i386", word=4, flags="d", sp_bytes=4, stack=8192, align=4)
