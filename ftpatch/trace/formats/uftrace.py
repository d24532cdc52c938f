# SPDX-License-Identifier: MIT
"""A folder as uftrace records it, for ``uftrace replay``, ``report``, ``graph``, ``dump`` and
``tui``.

    info          header, program, threads
    task.txt      threads and processes, and when each program began
    sid-ID.map    where the program and its libraries are in memory
    NAME.sym      functions of each of them
    TID.dat       records of 16 bytes: time, and type, depth and address

Source: write_task_info() in utils/data-file.c, save_module_symbol_file() in utils/symbol.c,
read_session_map() in utils/session.c and struct uftrace_record in uftrace.h, of uftrace v0.13.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.columns import among
from ftpatch.trace.order import by_time
from ftpatch.trace.pairs import segments
from ftpatch.trace.render.address_space import SLOT, AddressSpace, slot_start
from ftpatch.trace.render.style import Style
from ftpatch.trace.report import File, Report
from ftpatch.trace.rows import Kind, Rows
from ftpatch.trace.source import Data, EventSource, Recording

__all__ = ["REPORT"]

RECORD = np.dtype([("time", "<u8"), ("word", "<u8")])
"""A record: nanoseconds; type (2 bits), whether arguments follow, 5 (3 bits), depth (10 bits) and
address (48 bits)."""
ENTRY, EXIT, MAGIC = 0, 1, 5 << 3
MAX_LEVELS = 1 << 10
"""Levels that a record can have."""
HEADER = struct.Struct("<8sIHBBQQHHI")
"""Magic, version, size, byte order, ELF class, features, parts of the text behind it, levels."""
LITTLE, CLASS64, VERSION = 1, 2, 4
FEATURES = 1 << 1 | 1 << 5 | 1 << 6
"""TASK_SESSION, SYM_REL_ADDR, MAX_STACK: task.txt, symbols counted from where a file is mapped,
and the number of levels."""
PARTS = 1 << 0 | 1 << 7
"""EXE_NAME, TASKINFO."""
STACK = "7ffc00000000-7ffc00100000 rw-p 00000000 00:00 0 [stack]\n"
"""Without it, all addresses count as the kernel's."""
MAX_TID = (1 << 31) - 1
"""No more than that is read back; only damaged traces have more."""
SHOWN = (Kind.ENTER, Kind.LEAVE, Kind.UNWOUND)


def _uftrace(source: EventSource, style: Style) -> Iterator[File]:
    recording = source.recording
    space = AddressSpace()
    threads = _Threads(recording)
    for rows in by_time(style.rows(source)):
        yield from threads.records(recording.window.within(rows), space)
    threads.tell_missing()
    yield from _programs(recording, style, space)
    yield from _tasks(recording, style, threads.first)
    yield "info", _info(recording, style, [*dict.fromkeys(threads.tids())])


class _Threads:
    """Records of each thread; ``first`` is the time of each header's first one, -1 for none."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._tids = np.array(recording.tids, np.int64) & MAX_TID
        self._open = np.zeros(len(recording.tids), np.int64)
        self._seen = np.zeros(len(recording.tids), bool)
        self._apart = self._deep = 0
        self.first = np.full(len(recording.headers), -1, np.int64)

    def tids(self) -> list[int]:
        """Threads that have records."""
        return list(self._tids[self._seen].tolist())

    def records(self, rows: Rows, space: AddressSpace) -> Iterator[File]:
        """The next ones of each thread, by rows in the order of time."""
        rows = self._shown(rows)
        if not len(rows):
            return
        address = space.addresses(self._recording.functions)
        rows = rows.take(np.argsort(rows.thread, kind="stable"))
        enters = rows.kind == Kind.ENTER
        records = np.empty(len(rows), RECORD)
        records["time"] = np.maximum(rows.time, 0)  # nothing is before the start, but in damage
        records["word"] = np.where(enters, ENTRY, EXIT) | MAGIC
        records["word"] |= self._depths(rows, enters).astype(np.uint64) << np.uint64(6)
        records["word"] |= address[rows.function] << np.uint64(16)
        first = segments(rows.thread)
        threads = rows.thread[first]
        self._seen[threads] = True
        for thread, part in zip(threads.tolist(), np.split(records, first[1:]), strict=True):
            owner = self._recording.owner[thread]
            if self.first[owner] < 0 or part["time"][0] < self.first[owner]:
                self.first[owner] = part["time"][0]
            yield f"{self._tids[thread]}.dat", part.tobytes()

    def tell_missing(self) -> None:
        """Remark on what has no records."""
        remarks = self._recording.remarks
        if self._apart:
            remarks.append(f"events left out because they are no calls: {self._apart}")
        if self._deep:
            remarks.append(f"calls left out below level {MAX_LEVELS}: {self._deep}")

    def _shown(self, rows: Rows) -> Rows:
        """Begins and ends of calls that begin in the part of the time that is meant."""
        calls = among(rows.kind, SHOWN)
        deep = calls & (rows.level >= MAX_LEVELS)
        self._apart += int(np.count_nonzero(~calls))
        self._deep += int(np.count_nonzero(deep & (rows.kind == Kind.ENTER)))
        calls &= ~deep
        if not self._recording.window.is_whole:
            begin = self._recording.window.span[0]
            calls &= (rows.kind == Kind.ENTER) | (rows.time - rows.duration >= begin)
        return rows if calls.all() else rows.take(calls)

    def _depths(self, rows: Rows, enters: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Calls that have records and are open around each, int64[n]."""
        first = segments(rows.thread)
        step = np.where(enters, 1, -1)
        count = np.cumsum(step)
        lengths = np.diff(first, append=len(rows))
        threads = rows.thread[first]
        before = self._open[threads] - (count[first] - step[first])
        count += np.repeat(before, lengths)
        self._open[threads] = count[first + lengths - 1]
        return np.asarray(np.maximum(count - enters, 0), np.int64)


def _programs(recording: Recording, style: Style, space: AddressSpace) -> Iterator[File]:
    """Where the program and its libraries are, the same for each session, and their symbols."""
    names: dict[int, str] = {}
    for library, slot in space.slots.items():
        path = library or recording.headers[0].comm
        names.setdefault(slot, _file_name(path, set(names.values())))
    lines = [
        f"{slot_start(slot):012x}-{slot_start(slot + 1):012x} r-xp 00000000 00:00 0 {name}\n"
        for slot, name in names.items()
    ]
    for number in range(len(recording.headers)):
        yield f"sid-{number:016x}.map", ("".join(lines) + STACK).encode()
    for slot, name in names.items():
        text = f"# path name: {name}\n" + "".join(_symbols(recording, style, space, slot))
        yield f"{name}.sym", text.encode("utf-8", "backslashreplace")


def _symbols(recording: Recording, style: Style, space: AddressSpace, slot: int) -> Iterator[str]:
    """Lines of the functions of one file, with an end for each: sizes have 32 bits."""
    functions, shown = recording.functions, style.names(recording.functions)
    for at, number in sorted(space.functions.items()):
        offset = at - slot_start(slot)
        if 0 <= offset < 1 << SLOT:
            # uftrace demangles these itself, with or without parameters as it is told.
            raw = functions.symbol[number]
            name = style.clean(raw) if raw.startswith("_Z") else shown[number]
            yield f"{offset:016x} T {name}\n{offset + 1:016x} ? __sym_end\n"


def _tasks(recording: Recording, style: Style, first: NDArray[np.int64]) -> Iterator[File]:
    """The sessions, one for each process, and the threads of each."""
    out = []
    for number, header in enumerate(recording.headers):
        if first[number] < 0:
            continue
        stamp = "{}.{:09}".format(*divmod(int(first[number]), 10**9))
        pid = header.pid & MAX_TID
        comm = style.clean(header.comm).replace("/", "_")
        sid = f"sid={number:016x}"
        out.append(f'SESS timestamp={stamp} pid={pid} {sid} exename="{comm}"\n')
        for thread in np.flatnonzero(recording.owner == number).tolist():
            tid = recording.tids[thread] & MAX_TID
            out.append(f"TASK timestamp={stamp} tid={tid} pid={pid}\n")
    yield "task.txt", "".join(out).encode("utf-8", "backslashreplace")


def _info(recording: Recording, style: Style, tids: list[int]) -> bytes:
    """The file that makes a folder one of uftrace's."""
    magic = b"Ftrace!\0"
    fields = (VERSION, HEADER.size, LITTLE, CLASS64, FEATURES, PARTS, MAX_LEVELS, 0, 0)
    first = recording.headers[0]
    text = f"exename:{style.clean(first.image or first.comm)}\n"
    text += f"taskinfo:lines=2\ntaskinfo:nr_tid={len(tids)}\n"
    text += f"taskinfo:tids={','.join(map(str, tids))}\n"
    return HEADER.pack(magic, *fields) + text.encode("utf-8", "backslashreplace")


def _file_name(path: str, taken: set[str]) -> str:
    """A name for a program or library in maps, which end names at blanks."""
    plain = re.sub(r"[^\w.+-]", "_", path.rpartition("/")[2], flags=re.ASCII)[:100] or "program"
    name, number = plain, 1
    while name in taken:
        number += 1
        name = f"{plain}-{number}"
    return name


class Uftrace(Report):
    """A folder for uftrace."""

    name = "uftrace"
    shows = Data.CALLS | Data.HITS
    folder = True
    returns = True
    sums = True
    ends = (".uftrace",)

    def render(self, source: EventSource, style: Style) -> Iterator[File]:
        return _uftrace(source, style)


REPORT: Report = Uftrace()
