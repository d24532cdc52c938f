# SPDX-License-Identifier: MIT
"""A trace.dat as trace-cmd records it (version 6), for ``trace-cmd report`` and KernelShark.

Each thread has a buffer of its own, where ftrace has one for each CPU: traces of programs do not
say on which CPU they ran.

Source: trace-cmd.dat.v6(5), and the formats in events/ftrace of a kernel's tracefs.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from typing import IO

import numpy as np
from numpy.typing import NDArray

from ftpatch.errors import OutputError
from ftpatch.trace.order import by_time
from ftpatch.trace.pairs import segments
from ftpatch.trace.render.address_space import AddressSpace, slot_start
from ftpatch.trace.render.ring_pages import HEADER_EVENT, HEADER_PAGE, PAGE, pages
from ftpatch.trace.render.style import Callers, Style
from ftpatch.trace.report import Report
from ftpatch.trace.rows import Kind, Rows
from ftpatch.trace.source import Data, EventSource, Recording

__all__ = ["REPORT"]

MAGIC = b"\x17\x08\x44tracing6\0"
LITTLE, LONG = 0, 8
"""Byte order, and bytes of a long."""
COMMON = [("type", "<u2"), ("flags", "u1"), ("preempt", "u1"), ("pid", "<i4")]
FUNCTION, EXIT, ENTRY = 1, 10, 11
"""ftrace's numbers of events."""
EVENTS = {
    FUNCTION: np.dtype([*COMMON, ("ip", "<u8"), ("parent_ip", "<u8")]),
    ENTRY: np.dtype([*COMMON, ("func", "<u8"), ("depth", "<i4")]),
    EXIT: np.dtype(
        [
            *COMMON,
            *(("func", "<u8"), ("depth", "<i4"), ("overrun", "<u4")),
            *(("calltime", "<u8"), ("rettime", "<u8")),
        ]
    ),
}
TOLD = {
    FUNCTION: ("function", '" %ps <-- %ps", (void *)REC->ip, (void *)REC->parent_ip'),
    ENTRY: ("funcgraph_entry", '"--> %ps (%d)", (void *)REC->func, REC->depth'),
    EXIT: (
        "funcgraph_exit",
        '"<-- %ps (%d) (start: %llx  end: %llx) over: %d", '
        "(void *)REC->func, REC->depth, REC->calltime, REC->rettime, REC->depth",
    ),
}
"""The name of each, and how it is printed."""
TYPES = {"type": "unsigned short", "flags": "unsigned char", "preempt": "unsigned char"} | {
    "pid": "int",
    "depth": "int",
    "overrun": "unsigned int",
    "calltime": "unsigned long long",
    "rettime": "unsigned long long",
}
"""C's types of fields that are no unsigned long."""
NAMES = {"type": "common_type", "flags": "common_flags", "preempt": "common_preempt_count"} | {
    "pid": "common_pid"
}
EVENT_OF = np.zeros(len(Kind) + 1, np.uint8)
"""The event that each kind of row is; 0 for none."""
EVENT_OF[[Kind.ENTER, Kind.LEAVE, Kind.UNWOUND, Kind.POINT]] = ENTRY, EXIT, EXIT, FUNCTION
TRACECLOCK = 4
"""The option that names the clock, which is named once more at the end."""
MAX_PID = (1 << 31) - 1


def _trace_dat(source: EventSource, style: Style) -> Iterator[bytes]:
    recording = source.recording
    writer = _Writer(recording, style)
    try:
        with tempfile.TemporaryFile() as held:
            spool = _Spool(held, len(recording.tids))
            for rows in by_time(style.rows(source)):
                writer.write(recording.window.within(rows), spool)
            writer.tell_missing()
            yield from _whole(recording, style, writer, spool)
    except OSError as error:
        raise OutputError(None, f"cannot write a temporary file: {error.strerror}") from None


class _Spool:
    """Pages of all threads as they come: how many there are is told before the first."""

    def __init__(self, file: IO[bytes], threads: int) -> None:
        self._file = file
        self._parts: list[list[tuple[int, int]]] = [[] for _ in range(threads)]
        self.sizes = [0] * threads

    def put(self, thread: int, raw: bytes) -> None:
        """The next pages of a thread."""
        self._parts[thread].append((self._file.tell(), len(raw)))
        self.sizes[thread] += len(raw)
        self._file.write(raw)

    def all(self) -> Iterator[bytes]:
        """The pages of all threads, one thread after the other."""
        for parts in self._parts:
            for at, length in parts:
                self._file.seek(at)
                yield self._file.read(length)


class _Writer:
    """Makes events of rows; functions and callers get their addresses as they come."""

    def __init__(self, recording: Recording, style: Style) -> None:
        self._recording = recording
        self._pids = np.array(recording.tids, np.int64) & MAX_PID
        self._callers = Callers(recording, style.clean)
        self._space = AddressSpace()
        self._named: dict[str, int] = {}
        self._apart = 0

    def write(self, rows: Rows, spool: _Spool) -> None:
        """Put the events of rows, by time, into their threads' pages."""
        event = EVENT_OF[rows.kind]
        known = event > 0
        if not known.all():
            self._apart += int(np.count_nonzero(~known))
            rows = rows.take(known)
        if not len(rows):
            return
        rows = rows.take(np.argsort(rows.thread, kind="stable"))
        event, time = EVENT_OF[rows.kind], np.maximum(rows.time, 0)
        address = self._space.addresses(self._recording.functions)[rows.function]
        first = segments(rows.thread)
        made = {one: self._events(one, rows, event, address) for one in np.unique(event).tolist()}
        place = np.empty(len(rows), np.intp)
        for one, raw in made.items():
            place[event == one] = np.arange(len(raw))
        for start, stop in zip(first.tolist(), [*first[1:].tolist(), len(rows)], strict=True):
            part = slice(start, stop)
            here = {one: raw[place[part][event[part] == one]] for one, raw in made.items()}
            spool.put(
                int(rows.thread[start]), pages(np.maximum.accumulate(time[part]), event[part], here)
            )

    def _events(
        self, number: int, rows: Rows, event: NDArray[np.uint8], address: NDArray[np.uint64]
    ) -> NDArray[np.uint8]:
        """The bytes of all events of one number, uint8[m, w]."""
        mine = np.flatnonzero(event == number)
        out = np.zeros(len(mine), EVENTS[number])
        out["type"], out["pid"] = number, self._pids[rows.thread[mine]]
        if number == FUNCTION:
            out["ip"], out["parent_ip"] = address[mine], self._parents(rows.take(mine))
        else:
            out["func"], out["depth"] = address[mine], rows.level[mine]
        if number == EXIT:
            time = np.maximum(rows.time[mine], 0)
            out["rettime"] = time
            out["calltime"] = time - np.clip(rows.duration[mine], 0, time)
        return out.view(np.uint8).reshape(len(out), out.itemsize)

    def _parents(self, rows: Rows) -> NDArray[np.uint64]:
        """An address for each caller, uint64[n]; 0 where it is unknown."""
        known = rows.flags & Rows.VALUE > 0
        keys = np.stack([self._recording.owner[rows.thread].astype(np.uint64), rows.value], 1)
        _, index, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        names = self._callers.of(rows.take(index))
        found = [self._named.setdefault(name, len(self._named)) for name in names]
        start = slot_start(127)  # behind all programs and libraries
        at = np.array(found, np.uint64) * np.uint64(16) + np.uint64(start)
        return np.where(known, at[inverse.reshape(-1)], np.uint64(0))

    def symbols(self, style: Style) -> Iterator[tuple[int, str]]:
        """Addresses with their names."""
        names = style.names(self._recording.functions)
        for at, number in sorted(self._space.functions.items()):
            yield at, names[number]
        for name, number in self._named.items():
            yield slot_start(127) + 16 * number, name

    def tell_missing(self) -> None:
        """Remark on what is no event of ftrace's."""
        if self._apart:
            remark = f"events left out because they are no calls: {self._apart}"
            self._recording.remarks.append(remark)


def _whole(recording: Recording, style: Style, writer: _Writer, spool: _Spool) -> Iterator[bytes]:
    """The file: what describes the events, where the pages of each thread are, and these."""
    head = MAGIC + struct.pack("<BBI", LITTLE, LONG, PAGE)
    for name, text in ((b"header_page\0", HEADER_PAGE), (b"header_event\0", HEADER_EVENT)):
        head += name + _sized(text, 8)
    head += struct.pack("<I", len(EVENTS)) + b"".join(_sized(_format(one), 8) for one in EVENTS)
    head += struct.pack("<I", 0)  # systems of other events
    # Names end at blanks.
    lines = (f"{at:x} T {'_'.join(name.split()) or '_'}\n" for at, name in writer.symbols(style))
    head += _sized("".join(lines), 4)
    head += struct.pack("<I", 0)  # formats of printk
    pids = dict(zip(recording.tids, recording.comms, strict=True))
    comms = (f"{tid & MAX_PID} {style.clean(comm)}\n" for tid, comm in pids.items())
    head += _sized("".join(comms), 8)
    head += struct.pack("<I", len(spool.sizes))
    # Ticks are nobody's nanoseconds, and are printed as they are.
    clock = "[local]" if recording.has_clock else "[counter]"
    named = clock.encode() + b"\0"
    head += b"options  \0" + struct.pack("<HI", TRACECLOCK, len(named)) + named
    head += struct.pack("<H", 0) + b"flyrecord\0"
    last = _sized(clock, 8)
    at = len(head) + 16 * len(spool.sizes) + len(last)
    at += -at % PAGE
    sizes = np.array(spool.sizes, np.int64)
    table = np.stack([at + np.cumsum(sizes) - sizes, sizes], 1).astype("<u8").tobytes()
    yield (head + table + last).ljust(at, b"\0")
    yield from spool.all()


def _sized(text: str, width: int) -> bytes:
    """A text behind its size, a number of so many bytes."""
    raw = text.encode("utf-8", "backslashreplace")
    return len(raw).to_bytes(width, "little") + raw


def _format(number: int) -> str:
    """An event's format, as its file in tracefs has it."""
    name, printed = TOLD[number]
    lines = [f"name: {name}", f"ID: {number}", "format:"]
    fields = EVENTS[number].fields
    assert fields is not None
    for index, (field, (dtype, offset, *_)) in enumerate(fields.items()):
        type_ = TYPES.get(field, "unsigned long")
        signed = int(dtype.kind == "i")
        place = f"offset:{offset};\tsize:{dtype.itemsize};\tsigned:{signed};"
        lines += [""] * (index == len(COMMON))
        lines.append(f"\tfield:{type_} {NAMES.get(field, field)};\t{place}")
    return "\n".join([*lines, "", f"print fmt: {printed}", ""])


class TraceDat(Report):
    """A trace.dat."""

    name = "trace-dat"
    shows = Data.CALLS
    binary = True
    sums = True
    ends = (".dat",)

    def render(self, source: EventSource, style: Style) -> Iterator[bytes]:
        return _trace_dat(source, style)


REPORT: Report = TraceDat()
