"""Perfetto's own format: slices of calls, and instants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from ftpatch.trace.formats.perfetto_packets import Form, Packet, framed, new_packet, tracks
from ftpatch.trace.formats.style import Callers, Look
from ftpatch.trace.order import by_time
from ftpatch.trace.reader import Trace
from ftpatch.trace.rows import Kind, Rows

__all__ = ["TYPES", "WIDTHS", "perfetto"]

WIDTHS = {"timestamp": 8, "track_uuid": 5, "name_iid": 4}
"""Bytes of the varints of an event: up to 56, 35 and 28 bits."""
TYPES = {
    Kind.ENTER: "TYPE_SLICE_BEGIN",
    Kind.LEAVE: "TYPE_SLICE_END",
    Kind.LEFT: "TYPE_SLICE_END",
    Kind.POINT: "TYPE_INSTANT",
    Kind.RETURN: "TYPE_INSTANT",
}
"""Perfetto's type of each kind of row."""


def perfetto(trace: Trace, batches: Iterable[Rows], look: Look) -> Iterator[bytes]:
    """The report, in parts."""
    del look  # names are no text for a terminal here
    yield b"".join(tracks(trace))
    forms = {kind: Form(_maker(kind), WIDTHS) for kind in TYPES}
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


def _names(trace: Trace, first: int) -> bytes:
    packet = new_packet()
    packet.sequence_flags = packet.SEQ_NEEDS_INCREMENTAL_STATE
    for number, name in enumerate(trace.functions.name[first:], first + 1):
        packet.interned_data.event_names.add(iid=number, name=name)
    return framed(packet)


def _maker(kind: int) -> Callable[[Mapping[str, int]], Packet]:
    return lambda numbers: _put(_event(kind), **numbers)


def _event(kind: int) -> Packet:
    packet = new_packet()
    packet.sequence_flags = packet.SEQ_NEEDS_INCREMENTAL_STATE
    packet.track_event.type = getattr(packet.track_event, TYPES[Kind(kind)])
    return packet


def _put(packet: Packet, **numbers: int) -> Packet:
    packet.timestamp = numbers["timestamp"]
    packet.track_event.track_uuid = numbers["track_uuid"]
    packet.track_event.name_iid = numbers["name_iid"]
    return packet


def _filled(rows: Rows, forms: dict[Kind, Form]) -> bytes:
    """The packets of rows without values, all of the same width."""
    out = np.empty((len(rows), len(forms[Kind.ENTER].bytes)), np.uint8)
    time = np.clip(rows.time, 0, (1 << 56) - 1)
    for kind, form in forms.items():
        which = rows.kind == kind
        if which.any():
            numbers = {
                "timestamp": time[which],
                "track_uuid": rows.thread[which] + 1,
                "name_iid": rows.function[which] + 1,
            }
            out[which] = form.filled(numbers, int(which.sum()))
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
        yield framed(packet)
