# SPDX-License-Identifier: MIT
"""Streams of boot tracers, for reports."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ftpatch.arch.boot import Events
from ftpatch.boot.calls import Calls
from ftpatch.boot.nesting import NOBODY
from ftpatch.boot.returns import callers_of
from ftpatch.boot.stream import Decoder, Source
from ftpatch.errors import InputError, UsageError
from ftpatch.image import Image
from ftpatch.trace.events import read_rows
from ftpatch.trace.header import MAGIC
from ftpatch.trace.losses import Loss
from ftpatch.trace.mapped import Mapped
from ftpatch.trace.rows import Rows
from ftpatch.trace.source import Data, Recording, SourceKind
from ftpatch.trace.window import Window

__all__ = [
    "HITS",
    "SOURCES",
    "STREAM",
    "BootTrace",
    "Origin",
    "Stream",
    "is_stream",
    "recording_of",
    "require_no_other",
]


STREAM = SourceKind(what="calls", data=Data.CALLS, default="function_graph")
"""Streams of boot tracers."""
HITS = SourceKind(
    what="probe events", data=Data.HITS, default="probes", no_returns="there are no r probes"
)
"""Streams of kernels with probes."""
SOURCES = (STREAM, HITS)
ELF = b"\x7fELF"
HEAD = 1 << 20
"""Bytes of a file to look at."""


def is_stream(path: Path) -> bool:
    """Return whether a file is a stream, not a trace with a header."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) != MAGIC
    except OSError:
        return False  # reading it will report the reason


def require_no_other(path: Path) -> None:
    """Raise InputError for a file that begins as no stream does: an image, or nothing but text
    (that of a console ends where events begin)."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError as error:
        raise InputError(path, f"cannot read: {error.strerror}") from None
    what = "an ELF file" if head.startswith(ELF) else "text" if _is_text(head) else ""
    if what:
        reason = f"neither a trace file nor a boot tracer's stream, but {what}"
        raise InputError(path, reason, "name the file that the emulated device wrote")


def _is_text(head: bytes) -> bool:
    """True for UTF-8, which may end within a character, without control characters."""
    try:
        text = getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return bool(text) and all(one.isprintable() or one.isspace() for one in text)


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Metadata of a stream: all it has comes from its image. Times are ``ticks`` of a counter of
    unknown rate, or else numbers of events."""

    path: Path
    image: str
    base: int
    ticks: bool
    image_id: bytes = b""
    pid: int = 0
    comm: str = "kernel"
    bias: int = 0
    hz: int = 0
    libraries: tuple[Mapped, ...] = ()
    objects: tuple[Mapped, ...] = ()
    losses: tuple[Loss, ...] = ()

    @property
    def notes(self) -> list[str]:
        """Notes on the unit of times: nothing else is known."""
        if self.ticks:
            return ["times are ticks of the processor's counter, whose rate is unknown"]
        return ["times are event numbers: no timestamps were recorded"]


@dataclass(frozen=True)
class Stream:
    """A stream as it was read: the kernel that sent it, and its ``events``, in batches."""

    path: Path
    image: Image
    source: Source
    decoder: Decoder
    events: Sequence[Events]

    @property
    def base(self) -> int:
        """The lowest site's address: those of calls are offsets from it."""
        return int(self.source.ip.min())


class BootTrace:
    """One stream and the kernel that sent it: a source of calls. Threads are stacks: of tasks, and
    of interrupts."""

    kind = STREAM
    has_returns = True
    has_stacks = False

    def __init__(self, stream: Stream, window: Window) -> None:
        source, events = stream.source, stream.events
        code = source.ip - np.uint64(stream.base - 2)  # an address within the site
        code = code.astype(np.uint32)
        func = [code[np.searchsorted(source.places, part.place)] for part in events]
        back = [part.back for part in events if part.back is not None]
        caller = np.full(sum(map(len, func)), NOBODY, np.uint32)
        if back:
            caller = callers_of(np.concatenate(back), source, stream.image.kallsyms, code)
        stack = source.tracer.stack
        self._calls = Calls(events, np.concatenate(func), caller, stack, window.tids)
        self._decoder = stream.decoder
        self.recording = recording_of(stream, window, len(self._calls.stacks))

    @property
    def steps(self) -> int:
        """Number of batches of rows."""
        return len(self._calls)

    def rows(self) -> Iterator[Rows]:
        """Calls, a batch at a time."""
        return read_rows(self._calls, self.recording, np.zeros(len(self.recording.tids), bool))

    def hits(self) -> None:
        """None: a stream has only calls."""

    def sums(self, header: int | None = None) -> None:
        """None: a stream has only calls."""

    def tally(self) -> None:
        """None: only rows lead to sums."""

    def accesses(self) -> None:
        """None: a stream has only calls."""

    def notes(self) -> list[str]:
        """Bytes outside of any event, and the formats' remarks."""
        return [*self.recording.remarks, *self._decoder.notes]

    def close(self) -> None:
        """Do nothing: all of it has been read."""


def recording_of(stream: Stream, window: Window, stacks: int) -> Recording:
    """Metadata of a stream with so many stacks. Raises UsageError for a thread it does not have."""
    missing = window.tids - set(range(1, stacks + 1))
    if missing:
        raise UsageError(None, f"no thread {min(missing)} in the trace")
    ticks = stream.source.mark.time
    origin = Origin(path=stream.path, image=str(stream.image.path), base=stream.base, ticks=ticks)
    return Recording(
        headers=[origin],
        tids=list(range(1, stacks + 1)),
        owner=np.zeros(stacks, np.int32),
        window=window,
    )
