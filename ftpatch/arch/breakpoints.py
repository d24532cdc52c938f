# SPDX-License-Identifier: MIT
"""Breakpoints on data that the kernel sets for the threads of a process, from outside."""

from __future__ import annotations

from dataclasses import dataclass

from ftpatch.arch import feature

__all__ = ["Breakpoints", "breakpoints_of"]


@dataclass(frozen=True, kw_only=True)
class Breakpoints:
    """``perf_event_open`` and ``bpf``: numbers of these system calls; ``ip``: offset of the program
    counter in the registers that a BPF program gets (bytes)."""

    perf_event_open: int
    bpf: int
    ip: int


def breakpoints_of(arch: str) -> Breakpoints:
    """The breakpoints of an architecture. Raises InputError if they are not supported."""
    found: Breakpoints = feature(arch, "breakpoints")
    return found
