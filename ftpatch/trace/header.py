# SPDX-License-Identifier: MIT
"""The header of a trace file, as laid out in stubs/runtime/trace.h."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from pathlib import Path

from ftpatch.errors import InputError
from ftpatch.layout import constants, structure, texts, unpack
from ftpatch.trace.lost_events import Reason, lost_by, lost_text
from ftpatch.trace.mapped import Mapped, read_mapped, read_objects

__all__ = ["MAGIC", "Flag", "Header", "Tracer", "open_trace"]

MAGIC = texts["TRACE_MAGIC"]
"""The first bytes of a trace file."""
VERSION = constants["TRACE_VERSION"]
SIZE = structure("trace_header").itemsize
"""Size of its fixed part (bytes)."""
MAX_READ = constants["TRACE_HEADER"]
"""Bytes of a header to read: probes and watches are described after them."""
SMALLEST_CHUNK = structure("trace_chunk").itemsize + 8
"""Size of a chunk's header and one event (bytes)."""


class Tracer(IntEnum):
    """Number of the tracer that wrote the trace."""

    NOP = constants["TRACER_NOP"]
    FUNCTION = constants["TRACER_FUNCTION"]
    FUNCTION_GRAPH = constants["TRACER_GRAPH"]
    FUNCTION_PROFILE = constants["TRACER_PROFILE"]
    USER = constants["TRACER_USER"]
    """A stub given by --tracer PATH."""
    PROBES = constants["TRACER_PROBES"]
    WATCH = constants["TRACER_WATCH"]


class Flag(IntFlag):
    """Flags of the header."""

    ARGS = constants["TRACE_ARGS"]
    """Entries have arguments, and exits return values."""
    ENDED = constants["TRACE_ENDED"]
    """The program exited normally."""
    STOPPED = constants["TRACE_STOPPED"]
    """A return address was invalid: the tracer stopped and restored it."""
    NO_ROOM = constants["TRACE_NO_ROOM"]
    """The disk was full before the file was."""
    SILENT = constants["TRACE_SILENT"]
    """The program's libc does not report its exit."""
    ATTACHED = constants["TRACE_ATTACHED"]
    """The process was running when the tracer came."""


@dataclass(frozen=True, kw_only=True)
class Header:
    """A trace's header. ``path`` is the trace's, ``image`` that of the recorded program; sizes and
    ``length`` (the file's current one) in bytes, ``ticks`` of a clock with ``hz`` per second,
    ``realtime`` in nanoseconds since 1970; ``ended_ticks`` is valid with Flag.ENDED."""

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
    """Number of probes or watches described after the header."""
    children: int = 0
    """Forked children that recorded here. ``refusal`` is the errno of creating their own file; 0:
    that was too small."""
    refusal: int = 0
    cut: int = 0
    """Bytes of this process's events lost when an earlier file was truncated."""
    objects: tuple[Mapped, ...] = ()
    """Libraries loaded along with a probed or watched program."""
    ppid: int = 0
    ended_ticks: int = 0

    @property
    def used(self) -> int:
        """Bytes from the start of the file that its writer has allocated."""
        return min(self.size, self.header_size + self.taken)

    @property
    def lost_events(self) -> dict[Reason, int]:
        """Number of events that could not be recorded, by reason."""
        return lost_by(self.lost, no_room=bool(self.flags & Flag.NO_ROOM))

    @property
    def lost_note(self) -> str:
        """The same in words; empty if none was lost."""
        return lost_text(self.lost_events) if self.lost_events else ""

    @property
    def notes(self) -> list[str]:
        """Notes on what is missing in this trace, one clause each."""
        notes = [self.lost_note] if self.lost_note else []
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
        if not self.flags & (Flag.ENDED | Flag.SILENT | Flag.ATTACHED):
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
    """Open a trace file; return its descriptor and header. Raises InputError for other files, for
    other versions, and for a corrupt header."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise InputError(path, f"cannot read: {error.strerror}") from None
    except ValueError:
        raise InputError(path, "cannot read: a NUL character in its name") from None
    try:
        held = os.fstat(fd)
        if not stat.S_ISREG(held.st_mode):
            raise InputError(path, "not a regular file", "use a trace file")
        os.set_blocking(fd, True)
        return fd, _parse(path, os.pread(fd, MAX_READ, 0), held.st_size)
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
    if len(raw) < SIZE:
        raise InputError(path, f"the header is truncated after {len(raw)} bytes")
    held = unpack("trace_header", raw)
    version, header_size, chunk_size = held["version"], held["header_size"], held["chunk_size"]
    if version != VERSION:
        raise InputError(path, f"unsupported trace format {version}, not {VERSION}")
    if header_size < SIZE or header_size % 8:
        raise InputError(path, f"invalid header size {header_size}")
    if header_size > length:
        raise InputError(path, f"the header is truncated: {length} of {header_size} bytes")
    if chunk_size < SMALLEST_CHUNK or chunk_size % 8:
        raise InputError(path, f"invalid chunk size {chunk_size}")
    if held["tracer"] not in list(Tracer):
        raise InputError(path, f"tracer {held['tracer']} is not known")
    tracer = Tracer(held["tracer"])
    libraries, unknown = read_mapped(raw[:header_size])
    objects: tuple[Mapped, ...] = ()
    if tracer in (Tracer.PROBES, Tracer.WATCH):
        libraries, unknown, objects = (), 0, read_objects(raw)
    return Header(
        path=path,
        length=length,
        header_size=header_size,
        chunk_size=chunk_size,
        tracer=Tracer(tracer),
        flags=held["flags"],
        size=held["size"],
        taken=held["taken"],
        bias=held["bias"],
        base=held["base"],
        hz=held["hz"],
        ticks=held["ticks"],
        realtime=held["realtime"],
        pid=held["pid"],
        lost=tuple(held["lost"]),
        image_id=held["image_id"],
        comm=_text(held["comm"]),
        image=os.fsdecode(held["path"].partition(b"\0")[0]),
        libraries=libraries,
        unknown=unknown,
        machine=held["machine"],
        probes=held["probes"],
        children=held["children"],
        refusal=held["refusal"],
        cut=held["cut"],
        objects=objects,
        ppid=held["ppid"],
        ended_ticks=held["ended_ticks"],
    )


def _text(raw: bytes) -> str:
    return raw.partition(b"\0")[0].decode("utf-8", "backslashreplace")
