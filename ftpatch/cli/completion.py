# SPDX-License-Identifier: MIT
"""Completions of values in shells: formats, tracers, and files of the kind that an argument takes.

Shells complete any file where nothing is offered here; so nothing is where there are folders to go
down into, whose names shells have to end with a slash.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

__all__ = ["check_formats", "images", "report_formats", "some_of", "traces", "tracers"]

Complete = Callable[[str], list[str]]
MAGICS = (
    (0, b"\x7fELF"),
    (0, b"MZ"),  # a kernel that EFI can start: bzImage, zboot, Image
    (0x202, b"HdrS"),  # Linux Documentation/arch/x86/boot.rst
    (56, b"ARM\x64"),  # Linux Documentation/arch/arm64/booting.rst
    (56, b"RSC\x05"),  # Linux Documentation/arch/riscv/boot-image-header.rst
    (0, b"\x1f\x8b"),
    (0, b"\xfd7zXZ\0"),
    (0, b"\x28\xb5\x2f\xfd"),
    (0, b"BZh"),
)
"""Offset and first bytes of what may be an image, or of what may hold one."""
TRACE = ((0, b"FTPTRACE"),)
"""struct trace_header of stubs/runtime/trace.h."""
HEAD = 0x206


def some_of(*names: str) -> Complete:
    """Complete one of these."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def check_formats(incomplete: str) -> list[str]:
    """Complete a format of ``check``."""
    from ftpatch.cli.check_formats import FORMATS

    return some_of(*FORMATS)(incomplete)


def report_formats(incomplete: str) -> list[str]:
    """Complete a format of ``report``."""
    from ftpatch.trace.formats import reports

    return some_of(*reports())(incomplete)


def tracers(incomplete: str) -> list[str]:
    """Complete a tracer of programs; a stub is a file."""
    from ftpatch.inject.runtime import TRACERS

    return some_of(*TRACERS)(incomplete)


def images(incomplete: str) -> list[str]:
    """Complete a file that may be an image."""
    return _files(incomplete, MAGICS)


def traces(incomplete: str) -> list[str]:
    """Complete a trace file."""
    return _files(incomplete, TRACE)


def _files(incomplete: str, magics: Iterable[tuple[int, bytes]]) -> list[str]:
    """The files that begin so; none where there is a folder among the names."""
    folder, name = os.path.split(incomplete)
    found = []
    try:
        entries = sorted(os.scandir(folder or "."), key=lambda entry: entry.name)
        for entry in entries:
            if not entry.name.startswith(name) or (not name and entry.name.startswith(".")):
                continue
            if entry.is_dir():
                return []
            if entry.is_file() and _begins(Path(entry.path), magics):
                found.append(str(Path(folder) / entry.name) if folder else entry.name)
    except OSError:
        return []
    return found


def _begins(path: Path, magics: Iterable[tuple[int, bytes]]) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError:
        return False
    return any(head.startswith(magic, at) for at, magic in magics)
