# SPDX-License-Identifier: MIT
"""The end of a boot: the last functions that ran, and the last lines of the console."""

from __future__ import annotations

import re
from pathlib import Path

from ftpatch.boot.machine import Progress, fault_in
from ftpatch.boot.stream import Source
from ftpatch.core.columns import addresses
from ftpatch.image import Image

__all__ = ["explain_end", "names_at"]

FUNCTIONS = 10
"""Functions to report."""
LINES = 3
"""Console lines to report."""
CONSOLE = 1 << 16
"""Bytes of either end of the console to examine."""
OFFSET = re.compile(r"Kernel Offset: (0x[0-9a-f]+) from 0x[0-9a-f]+")
"""The text of a panic under KASLR (dump_kernel_offset() of the architectures)."""
ENABLED = "KASLR enabled"
"""The text of an arm64 boot."""


def explain_end(kernel: Image, source: Source, ended: Progress, folder: Path) -> list[str]:
    """Explain, line by line, what preceded the end of a run in ``folder``."""
    fault = fault_in(source.tracer.emulator, folder / "log")
    said = ["triple fault: the processor shut down"] if fault else []
    names = names_at(kernel, list(ended.last)[-FUNCTIONS:])
    said.append(f"last functions: {', '.join(names) or 'none'}")
    console = folder / "console"
    if console.is_file():
        with console.open("rb") as file:
            begin = file.read(CONSOLE).decode("utf-8", "replace")
            file.seek(max(0, console.stat().st_size - CONSOLE))
            end = file.read().decode("utf-8", "replace")
        said += _kaslr(begin, end)
        last = [line.strip() for line in end.splitlines() if line.strip()][-LINES:]
        said += [f"last console output: {line}" for line in last]
    return said


def names_at(kernel: Image, at: list[int]) -> list[str]:
    """Name the functions at some addresses."""
    return [name for name, _, _ in kernel.kallsyms.lookup(addresses(*at))] if at else []


def _kaslr(begin: str, end: str) -> list[str]:
    """Explain the console's addresses under KASLR: those of events and reports are the image's."""
    if moved := OFFSET.search(end):
        return [f"KASLR: console addresses are {moved[1]} above the image's"]
    if ENABLED in begin:
        return ["KASLR: console addresses differ from the image's; use --append nokaslr"]
    return []
