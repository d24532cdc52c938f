# SPDX-License-Identifier: MIT
"""Opening a stream: calls, or hits of a kernel with probes."""

from __future__ import annotations

from pathlib import Path

from ftpatch.boot.events import BootTrace
from ftpatch.boot.hook_events import HookTrace
from ftpatch.boot.stream import Decoder, find_source, read_stream
from ftpatch.errors import InputError
from ftpatch.image import Image
from ftpatch.trace.window import Window

__all__ = ["open_stream"]

NONE = "no events of this kernel"
HINT = "--image must name the kernel that wrote the stream"


def open_stream(
    path: Path, image: Image, window: Window, *, force: bool = False
) -> BootTrace | HookTrace:
    """Read all of a stream. Raises InputError if it has no event or, without ``force``, if most of
    it is something else; UsageError if the image has no boot tracer."""
    source = find_source(image)
    decoder = Decoder(source)
    events = list(read_stream(path, decoder))
    if not events:
        raise InputError(path, "the file is empty" if not decoder.skipped else NONE, HINT)
    if decoder.is_foreign and not force:
        found = f"only {decoder.events} events of this kernel, and {decoder.notes[0]}"
        raise InputError(path, found, f"{HINT}; use --force to read it")
    read = BootTrace if source.hooked is None else HookTrace
    return read(path, image, window, source, decoder, events)
