"""QEMU with a patched kernel: started, looked at while it runs, and ended."""

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
from ftpatch.errors import InputError, UsageError
from ftpatch.image import Image
from ftpatch.image.headers import Segment

__all__ = ["Progress", "flat", "require_emulator", "run_machine"]

STEP = 0.2
"""Seconds between two looks."""
KEPT = 20
"""How many events are remembered."""


@dataclass(frozen=True)
class Progress:
    """``events`` so far, the addresses of the ``last`` sites, whether the tracer has been
    ``stopped``, QEMU's ``status`` (None while it runs)."""

    events: int
    last: Sequence[int]
    stopped: bool
    status: int | None


def require_emulator(emulator: Emulator) -> str:
    """The path of QEMU. Raises UsageError where it is not installed."""
    found = shutil.which(emulator.program)
    if found is None:
        reason = f"{emulator.program} is not installed"
        raise UsageError(None, reason, f"apt install {emulator.package}")
    return found


def flat(image: Image) -> bytes:
    """What `objcopy -O binary` makes: the loaded segments, as far apart as in memory."""
    parts = [s for s in image.elf.skeleton.segments if s.type == Segment.PT_LOAD and s.size]
    first = min(part.address for part in parts)
    out = bytearray(max(part.address + part.size for part in parts) - first)
    for part in parts:
        held = image.data[part.offset : part.offset + part.size]
        out[part.address - first : part.address - first + len(held)] = held.tobytes()
    return bytes(out)


def run_machine(
    command: Sequence[str | Path], stream: Path, source: Source, ends: tuple[int, int], limit: float
) -> Iterator[Progress]:
    """Run until it ends, or for ``limit`` seconds, or until ``ends``: the address of the site that
    stops the tracer and the number of events that does, 0 for neither. Raises InputError where QEMU
    cannot be started."""
    begun, decoder = monotonic(), Decoder(source)
    last: list[int] = []
    try:
        machine = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise InputError(str(command[0]), f"cannot run: {error.strerror}") from None
    until, most = ends
    stream.touch()
    with machine, stream.open("rb") as file:
        try:
            while True:
                status = machine.poll()
                stopped = False
                while raw := file.read(1 << 20):
                    for part in decoder.feed(np.frombuffer(raw, np.uint8)):
                        places = np.searchsorted(source.places, part.place[-KEPT:])
                        last = [*last, *source.ip[places].tolist()][-KEPT:]
                stopped = bool(until and last and last[-1] == until)
                stopped |= bool(most and decoder.events >= most)
                yield Progress(decoder.events, last, stopped, status)
                if stopped or status is not None or monotonic() - begun > limit:
                    return
                sleep(STEP)
        finally:
            machine.kill()
