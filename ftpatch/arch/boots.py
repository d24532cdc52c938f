"""The boot tracer of each architecture that has one."""

from __future__ import annotations

from ftpatch.arch.arm64.boot import BOOT_ARM64
from ftpatch.arch.boot import BootTracer
from ftpatch.arch.x86.boot import BOOT_I386, BOOT_X86_64

__all__ = ["boot_tracer_of"]

EVERY: tuple[BootTracer, ...] = (BOOT_X86_64, BOOT_I386, BOOT_ARM64)
TRACERS = {one.name: one for one in EVERY}


def boot_tracer_of(name: str) -> BootTracer | None:
    """The tracer of an architecture by its name, None if there is none."""
    return TRACERS.get(name)
