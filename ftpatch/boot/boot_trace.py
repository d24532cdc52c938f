"""A stream as a trace, for the formats of reports."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ftpatch.boot.calls import Calls
from ftpatch.boot.nesting import NOBODY
from ftpatch.boot.returns import callers_of
from ftpatch.boot.stream import Decoder, find_source, read_stream
from ftpatch.errors import InputError, UsageError
from ftpatch.image import Image
from ftpatch.trace import Trace
from ftpatch.trace.chunks import Chunks
from ftpatch.trace.header import MAGIC, Flag, Header, Tracer
from ftpatch.trace.names import Functions
from ftpatch.trace.window import Window

__all__ = ["BootTrace", "is_stream"]

NONE = "no events of this kernel"
HINT = "--image must name the kernel that wrote the stream"


def is_stream(path: Path) -> bool:
    """Return whether a file is a stream, not a trace with a header."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) != MAGIC
    except OSError:
        return False  # whoever reads it will say why


class BootTrace(Trace):
    """One stream and the kernel that sent it. Threads are stacks: of tasks, and of interrupts.
    Times are ticks of the time-stamp counter or, where none was recorded, numbers of events."""

    def __init__(self, path: Path, image: Image, window: Window, *, force: bool = False) -> None:
        """Read all of it. Raises InputError where there is no event, and, without ``force``, where
        most of it is something else; UsageError where the image has no boot tracer."""
        source = find_source(image)
        decoder = Decoder(source)
        events = list(read_stream(path, decoder))
        if not events:
            raise InputError(path, "the file is empty" if not decoder.skipped else NONE, HINT)
        if decoder.is_foreign and not force:
            found = f"only {decoder.events} events of this kernel, and {decoder.notes[0]}"
            raise InputError(path, found, f"{HINT}; use --force to read it")
        self.window, self.remarks, self.program = window, [], []
        self.sources, self.files, self.clocks = [], [], []
        lowest = int(source.ip.min())
        code = (source.ip - np.uint64(lowest - 2)).astype(np.uint32)  # an address within the site
        func = [code[np.searchsorted(source.places, part.place)] for part in events]
        back = [part.back for part in events if part.back is not None]
        caller = np.full(sum(map(len, func)), NOBODY, np.uint32)
        if back:
            caller = callers_of(np.concatenate(back), source, image.kallsyms, code)
        stack = source.tracer.stack
        self._calls = Calls(events, np.concatenate(func), caller, stack, window.tids)
        self._decoder = decoder
        missing = window.tids - set(range(1, len(self._calls.stacks) + 1))
        if missing:
            raise UsageError(None, f"no thread {min(missing)} in the trace")
        self.headers = [_header(path, image, lowest, time=source.mark.time)]
        nothing = np.empty(0, np.int64)
        stacks = len(self._calls.stacks)
        self.chunks = Chunks(
            *(nothing.astype(np.int32), nothing, nothing, nothing.astype(np.int32)),
            *(nothing.astype(np.uint64), nothing, nothing),
            tid=np.arange(1, stacks + 1),
            owner=np.zeros(stacks, np.int32),
        )
        self.batches = self._calls  # type: ignore[assignment]  # batches are all that is asked of it
        self.functions = Functions([])

    def notes(self) -> list[str]:
        """Bytes outside of any event, and remarks of formats."""
        return [*self.remarks, *self._decoder.notes]


class _Header(Header):
    """What a stream's trace would say of itself, if it had a header."""

    @property
    def notes(self) -> list[str]:
        """What the times are: nothing else is known."""
        if self.ticks:
            return ["times are ticks of the processor's counter, whose rate is unknown"]
        return ["times are event numbers: no timestamps were recorded"]


def _header(path: Path, image: Image, lowest: int, *, time: bool) -> Header:
    """As a program's trace would have it. Its times are ticks of an unknown rate."""
    return _Header(
        path=path,
        tracer=Tracer.FUNCTION_GRAPH,
        flags=Flag.ENDED,
        base=lowest,
        realtime=0,
        lost=(),
        image_id=b"",
        comm="kernel",
        image=str(image.path),
        length=0,
        header_size=0,
        chunk_size=0,
        size=0,
        taken=0,
        bias=0,
        hz=0,
        ticks=int(time),
        pid=0,
    )
