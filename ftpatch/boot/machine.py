# SPDX-License-Identifier: MIT
"""QEMU running a patched kernel: starting it, watching its stream of events, ending it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.boot import Emulator
from ftpatch.arch.seven_bits import text_of
from ftpatch.boot.feed import Feed
from ftpatch.boot.stream import Source
from ftpatch.elf.headers import Segment
from ftpatch.errors import InputError, UsageError
from ftpatch.image import Image

__all__ = ["Machine", "Progress", "Rules", "fault_in", "flat", "qemu_command", "require_emulator"]

WORDS = 3.0
"""Seconds without a word after which a kernel has said all of a fault."""
MAX_WORDS = 30.0
"""Maximum seconds to wait for these."""
STALL = re.compile(rb"watchdog: BUG: |rcu: INFO: \S+ .*detected .*stall|INFO: task .* blocked for ")
"""The kernel's words for a hang that it has seen itself."""
USER = b" as init process"
"""Its words for the beginning of user space."""
KEPT = 20
"""Number of latest events to keep."""
ROOM = 1 << 30
"""Bytes that must stay free on the disk."""
PART = 1 << 20
"""Bytes of the console to examine at a time."""
LINE = 256
"""Bytes of it to look at twice: a poll may cut a line."""
SPOKEN = 1 << 16
"""Bytes of QEMU's log to examine."""
STDIO = "stdio"
"""In QEMU's words: a device has its standard output."""
TIMED_OUT = 124
"""Exit code of a run that was ended, as in timeout(1)."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The ends of a run: so many events (``most``, 0: unlimited), seconds (``limit``), seconds in
    which nothing happens (``idle``), events at one of the places ``stops``, int64[n]. Events at
    ``marks`` are counted."""

    most: int = 0
    limit: float = 600
    idle: float = 60
    stops: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    marks: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True, kw_only=True)
class Progress:
    """``events`` so far, the addresses of the ``last`` sites, why it ``ended`` (empty while it
    runs), whether the tracer has ``stopped``, QEMU's ``status`` if it ended by itself, whether
    recording stopped at a site that reports a ``fault``, and whether that was a WARN (``warned``),
    whether it was ``idle``; numbers of events that were ``lost``, of those ``marked``, and up to
    the latest that was the ``first`` of its site."""

    events: int = 0
    last: Sequence[int] = ()
    ended: str = ""
    stopped: bool = False
    status: int | None = None
    fault: bool = False
    warned: bool = False
    idle: bool = False
    lost: int = 0
    marked: int = 0
    first: int = 0

    @property
    def exit_code(self) -> int:
        """The run's exit code: 0 if the tracer stopped, else QEMU's."""
        if self.stopped:
            return 0
        code = TIMED_OUT if self.status is None else self.status
        return code if code >= 0 else 128 - code


def require_emulator(emulator: Emulator) -> str:
    """Return QEMU's path. Raises UsageError if it is not installed."""
    found = shutil.which(emulator.program)
    if found is None:
        reason = f"{emulator.program} is not installed"
        raise UsageError(None, reason, f"apt install {emulator.package}")
    return found


def fault_in(emulator: Emulator, log: Path) -> bool:
    """Return whether QEMU's log shows a triple fault."""
    try:
        with log.open("rb") as file:
            said = file.read(SPOKEN)
    except OSError:
        return False
    return bool(emulator.fault) and emulator.fault.encode() in said


def flat(image: Image) -> bytes:
    """Return the output of `objcopy -O binary`: the loaded segments, spaced as in memory."""
    parts = [s for s in image.elf.skeleton.segments if s.type == Segment.PT_LOAD and s.size]
    if not parts:
        return bytes(image.data.data)  # it is flat
    first = min(part.address for part in parts)
    out = bytearray(max(part.address + part.size for part in parts) - first)
    for part in parts:
        held = image.data[part.offset : part.offset + part.size]
        out[part.address - first : part.address - first + len(held)] = held.tobytes()
    return bytes(out)


def qemu_command(
    kernel: Path, source: Source, files: Mapping[str, str], append: str, words: Sequence[str]
) -> list[str]:
    """Build the command that boots what is in the file ``kernel``; ``files``: as in
    Emulator.command. Raises UsageError if QEMU is not installed."""
    emulator = source.tracer.emulator
    program = require_emulator(emulator)
    command = [program, *emulator.command(source.sink, files), "-kernel", str(kernel)]
    return [*command, "-append", emulator.said(source.sink, append), *words]


class Machine:
    """A QEMU in a process group of its own, so that a terminal's signals are ours. As a context
    manager, it is killed on exit. ``files``: descriptors for it, besides the feed's. Raises
    InputError if it cannot be started."""

    def __init__(
        self, command: Sequence[str], feed: Feed, console: Path, files: Sequence[int] = ()
    ) -> None:
        self._feed, self._console = feed, console
        self._asked = ""
        self._tail, self._size = b"", 0
        # A firmware that finds semihosting may speak there: OpenSBI does since version 1.1.
        stdio = any(STDIO in word for word in command)
        try:
            with (console.parent / "stdout").open("wb") as out:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=None if stdio else out,
                    process_group=0,
                    pass_fds=(*feed.files, *files),
                )
        except OSError as error:
            raise InputError(command[0], f"cannot run: {error.strerror}") from None
        feed.started()

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._process.wait()
        self._feed.finish()

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()

    def ask(self, reason: str) -> None:
        """End it at the next poll, giving this reason."""
        self._asked = reason

    def watch(self, source: Source, rules: Rules) -> Iterator[Progress]:
        """Watch it until it ends, the tracer has stopped, or a rule ends it. Behind a fault, the
        kernel may go on until it has printed what happened. Before user space, one that calls only
        what it has called before is not getting on: with interrupts, it has events for ever."""
        begun = moved = new = monotonic()
        last, events, marked, first = list[int](), 0, 0, 0
        stopped, fault, user, warned = False, 0.0, False, False
        seen = np.zeros(len(source.places), bool)
        stopping = source.places[source.last]
        while True:
            status = self._process.poll()
            place, more = self._feed.read()
            now, said = monotonic(), self._said(shared=source.shares_console)
            if said:
                new = now
                user |= USER in said
            if len(place) or said:
                moved = now
            if fault:
                place = place[:0]
            hits = np.flatnonzero(np.isin(place, rules.stops))
            if len(hits):
                place = place[: hits[0] + 1]
                warned = bool(np.isin(place[-1], rules.marks))
            stalls = not user and STALL.search(said) is not None
            stops = not fault and (len(hits) > 0 or stalls)
            if stops:
                fault = now
            row = np.minimum(np.searchsorted(source.places, place), len(source.places) - 1)
            fresh = np.flatnonzero(~seen[row])
            if len(fresh):
                new, first = now, events + int(fresh[-1]) + 1
                seen[row] = True
            events += len(place)
            marked += int(np.isin(place, rules.marks).sum())
            calls = row[~source.hooks[row]]
            last = [*last, *source.ip[calls[-KEPT:]].tolist()][-KEPT:]
            stopped |= bool(np.isin(place, stopping).any())
            stopped |= bool(rules.most and events >= rules.most)
            if stops:
                self._feed.stop(events)
            reason, quiet = self._asked, False
            if stopped:
                reason = "tracer stopped"
            elif status is not None and not more:
                reason = f"QEMU ended with {status}"
            elif fault and (now - moved > WORDS or now - fault > MAX_WORDS):
                reason = "ended after a fault"
            elif now - begun > rules.limit:
                reason = f"ended after {rules.limit:g} seconds"
            elif now - moved > rules.idle:
                quiet, first = True, events
                reason = f"ended: no events and no console output for {rules.idle:g} seconds"
            elif not user and now - new > rules.idle:
                quiet = True
                reason = f"ended: no new function and no console output for {rules.idle:g} seconds"
            elif shutil.disk_usage(self._console.parent).free < ROOM:
                reason = f"ended: less than {ROOM >> 20} MiB left on the disk"
            yield Progress(
                events=events,
                last=tuple(last),
                ended=reason,
                stopped=stopped,
                status=status,
                fault=bool(fault),
                warned=warned,
                idle=quiet,
                lost=self._feed.lost,
                marked=marked,
                first=first,
            )
            if reason:
                return

    def _said(self, *, shared: bool) -> bytes:
        """What is new on the console, with the end of what was there; ``shared``: with events."""
        try:
            with self._console.open("rb") as file:
                file.seek(self._size)
                said = file.read(PART)
        except OSError:
            return b""
        if not said:
            return b""
        self._size += len(said)
        said = text_of(said) if shared else said
        if not said:
            return b""
        said = self._tail + said
        self._tail = said[-LINE:]
        return said
