# SPDX-License-Identifier: MIT
"""A boot as it goes: the count and the last function while it lasts, and how it ended."""

from __future__ import annotations

import re
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from ftpatch.boot import find_source
from ftpatch.boot.machine import Machine, Progress, fault_in, flat, require_emulator
from ftpatch.cli.console import clean, count, lines
from ftpatch.cli.signals import interrupted
from ftpatch.core.columns import addresses
from ftpatch.io.cleanup import ENDING

if TYPE_CHECKING:
    from ftpatch.image import Image

__all__ = ["run_boot"]

SHOWN = 10
"""Functions to report where a boot ended by itself."""
SAID = 3
"""Lines of the console that are."""
CONSOLE = 1 << 16
"""Bytes of its end to examine."""
OFFSET = re.compile(r"Kernel Offset: (0x[0-9a-f]+) from 0x[0-9a-f]+")
"""A panic's words on KASLR (dump_kernel_offset() of the architectures)."""
ENABLED = "KASLR enabled"
"""arm64's, when it boots."""
ENDED = 124
"""Exit code where it was ended for its time, as timeout(1) has it."""


def run_boot(
    kernel: Image,
    folder: Path,
    most: int,
    *,
    append: str,
    words: Sequence[str],
    limits: tuple[float, float],
) -> tuple[int, int]:
    """Boot, and say how it goes; the exit code, and the number of events. ``most``
    events stop the tracer (0: none do); ``limits``: seconds that it may run, and that it may do
    nothing. Raises UsageError where there is no QEMU."""
    source = find_source(kernel)
    emulator = source.tracer.emulator
    program = require_emulator(emulator)
    sink = source.tracer.sinks[source.mark.sink]
    files = {name: str(folder / name) for name in ("stream", "console", "log")}
    file = kernel.path
    if emulator.flat:
        file = folder / "Image"
        file.write_bytes(flat(kernel))
    command = [program, *emulator.command(sink, files), "-kernel", str(file)]
    command += ["-append", emulator.said(sink, append), *words]
    ended = Progress()
    with Machine(command, folder / "stream", folder / "console") as machine:
        handlers = _handle(machine)
        for ended in machine.watch(source, most, *limits):
            _show(kernel, ended)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    lines([f"ftpatch: {count(ended.events, 'event')}; {ended.ended}"], error=True)
    if not ended.stopped:
        _tell_end(kernel, ended, folder, fault=fault_in(emulator, folder / "log"))
    code = ended.status if ended.status is not None else ENDED
    if code < 0:
        code = 128 - code
    return (0 if ended.stopped else code), ended.events


def _handle(machine: Machine) -> dict[int, Any]:
    """Ctrl-C or SIGTERM ends the machine, and what it did is told; other ends of ours end it."""

    def end(number: int, frame: FrameType | None) -> None:
        machine.kill()
        interrupted(number, frame)

    handlers: dict[int, Any] = {
        number: signal.getsignal(number)
        for number in ENDING
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    for number in handlers:
        signal.signal(number, end)
    for number in (signal.SIGINT, signal.SIGTERM):
        if number in handlers:
            signal.signal(number, lambda *_: machine.ask("interrupted"))
    return handlers


def _tell_end(kernel: Image, ended: Progress, folder: Path, *, fault: bool) -> None:
    """Print what went before the end."""
    told = ["triple fault: the processor shut down"] if fault else []
    names = [place[0] for place in _names(kernel, list(ended.last)[-SHOWN:])]
    told.append(f"last functions: {', '.join(names) or 'none'}")
    console = folder / "console"
    if console.is_file():
        with console.open("rb") as file:
            begin = file.read(CONSOLE).decode("utf-8", "replace")
            file.seek(max(0, console.stat().st_size - CONSOLE))
            text = file.read().decode("utf-8", "replace")
        told += _moved(begin, text)
        said = [line.strip() for line in text.splitlines() if line.strip()][-SAID:]
        told += [f"last console output: {line}" for line in said]
    lines((f"ftpatch: {text}" for text in told), error=True)


def _moved(begin: str, end: str) -> list[str]:
    """Explain the console's addresses under KASLR: events have none, so the report's are those
    of the image."""
    if moved := OFFSET.search(end):
        return [f"KASLR: console addresses are {moved[1]} above the image's"]
    if ENABLED in begin:
        return ["KASLR: console addresses differ from the image's; use --append nokaslr"]
    return []


def _names(kernel: Image, at: list[int]) -> list[tuple[str, int, int]]:
    return kernel.kallsyms.lookup(addresses(*at)) if at else []


def _show(kernel: Image, progress: Progress) -> None:
    """The count and the last function, on a terminal."""
    if sys.stderr.isatty() and progress.last:
        ((name, _, _),) = _names(kernel, [progress.last[-1]])
        text = clean(f"{progress.events} events, {name}")
        sys.stderr.write(f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}")
        sys.stderr.flush()
