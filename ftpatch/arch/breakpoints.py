# SPDX-License-Identifier: MIT
"""Breakpoints on data that the kernel sets for the threads of a process, from outside."""

from __future__ import annotations

from dataclasses import dataclass

from ftpatch.arch import feature
from ftpatch.errors import InputError

__all__ = ["Breakpoints", "breakpoints_of"]


@dataclass(frozen=True, kw_only=True)
class Breakpoints:
    """``perf_event_open`` and ``bpf``: numbers of these system calls; ``ip``: offset of the program
    counter in the registers that a BPF program gets (bytes); ``general``: those of the registers of
    struct registers (stubs/ARCH/arch.h), of which number ``stack`` is the stack pointer."""

    perf_event_open: int
    bpf: int
    ip: int
    general: tuple[int, ...]
    stack: int


def breakpoints_of(arch: str) -> Breakpoints:
    """The breakpoints of an architecture. Raises InputError if they are not supported: those that
    trap before the access do not tell what it leaves."""
    try:
        found: Breakpoints = feature(arch, "breakpoints")
    except InputError as error:
        hint = "probe what writes it: `ftpatch probe --pid`"
        raise InputError(None, error.reason, hint) from None
    return found
