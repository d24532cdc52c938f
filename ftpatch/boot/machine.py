# SPDX-License-Identifier: MIT
"""QEMU running a patched kernel: starting it, watching its stream of events, ending it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

import numpy as np

from ftpatch.arch.boot import Emulator
from ftpatch.boot.stream import Decoder, Source
from ftpatch.elf.headers import Segment
from ftpatch.errors import InputError, UsageError
from ftpatch.image import Image

__all__ = ["Machine", "Progress", "fault_in", "flat", "qemu_command", "require_emulator"]

STEP = 0.2
"""Seconds between two polls."""
PART = 1 << 20
"""Bytes of the stream to examine at a time."""
KEPT = 20
"""Number of latest events to keep."""
ROOM = 1 << 30
"""Bytes that must stay free on the disk."""
SPOKEN = 1 << 16
"""Bytes of QEMU's log to examine."""
TIMED_OUT = 124
"""Exit code of a run that was ended, as in timeout(1)."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """``events`` so far, the addresses of the ``last`` sites, why it ``ended`` (empty while it
    runs), whether the tracer has ``stopped``, QEMU's ``status`` if it ended by itself."""

    events: int = 0
    last: Sequence[int] = ()
    ended: str = ""
    stopped: bool = False
    status: int | None = None

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
    kernel: Image, source: Source, folder: Path, append: str, words: Sequence[str]
) -> list[str]:
    """Build the command that boots a kernel in ``folder``, where its stream, console and log go.
    Raises UsageError if QEMU is not installed."""
    emulator = source.tracer.emulator
    program = require_emulator(emulator)
    sink = source.tracer.sinks[source.mark.sink]
    files = {name: str(folder / name) for name in ("stream", "console", "log")}
    file = kernel.path
    if emulator.flat:
        file = folder / "Image"
        file.write_bytes(flat(kernel))
    command = [program, *emulator.command(sink, files), "-kernel", str(file)]
    return [*command, "-append", emulator.said(sink, append), *words]


class Machine:
    """A QEMU in a process group of its own, so that a terminal's signals are ours. As a context
    manager, it is killed on exit. Raises InputError if it cannot be started."""

    def __init__(self, command: Sequence[str], stream: Path, console: Path) -> None:
        self._stream, self._console = stream, console
        self._asked = ""
        stream.touch()
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)
        except OSError as error:
            raise InputError(command[0], f"cannot run: {error.strerror}") from None

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._process.wait()

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()

    def ask(self, reason: str) -> None:
        """End it at the next poll, giving this reason."""
        self._asked = reason

    def watch(self, source: Source, most: int, limit: float, idle: float) -> Iterator[Progress]:
        """Watch it until it ends, for ``limit`` seconds, until nothing has happened for ``idle``
        seconds, or until the tracer has stopped: at its last function, or after ``most`` events (0:
        unlimited)."""
        begun = moved = monotonic()
        decoder, seen, last = Decoder(source), (0, 0), list[int]()
        stopped = False
        with self._stream.open("rb") as file:
            while True:
                status = self._process.poll()
                raw = file.read(PART)
                for part in decoder.feed(np.frombuffer(raw, np.uint8)):
                    sites = np.searchsorted(source.places, part.place)
                    last = [*last, *source.ip[sites[-KEPT:]].tolist()][-KEPT:]
                    stopped |= bool(source.last[sites].any())
                now, size = monotonic(), (file.tell(), self._said())
                moved, seen = (now if size != seen else moved), size
                stopped |= bool(most and decoder.events >= most)
                reason = self._asked
                if stopped:
                    reason = "tracer stopped"
                elif status is not None and len(raw) < PART:
                    reason = f"QEMU ended with {status}"
                elif now - begun > limit:
                    reason = f"ended after {limit:g} seconds"
                elif now - moved > idle:
                    reason = f"ended: no events and no console output for {idle:g} seconds"
                elif shutil.disk_usage(self._stream.parent).free < ROOM:
                    reason = f"ended: less than {ROOM >> 20} MiB left on the disk"
                yield Progress(
                    events=decoder.events,
                    last=tuple(last),
                    ended=reason,
                    stopped=stopped,
                    status=status,
                )
                if reason:
                    return
                if len(raw) < PART:
                    sleep(STEP)

    def _said(self) -> int:
        """Bytes written to the console."""
        try:
            return self._console.stat().st_size
        except OSError:
            return 0
