"""The header of a trace file, as stubs/runtime/trace.h draws it."""

from __future__ import annotations

import errno
import os
import stat
import struct
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from pathlib import Path

from ftpatch.errors import InputError
from ftpatch.trace.mapped import Mapped, read_mapped, read_objects

__all__ = ["Flag", "Header", "Tracer", "open_trace"]

MAGIC = b"FTPTRACE"
VERSION = 1
LAYOUT = struct.Struct("<8s6I9Q4I8Q32s16s4IQ1024s")
MOST = 4096
"""Bytes of a header to examine."""
SMALLEST_CHUNK = 40
"""Bytes of a chunk's header and one event."""


class Tracer(IntEnum):
    """Number of the tracer that wrote it."""

    NOP = 0
    FUNCTION = 1
    FUNCTION_GRAPH = 2
    FUNCTION_PROFILE = 3
    USER = 4
    """A stub that came with --tracer PATH."""
    PROBES = 5
    WATCH = 6


class Flag(IntFlag):
    """Flags of the header."""

    ARGS = 1
    """Entries have arguments, and exits values."""
    ENDED = 2
    """The program came to its end."""
    STOPPED = 4
    """A return address could not be right: the tracer stopped, and put it back."""
    NO_ROOM = 8
    """The disk was full before the file was."""
    SILENT = 16
    """The program's libc does not tell when it ends."""


TOLD = 4096
"""Offset of the tables of probes and watches."""
LOST = (
    "file full: --size",
    "ret_stack full: --depth",
    "in a signal handler",
    "no thread pointer yet",
    "too many threads",
)
"""Reasons for lost calls, in the order of enum trace_lost."""


@dataclass(frozen=True)
class Header:
    """Header of a trace. ``path`` is the trace's, ``image`` that of the program it was
    recorded of; sizes and ``length`` (what the file has now) in bytes, ``ticks`` of a clock that
    has ``hz`` in a second, ``realtime`` in nanoseconds since 1970."""

    path: Path
    length: int
    header_size: int
    chunk_size: int
    tracer: Tracer
    flags: int
    size: int
    taken: int
    bias: int
    base: int
    hz: int
    ticks: int
    realtime: int
    pid: int
    lost: tuple[int, ...]
    image_id: bytes
    comm: str
    image: str
    libraries: tuple[Mapped, ...] = ()
    unknown: int = 0
    """Number of corrupt library entries."""
    machine: int = 0
    """e_machine of the image."""
    probes: int = 0
    """Number of probes, or watches, behind the header."""
    children: int = 0
    """Children of fork that recorded here, ``refusal`` being the errno of a file of their own; 0:
    that was too small."""
    refusal: int = 0
    cut: int = 0
    """Bytes that the process had in an earlier file, which somebody cut off."""
    objects: tuple[Mapped, ...] = ()
    """Libraries that were loaded with what has these."""

    @property
    def used(self) -> int:
        """Bytes from the start of the file that its writer has handed out."""
        return min(self.size, self.header_size + self.taken)

    @property
    def notes(self) -> list[str]:
        """Notes on what is missing in this trace, a clause each."""
        notes = []
        if any(self.lost):
            why = [*LOST, *["other reasons"] * len(self.lost)]
            if self.flags & Flag.NO_ROOM:
                why[0] = "disk full"
            parts = [f"{n} {why[i]}" for i, n in enumerate(self.lost) if n]
            notes.append(f"entries lost: {sum(self.lost)} ({', '.join(parts)})")
        if self.children:
            known = self.refusal in errno.errorcode
            reason = os.strerror(self.refusal) if known else "their own files were small and full"
            notes.append(
                f"forked children recorded in this file instead of their own: {self.children} "
                f"({reason})"
            )
        if self.cut:
            notes.append(
                "an earlier file of this process was truncated while it was being written: up to "
                f"{self.cut} bytes are lost"
            )
        if self.flags & Flag.STOPPED:
            notes.append("the tracer stopped early: invalid return address")
        if not self.flags & (Flag.ENDED | Flag.SILENT):
            notes.append(
                "the program did not end by exit(): it was killed, called _exit or exec, or still "
                "runs"
            )
        if self.length < self.used:
            notes.append(f"the file is truncated: {self.length} of {self.used} bytes")
        if self.unknown:
            notes.append(f"corrupt library entries: {self.unknown}")
        if not self.hz:
            notes.append("the clock's rate is unknown: times are ticks")
        return notes


def open_trace(path: Path) -> tuple[int, Header]:
    """A descriptor of a trace file, and its header. Raises InputError if it is not one, for one of
    another version, and for a corrupt header."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise InputError(path, f"cannot read: {error.strerror}") from None
    try:
        held = os.fstat(fd)
        if not stat.S_ISREG(held.st_mode):
            raise InputError(path, "not a regular file", "use a trace file")
        os.set_blocking(fd, True)
        return fd, _parse(path, os.pread(fd, MOST, 0), held.st_size)
    except OSError as error:
        os.close(fd)
        raise InputError(path, f"cannot read: {error.strerror}") from None
    except BaseException:
        os.close(fd)
        raise


def _parse(path: Path, raw: bytes, length: int) -> Header:
    if not raw.startswith(MAGIC):
        hint = "use a file that a patched program wrote, or --image for a boot tracer's stream"
        raise InputError(path, "not a trace file", hint)
    if len(raw) < LAYOUT.size:
        raise InputError(path, f"the header is truncated after {len(raw)} bytes")
    _, version, header_size, machine, chunk_size, tracer, flags, *rest = LAYOUT.unpack_from(raw)
    size, taken, bias, base, hz, ticks, realtime, _, _, pid, _, _, _, *rest = rest
    *lost, image_id, comm, probes, children, refusal, _, cut, image = rest
    if version != VERSION:
        raise InputError(path, f"unsupported trace format {version}, not {VERSION}")
    if header_size < LAYOUT.size or header_size % 8:
        raise InputError(path, f"invalid header size {header_size}")
    if header_size > length:
        raise InputError(path, f"the header is truncated: {length} of {header_size} bytes")
    if chunk_size < SMALLEST_CHUNK or chunk_size % 8:
        raise InputError(path, f"invalid chunk size {chunk_size}")
    if tracer not in list(Tracer):
        raise InputError(path, f"unknown tracer {tracer}")
    libraries, unknown = read_mapped(raw[:header_size])
    objects: tuple[Mapped, ...] = ()
    if tracer in (Tracer.PROBES, Tracer.WATCH):
        libraries, unknown, objects = (), 0, read_objects(raw[:TOLD])
    return Header(
        path,
        length,
        header_size,
        chunk_size,
        Tracer(tracer),
        flags,
        size,
        taken,
        bias,
        base,
        hz,
        ticks,
        realtime,
        pid,
        tuple(lost),
        image_id,
        _text(comm),
        os.fsdecode(image.partition(b"\0")[0]),
        libraries,
        unknown,
        machine,
        probes,
        children,
        refusal,
        cut,
        objects,
    )


def _text(raw: bytes) -> str:
    return raw.partition(b"\0")[0].decode("utf-8", "backslashreplace")
