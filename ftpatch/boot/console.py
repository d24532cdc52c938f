# SPDX-License-Identifier: MIT
"""A kernel's own words about its end, on its console."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ftpatch.arch.seven_bits import text_of

__all__ = ["Place", "Words", "read_console"]

MAX_CONSOLE = 1 << 24
"""Bytes of a console to examine."""
MAX_SHARED = 1 << 28
"""The same of one with events."""
STAMP = re.compile(r"^(?:<\d+>)?\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? ?")
HEADLINE = re.compile(
    r"kernel BUG at \S+!|BUG: .*|Oops\b.*|Internal error: .*|Unable to handle kernel .*"
    r"|general protection fault.*|Insufficient stack space .*|PANIC: double fault.*"
    r"|[\w ,-]+: [0-9a-f]{4} \[#\d+\].*"  # invalid opcode: 0000 [#1] PREEMPT SMP NOPTI
    r"|Kernel panic - not syncing: .*|watchdog: BUG: .*|rcu: INFO: \S+ .*detected .*stall.*"
    r"|INFO: task .* blocked for .*"
)
"""The beginning of an oops, a BUG, a panic or a stall."""
WARNING = re.compile(
    r"WARNING: (?:CPU: \d+ PID: \d+ at )?(?P<text>(?:\S+:\d+ (?:at )?)?(?:(\S+?)\+(0x\w+)/0x\w+)?)"
)
"""The beginning of a WARN, with its file and line if it has them."""
PLACE = re.compile(
    r"(?:[RE]IP: (?:[0-9a-f]{4}:)?|e?pc : |NIP \[[0-9a-f]+\] )"
    r"(?:(\S+?)\+(0x[0-9a-f]+)/0x[0-9a-f]+|0x\w+)"
)
"""The place of an oops or WARN: RIP of x86-64, EIP of i386, pc of arm64, epc of riscv64, NIP
of ppc64le."""
ROOT = "Unable to mount root fs"
PANIC = "Kernel panic - not syncing: "


@dataclass(frozen=True)
class Place:
    """A place as ``text``, and the ``function`` and ``offset`` in it; all are empty if unknown."""

    text: str = ""
    function: str = ""
    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class Words:
    """``lines`` of the console, without their times; the ``headline`` of the first fault, and the
    line that has its ``place``; the place of the first ``warning``; whether a ``root`` file system
    was missing."""

    lines: tuple[str, ...] = ()
    headline: str = ""
    place: Place = Place()
    warning: Place = Place()
    root: bool = False


def read_console(path: Path, *, shared: bool = False) -> Words:
    """Read a console's file, which may be missing; ``shared``: with events."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_SHARED if shared else MAX_CONSOLE)
    except OSError:
        return Words()
    text = (text_of(raw) if shared else raw).decode("utf-8", "replace")
    lines = [STAMP.sub("", line.strip()) for line in text.splitlines()]
    lines = [line for line in lines if line]
    heads = [number for number, line in enumerate(lines) if HEADLINE.match(line)]
    warnings = [found for line in lines if (found := WARNING.match(line))]
    place = warning = Place()
    if warnings:
        text, function, offset = warnings[0].groups()
        warning = Place(text.strip(), function or "", int(offset or "0", 16))
    if heads:
        # Behind a panic's headline, a place is that of its caller's WARN or of a second fault.
        behind = [] if lines[heads[0]].startswith(PANIC) else lines[heads[0] :]
        placed = next((found for line in behind if (found := PLACE.match(line))), None)
        if placed is not None:
            place = Place(placed.string, placed[1] or "", int(placed[2] or "0", 16))
    return Words(
        lines=tuple(lines),
        headline=lines[heads[0]] if heads else "",
        place=place,
        warning=warning,
        root=bool(heads) and ROOT in lines[heads[0]],
    )
