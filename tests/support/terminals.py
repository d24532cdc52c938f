# SPDX-License-Identifier: MIT
"""Terminals: a command runs on a pseudo-terminal, and pyte, a terminal's emulator, says what stands
on the screen, in which colours, and what stood there on the way."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pyte

from tests.support.command import PATIENCE, child_env, ftpatch_command, patched_command

__all__ = ["Frame", "Shown", "on_screen", "shown_text"]

ROWS = 400
"""Lines of a screen that nothing leaves."""
PASSING = re.compile(rb"(\r\x1b\[K[^\r\n]*)*\r\x1b\[K")
"""Lines that a slow machine shows for a while, and then erases."""
USUAL: dict[str, str | None] = {
    "TERM": "xterm-256color",
    "PAGER": "",
    "LINES": None,
    "COLUMNS": None,
    "NO_COLOR": None,
    "FORCE_COLOR": None,
}


@dataclass(frozen=True)
class Frame:
    """Text on the screen at one moment, in seconds since the command began."""

    seconds: float
    lines: list[str]


@dataclass
class Shown:
    """Exit code, what stands on the screen, what stood there on the way, and all that was
    written."""

    code: int
    screen: pyte.Screen
    frames: list[Frame] = field(default_factory=list)
    raw: bytes = b""

    @property
    def lines(self) -> list[str]:
        """Text on the screen, without what is empty below."""
        return _lines(self.screen)

    def colour(self, text: str) -> str:
        """The colour of a text that stands there in one line; it must all have the same."""
        for at, line in enumerate(self.screen.display):
            if text in line:
                begin = line.index(text)
                cells = [self.screen.buffer[at][x] for x in range(begin, begin + len(text))]
                (colour,) = {cell.fg for cell in cells}
                return str(colour)
        raise AssertionError(f"{text!r} is not on the screen: {self.lines}")

    @property
    def colours(self) -> set[str]:
        """All colours on the screen, but for the usual one."""
        cells = (self.screen.buffer[y][x] for y in range(ROWS) for x in range(self.screen.columns))
        return {cell.fg for cell in cells} - {"default"}


def _lines(screen: pyte.Screen) -> list[str]:
    lines = [line.rstrip() for line in screen.display]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def shown_text(raw: bytes) -> str:
    """Text that a command wrote to a terminal, without the progress that it erased."""
    return PASSING.sub(b"", raw).decode().replace("\r\n", "\n")


def on_screen(
    *words: str | Path,
    columns: int = 80,
    script: str = "",
    out: IO[bytes] | None = None,
    err: IO[bytes] | None = None,
    interrupt: str = "",
    folder: Path | None = None,
    environment: Mapping[str, str | None] | None = None,
) -> Shown:
    """Run a command on a terminal of so many columns, after ``script`` if there is one; ``out`` and
    ``err`` go elsewhere. It is interrupted once ``interrupt`` is on the screen."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("4H", ROWS, columns, 0, 0))
    wanted = {**child_env(), **USUAL, **(environment or {})}
    screen = pyte.Screen(columns, ROWS)
    stream = pyte.ByteStream(screen)
    shown, begun = Shown(-1, screen), time.monotonic()
    process = subprocess.Popen(
        patched_command(script, *words) if script else ftpatch_command(*words),
        env={name: text for name, text in wanted.items() if text is not None},
        cwd=folder,
        stdin=child,
        stdout=out or child,
        stderr=err or child,
    )
    os.close(child)
    try:
        while True:
            assert time.monotonic() - begun < PATIENCE, shown.lines
            if not select.select([parent], [], [], 0.05)[0]:
                continue
            try:
                part = os.read(parent, 1 << 16)
            except OSError:  # nobody has it open any more
                break
            shown.raw += part
            stream.feed(part)
            shown.frames.append(Frame(time.monotonic() - begun, shown.lines))
            if interrupt and any(interrupt in line for line in shown.lines):
                process.send_signal(signal.SIGINT)
                interrupt = ""
        shown.code = process.wait(PATIENCE)
    finally:
        process.kill()
        process.wait()
        os.close(parent)
    return shown
