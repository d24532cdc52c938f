# SPDX-License-Identifier: MIT
"""Completions of values in shells: formats, tracers, and files of the kind that an argument takes.

Shells complete any file where nothing is offered here; so nothing is where there are folders to go
down into, whose names shells have to end with a slash.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ftpatch.image.container import RawKind, Wrapper

__all__ = ["check_formats", "images", "pids", "report_formats", "some_of", "traces", "tracers"]

Complete = Callable[[str], list[str]]
ELF, TRACE = b"\x7fELF", b"FTPTRACE"
"""First bytes; the latter of struct trace_header in stubs/runtime/trace.h."""


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
    return _files(incomplete, _may_be_image)


def pids(incomplete: str) -> list[tuple[str, str]]:
    """Complete a process whose memory may be read, with its name."""
    found = []
    for place in Path("/proc").glob(f"{incomplete}*"):
        try:
            if place.name.isdigit() and (place / "exe").readlink():
                found.append((place.name, (place / "comm").read_text(errors="replace").strip()))
        except OSError:  # a kernel thread, another user's, or ended
            continue
    return sorted(found, key=lambda one: int(one[0]))


def traces(incomplete: str) -> list[str]:
    """Complete a trace file."""
    return _files(incomplete, lambda path: _head(path, len(TRACE)) == TRACE)


def _files(incomplete: str, wanted: Callable[[Path], bool]) -> list[str]:
    """The files that are wanted; none where there is a folder among the names."""
    folder, name = os.path.split(incomplete)
    found = []
    try:
        entries = sorted(os.scandir(folder or "."), key=lambda entry: entry.name)
        for entry in entries:
            if not entry.name.startswith(name) or (not name and entry.name.startswith(".")):
                continue
            if entry.is_dir():
                return []
            if entry.is_file() and wanted(Path(entry.path)):
                found.append(str(Path(folder) / entry.name) if folder else entry.name)
    except OSError:
        return []
    return found


def _may_be_image(path: Path) -> bool:
    """Whether it is an ELF file, or a container recognises it by how it begins."""
    from ftpatch.image.containers import raw_kinds, wrappers

    recognising: tuple[Wrapper | RawKind, ...] = (*wrappers(), *raw_kinds())
    head = _head(path, max(one.head for one in recognising))
    return head.startswith(ELF) or any(one.begins(memoryview(head)) for one in recognising)


def _head(path: Path, size: int) -> bytes:
    """First bytes of a file; none of one that cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError:
        return b""
