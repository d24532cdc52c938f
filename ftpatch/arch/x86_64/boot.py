# SPDX-License-Identifier: MIT
"""The boot tracer of x86_64."""

from __future__ import annotations

from typing import Final

from ftpatch.arch.boot import BootTracer
from ftpatch.arch.x86.boot import BootX86

__all__ = ["BOOT"]

BOOT: Final[BootTracer] = BootX86(
    "x86_64",
    word=8,
    flags="q",
    sp_bytes=6,
    stack=16384,
    align=8,
    field=2,  # R_X86_64_PC32
)
