"""Perfetto's own format: packets as perfetto_trace.proto describes them, written by its library.

A packet of which only numbers differ is made once by the library, with numbers whose bytes can be
found, and copied and filled for all events: a varint may have more bytes than it needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ftpatch.trace.formats.look import Callers, Look
from ftpatch.trace.order import by_time
from ftpatch.trace.reader import Trace
from ftpatch.trace.rows import Kind, Rows

__all__ = ["perfetto"]

Packet = Any
"""A TracePacket of the library's, which is loaded where it is used."""
SEQUENCE = 1
WIDTHS = {"timestamp": 8, "track_uuid": 5, "name_iid": 4}
"""Bytes of the varints that are filled in: up to 56, 35 and 28 bits."""
TYPES = {
    Kind.ENTER: "TYPE_SLICE_BEGIN",
    Kind.LEAVE: "TYPE_SLICE_END",
    Kind.LEFT: "TYPE_SLICE_END",
    Kind.POINT: "TYPE_INSTANT",
    Kind.RETURN: "TYPE_INSTANT",
}


def perfetto(trace: Trace, batches: Iterable[Rows], look: Look) -> Iterator[bytes]:
    """The report, in parts."""
    del look  # names are no text for a terminal here
    yield b"".join(_tracks(trace))
    forms = {kind: _Form(kind) for kind in TYPES}
    callers = Callers(trace, str)
    told = 0
    for rows in by_time(batches):
        rows = trace.window.within(rows)
        if told < len(trace.functions):
            yield _names(trace, told)
            told = len(trace.functions)
        if (rows.args >= 0).any() or ((rows.flags & Rows.VALUE) > 0).any():
            yield b"".join(_with_values(rows, callers.of(rows)))
            continue
        yield _filled(rows, forms)


def _packet() -> Packet:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

    return TracePacket(trusted_packet_sequence_id=SEQUENCE)


def _framed(packet: Packet) -> bytes:
    """A packet as it stands in a trace."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as Packets

    return bytes(Packets(packet=[packet]).SerializeToString())


def _tracks(trace: Trace) -> Iterator[bytes]:
    """A track for each process and thread, and the beginning of the names."""
    packet = _packet()
    packet.sequence_flags = packet.SEQ_INCREMENTAL_STATE_CLEARED
    yield _framed(packet)
    threads = len(trace.tids)
    for number, header in enumerate(trace.headers):
        packet = _packet()
        packet.track_descriptor.uuid = threads + number + 1
        packet.track_descriptor.process.pid = _signed(header.pid)
        packet.track_descriptor.process.process_name = header.comm
        yield _framed(packet)
    owners = trace.chunks.owner.tolist()
    for number, (tid, owner) in enumerate(zip(trace.tids, owners, strict=True)):
        packet = _packet()
        packet.track_descriptor.uuid = number + 1
        packet.track_descriptor.parent_uuid = threads + owner + 1
        packet.track_descriptor.thread.pid = _signed(trace.headers[owner].pid)
        packet.track_descriptor.thread.tid = _signed(tid)
        packet.track_descriptor.thread.thread_name = trace.headers[owner].comm
        yield _framed(packet)


def _signed(number: int) -> int:
    """A 32-bit number as the schema's int32 takes it."""
    return number - (1 << 32) if number >= 1 << 31 else number


def _names(trace: Trace, first: int) -> bytes:
    packet = _packet()
    packet.sequence_flags = packet.SEQ_NEEDS_INCREMENTAL_STATE
    for number, name in enumerate(trace.functions.name[first:], first + 1):
        packet.interned_data.event_names.add(iid=number, name=name)
    return _framed(packet)


def _event(kind: int) -> Packet:
    packet = _packet()
    packet.sequence_flags = packet.SEQ_NEEDS_INCREMENTAL_STATE
    packet.track_event.type = getattr(packet.track_event, TYPES[Kind(kind)])
    return packet


def _put(packet: Packet, **numbers: int) -> Packet:
    packet.timestamp = numbers["timestamp"]
    packet.track_event.track_uuid = numbers["track_uuid"]
    packet.track_event.name_iid = numbers["name_iid"]
    return packet


class _Form:
    """A packet of one kind of row to be copied: its bytes, and where each number stands."""

    def __init__(self, kind: int) -> None:
        full = {name: (1 << 7 * width) - 1 for name, width in WIDTHS.items()}
        self.bytes = np.frombuffer(_framed(_put(_event(kind), **full)), np.uint8)
        self.place: dict[str, int] = {}
        for name, width in WIDTHS.items():
            other = _put(_event(kind), **{**full, name: 1 << (7 * width - 1)})
            differs = np.flatnonzero(self.bytes != np.frombuffer(_framed(other), np.uint8))
            self.place[name] = int(differs[0])

    def filled(self, **numbers: NDArray[Any]) -> NDArray[np.uint8]:
        """Packets with those numbers, uint8[n, width]."""
        out = np.tile(self.bytes, (len(numbers["timestamp"]), 1))
        for name, width in WIDTHS.items():
            shifts = np.arange(0, 7 * width, 7, dtype=np.uint64)
            digits = (numbers[name].astype(np.uint64)[:, None] >> shifts) & np.uint64(0x7F)
            digits[:, :-1] |= np.uint64(0x80)
            at = self.place[name]
            out[:, at : at + width] = digits
        return out


def _filled(rows: Rows, forms: dict[Kind, _Form]) -> bytes:
    """The packets of rows without values, all of the same width."""
    out = np.empty((len(rows), len(forms[Kind.ENTER].bytes)), np.uint8)
    time = np.clip(rows.time, 0, (1 << 56) - 1)
    for kind, form in forms.items():
        which = rows.kind == kind
        if which.any():
            out[which] = form.filled(
                timestamp=time[which],
                track_uuid=rows.thread[which] + 1,
                name_iid=rows.function[which] + 1,
            )
    return out.tobytes()


def _with_values(rows: Rows, callers: list[str]) -> Iterator[bytes]:
    columns = (rows.kind, rows.time, rows.thread, rows.function, rows.flags, rows.value, rows.args)
    table = zip(*(column.tolist() for column in columns), callers, strict=True)
    for kind, time, thread, function, flags, value, args, caller in table:
        packet = _put(
            _event(kind),
            timestamp=min(max(time, 0), (1 << 56) - 1),
            track_uuid=thread + 1,
            name_iid=function + 1,
        )
        note = packet.track_event.debug_annotations
        for number, arg in enumerate(rows.arguments[args].tolist() if args >= 0 else ()):
            note.add(name=f"arg{number}", pointer_value=arg)
        if flags & Rows.VALUE and kind in (Kind.ENTER, Kind.POINT):
            note.add(name="parent", string_value=caller)
        elif flags & Rows.VALUE:
            note.add(name="value", pointer_value=value)
        yield _framed(packet)
