# SPDX-License-Identifier: MIT
"""The header of a trace file, as laid out in stubs/runtime/trace.h."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass, replace
from enum import IntEnum, IntFlag
from pathlib import Path

from ftpatch.core.byte_order import BIG, LITTLE, ByteOrder
from ftpatch.errors import InputError
from ftpatch.layout import constants, offset_of, structure, texts, unpack
from ftpatch.trace.losses import ACCOUNT, Loss, by_thread_text, losses_of, read_losses
from ftpatch.trace.lost_events import Reason, lost_by, lost_text
from ftpatch.trace.mapped import Mapped, read_mapped, read_objects

__all__ = [
    "MAGIC",
    "MAX_READ",
    "NOT_ENDED",
    "Events",
    "Flag",
    "Header",
    "Tracer",
    "is_unbegun",
    "open_trace",
    "parse_header",
    "with_losses",
]

MAGIC = texts["TRACE_MAGIC"]
"""The first bytes of a trace file."""
VERSION, VERSION_TOGETHER = constants["TRACE_VERSION"], constants["TRACE_VERSION_TOGETHER"]
SIZE = structure("trace_header").itemsize
"""Size of its fixed part (bytes)."""
MAX_READ = constants["TRACE_HEADER"]
"""Bytes of a header to read: probes and watches are described after them."""
NOT_ENDED = "the program did not end by exit(): it was killed, called _exit or exec, or still runs"
"""Note on a trace that may still be written."""
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


class Events(IntEnum):
    """Kinds of events that a trace may have together, each in chunks of its own."""

    CALLS = constants["KIND_CALLS"]
    HITS = constants["KIND_HITS"]
    ACCESSES = constants["KIND_ACCESSES"]


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
    RING = constants["TRACE_RING"]
    """The oldest chunks were used again when the file was full."""
    ROTATES = constants["TRACE_ROTATES"]
    """The process goes on in another file when this one is full."""
    NEXT = constants["TRACE_NEXT"]
    """It has done so."""
    TOGETHER = constants["TRACE_TOGETHER"]
    """There are several kinds of events."""
    LIBRARY = constants["TRACE_LIBRARY"]
    """A shared library recorded by itself: ``image`` is its file."""
    WATCHES = constants["TRACE_WATCHES"]
    """Accesses are among them."""


CALLING = (Tracer.FUNCTION, Tracer.FUNCTION_GRAPH)
"""Tracers whose events may be together with others."""
TRACERS = {Events.HITS: Tracer.PROBES, Events.ACCESSES: Tracer.WATCH}


@dataclass(frozen=True, kw_only=True)
class Header:
    """A trace's header. ``path`` is the trace's, ``image`` that of the recorded program;
    ``order`` is that of the file's bytes; sizes and ``length`` (the file's current one) in bytes,
    ``ticks`` of a clock with ``hz`` per second, ``realtime`` in nanoseconds since 1970;
    ``ended_ticks`` is valid with Flag.ENDED."""

    path: Path
    length: int
    order: ByteOrder
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
    overwritten: int = 0
    """Events of a ring that others have taken the place of, or in files that were removed."""
    accounts: int = 0
    """File offset of what threads lost, behind all chunks; 0: nothing is known of that."""
    accounted: int = 0
    """Number of such accounts, or more than there is room for."""
    known_losses: tuple[Loss, ...] = ()
    """Those that were read, by thread."""
    off: int = 0
    """Nonzero while recording is switched off."""
    grown: int = 0
    """TRACE_UNITs of the file that are on disk."""

    @property
    def is_ring(self) -> bool:
        """True if the oldest chunks are used again."""
        return bool(self.flags & Flag.RING)

    @property
    def library(self) -> str:
        """Name of the shared library that recorded itself; empty for a program."""
        return Path(self.image).name if self.flags & Flag.LIBRARY else ""

    @property
    def chunks_end(self) -> int:
        """File offset that all chunks end before."""
        return min(self.length, self.accounts or self.length)

    @property
    def chunks_used(self) -> int:
        """Bytes from the start of the file to the end of what was handed out as chunks."""
        return min(self.accounts or self.size, self.header_size + self.taken)

    only: Events | None = None
    """The kind of events that is read of those that a trace has together; None: it has one."""

    @property
    def together(self) -> tuple[Events, ...]:
        """The kinds of events that a trace has together; empty for one that has but one."""
        if not self.flags & Flag.TOGETHER:
            return ()
        calls = (Events.CALLS,) if self.tracer in CALLING else ()
        hits = (Events.HITS,) if self.probes else ()
        return (*calls, *hits, *((Events.ACCESSES,) if self.flags & Flag.WATCHES else ()))

    def of(self, kind: Events) -> Header:
        """The header as that of a trace of one kind of its events."""
        tracer = TRACERS.get(kind, self.tracer)
        return replace(self, tracer=tracer, only=kind)

    @property
    def used(self) -> int:
        """Bytes from the start of the file that its writer has used."""
        if not self.accounted or not self.accounts:
            return self.chunks_used
        return min(self.size, self.accounts + self.accounted * ACCOUNT.itemsize)

    @property
    def losses(self) -> tuple[Loss, ...]:
        """Losses of each thread that has any."""
        return losses_of(self.known_losses, self.lost, self.overwritten)

    @property
    def lost_events(self) -> dict[Reason, int]:
        """Number of events that could not be recorded, by reason."""
        no_room, library = bool(self.flags & Flag.NO_ROOM), bool(self.flags & Flag.LIBRARY)
        return lost_by(self.lost, no_room=no_room, ring=self.is_ring, library=library)

    @property
    def lost_note(self) -> str:
        """The same in words; empty if none was lost."""
        return lost_text(self.lost_events) if self.lost_events else ""

    @property
    def notes(self) -> list[str]:
        """Notes on what is missing in this trace, one clause each."""
        notes = [self.lost_note] if self.lost_note else []
        by_thread = by_thread_text(self.losses)
        if by_thread:
            notes.append(by_thread)
        if self.overwritten:
            events = f"{self.overwritten} event{'s' * (self.overwritten != 1)}"
            how = "in files that were removed (--rotate)"
            how = how if self.flags & Flag.ROTATES else "overwritten by later ones (--ring)"
            notes.append(f"{events} {how}")
        if self.off:
            notes.append("recording was off at the end")
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
        if not self.flags & (Flag.ENDED | Flag.SILENT | Flag.ATTACHED | Flag.NEXT):
            notes.append(NOT_ENDED)
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
        header = parse_header(path, os.pread(fd, MAX_READ, 0), held.st_size)
        return fd, with_losses(fd, header)
    except OSError as error:
        os.close(fd)
        raise InputError(path, f"cannot read: {error.strerror}") from None
    except BaseException:
        os.close(fd)
        raise


def is_unbegun(path: Path) -> bool:
    """Test whether this is a trace file that has no header yet: where its process was killed just
    after it had made it, there is nothing in it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return False
    try:
        return stat.S_ISREG(os.fstat(fd).st_mode) and not any(os.pread(fd, len(MAGIC), 0))
    except OSError:
        return False
    finally:
        os.close(fd)


def with_losses(fd: int, header: Header) -> Header:
    """Read what the threads of a trace lost. Raises OSError."""
    if not header.accounted or not 0 < header.accounts < header.length:
        return header  # none, or behind the file's end, where they may be anywhere
    known = read_losses(fd, header.accounts, header.accounted, header.order)
    return replace(header, known_losses=known)


def parse_header(path: Path, raw: bytes, length: int) -> Header:
    """Parse the first MAX_READ bytes of a trace file that has ``length`` bytes. Raises InputError,
    as open_trace does."""
    if not raw.startswith(MAGIC):
        hint = "use a file that a patched program wrote, or --image for a boot tracer's stream"
        raise InputError(path, "not a trace file", hint)
    if len(raw) < SIZE:
        raise InputError(path, f"the header is truncated after {len(raw)} bytes")
    order = _order(raw)
    held = unpack("trace_header", order, raw)
    version, header_size, chunk_size = held["version"], held["header_size"], held["chunk_size"]
    together = bool(held["flags"] & Flag.TOGETHER)
    if version != (VERSION_TOGETHER if together else VERSION):
        known = f"{VERSION} or {VERSION_TOGETHER}"
        raise InputError(path, f"unsupported trace format {version}, not {known}")
    if header_size < SIZE or header_size % 8:
        raise InputError(path, f"invalid header size {header_size}")
    if header_size > length:
        raise InputError(path, f"the header is truncated: {length} of {header_size} bytes")
    if chunk_size < SMALLEST_CHUNK or chunk_size % 8:
        raise InputError(path, f"invalid chunk size {chunk_size}")
    if held["tracer"] not in list(Tracer):
        raise InputError(path, f"tracer {held['tracer']} is not known")
    tracer = Tracer(held["tracer"])
    libraries, unknown = read_mapped(raw[:header_size], order)
    objects: tuple[Mapped, ...] = ()
    if together and tracer not in (*CALLING, Tracer.PROBES):
        raise InputError(path, f"the {tracer.name.lower()} tracer records no others' events")
    if tracer in (Tracer.PROBES, Tracer.WATCH) or together:
        libraries, unknown, objects = (), 0, read_objects(raw, order)
    return Header(
        path=path,
        length=length,
        order=order,
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
        overwritten=held["overwritten"],
        accounts=held["accounts"] if held["accounts"] >= header_size else 0,
        accounted=held["accounted"],
        off=held["off"] & constants["OFF_NOW"],
        grown=held["grown"],
    )


def _order(raw: bytes) -> ByteOrder:
    """That of the machine that wrote the header: in the other one, its version has no name."""
    at = offset_of("trace_header", "version")
    version = BIG.integer(raw[at : at + structure("trace_header")["version"].itemsize])
    return BIG if version in (VERSION, VERSION_TOGETHER) else LITTLE


def _text(raw: bytes) -> str:
    return raw.partition(b"\0")[0].decode("utf-8", "backslashreplace")
