# SPDX-License-Identifier: MIT
"""Perfetto's own format: slices of calls, and instants, with their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ftpatch.trace.address_names import Places
from ftpatch.trace.arguments import Arguments
from ftpatch.trace.hit_calls import calls
from ftpatch.trace.hits import FLOATS, Group, Hits, Show
from ftpatch.trace.order import by_time
from ftpatch.trace.render.cells import Cells, texts
from ftpatch.trace.render.perfetto_packets import Form, Packet, framed, new_packet, tracks
from ftpatch.trace.render.style import Callers, Style
from ftpatch.trace.render.values import FAULT, MARK, by_file, value_cells, whole
from ftpatch.trace.report import Report
from ftpatch.trace.rows import Kind, Rows
from ftpatch.trace.source import Data, EventSource, Recording

__all__ = ["REPORT"]

WIDTHS = {"timestamp": 8, "track_uuid": 5, "name_iid": 4}
"""Bytes of the varints of an event: up to 56, 35 and 28 bits."""
NUMBER, STRING = 10, 4
"""Bytes of those of a value: 64 bits, and the number of a string."""
Notes = list[tuple[str, str, NDArray[Any]]]
"""Name and field of annotations, and what number each hit has there, [n]."""
TYPES = {
    Kind.ENTER: "TYPE_SLICE_BEGIN",
    Kind.LEAVE: "TYPE_SLICE_END",
    Kind.UNWOUND: "TYPE_SLICE_END",
    Kind.POINT: "TYPE_INSTANT",
    Kind.RETURN: "TYPE_INSTANT",
}
"""Perfetto's type of each kind of row."""


def _perfetto(source: EventSource, style: Style) -> Iterator[bytes]:
    recording, hits = source.recording, source.hits()
    yield b"".join(tracks(recording))
    yield from _calls(source, style) if hits is None else _hits(recording, hits)


def _calls(source: EventSource, style: Style) -> Iterator[bytes]:
    """Slices of calls, and instants."""
    recording = source.recording
    forms = {kind: Form(_maker(kind), WIDTHS) for kind in TYPES}
    callers, arguments = Callers(recording, str), Arguments(recording)
    told = 0
    for rows in by_time(style.rows(source)):
        rows = recording.window.within(rows)
        if told < len(recording.functions):
            yield _names(recording.functions.name[told:], "event_names", told)
            told = len(recording.functions)
        if (rows.args >= 0).any() or ((rows.flags & Rows.VALUE) > 0).any():
            yield b"".join(_with_values(rows, callers.of(rows), arguments))
            continue
        yield _filled(rows, forms)


def _hits(recording: Recording, hits: Hits) -> Iterator[bytes]:
    """Hits with their values: calls as slices, others as instants."""
    yield _names([point.name for point in hits.points], "event_names", 0)
    writer = _Writer(hits, Places(recording, str))
    each = np.arange(len(hits.points), dtype=np.int32)
    for rows in by_time(calls(hits, len(recording.tids), each)):
        yield writer.packets(rows)


def _names(names: list[str], where: str, first: int) -> bytes:
    packet = new_packet()
    packet.sequence_flags = packet.SEQ_NEEDS_INCREMENTAL_STATE
    for number, name in enumerate(names, first + 1):
        entry = getattr(packet.interned_data, where).add(iid=number)
        if where == "event_names":
            entry.name = name
        else:
            entry.str = name.encode()
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


def _with_values(rows: Rows, callers: list[str], arguments: Arguments) -> Iterator[bytes]:
    columns = (rows.kind, rows.time, rows.thread, rows.function, rows.flags, rows.value, rows.args)
    table = zip(*(column.tolist() for column in columns), callers, strict=True)
    for i, (kind, time, thread, function, flags, value, args, caller) in enumerate(table):
        packet = _put(
            _event(kind),
            timestamp=min(max(time, 0), (1 << 56) - 1),
            track_uuid=thread + 1,
            name_iid=function + 1,
        )
        note = packet.track_event.debug_annotations
        named = arguments.of(rows, i)
        words = rows.arguments[args].tolist() if args >= 0 and named is None else ()
        for number, arg in enumerate(words):
            note.add(name=f"arg{number}", pointer_value=arg)
        for number, one in enumerate(named or ()):
            if one.value is not None:
                note.add(name=one.name or f"arg{number}", string_value=one.value.text)
        if flags & Rows.VALUE and kind in (Kind.ENTER, Kind.POINT):
            note.add(name="parent", string_value=caller)
        elif flags & Rows.VALUE:
            note.add(name="value", pointer_value=value)
        yield framed(packet)


class _Writer:
    """Makes packets; strings get their numbers as they come."""

    def __init__(self, hits: Hits, places: Places) -> None:
        self._hits, self._places = hits, places
        self._forms: dict[tuple[object, ...], Form] = {}
        self._strings: dict[bytes, int] = {}

    def packets(self, rows: Rows) -> bytes:
        """Those of rows, in their order, behind the strings that are new."""
        known = len(self._strings)
        out = np.empty(len(rows), object)
        for kind in TYPES:
            of_kind = np.flatnonzero(rows.kind == kind)
            number = rows.function[of_kind]
            for point in np.unique(number).tolist():
                mine = of_kind[number == point]
                if kind in (Kind.ENTER, Kind.UNWOUND):
                    self._put(out, rows, mine, [])
                    continue
                event = self._hits.group(point, rows.value[mine].astype(np.intp))
                for part in _alike(event):
                    self._put(out, rows, mine[part], self._notes(event, part))
        fresh = [text.decode("utf-8", "backslashreplace") for text in list(self._strings)[known:]]
        head = _names(fresh, "debug_annotation_string_values", known) if fresh else b""
        return head + b"".join(one for one in out.tolist() if one is not None)

    def _put(
        self, out: NDArray[np.object_], rows: Rows, mine: NDArray[np.intp], notes: Notes
    ) -> None:
        """Packets of rows of one kind that have the same annotations."""
        if not len(mine):
            return
        kind = int(rows.kind[mine[0]])
        fields = tuple((name, field) for name, field, _ in notes)
        if (kind, fields) not in self._forms:
            widths = dict(WIDTHS)
            for number, (_, field) in enumerate(fields):
                widths[str(number)] = STRING if field == "string_value_iid" else NUMBER
            self._forms[kind, fields] = Form(_hit_maker(kind, fields), widths)
        numbers: dict[str, NDArray[Any]] = {
            "timestamp": np.clip(rows.time[mine], 0, (1 << 56) - 1),
            "track_uuid": rows.thread[mine] + 1,
            "name_iid": rows.function[mine] + 1,
        }
        numbers |= {str(number): values for number, (_, _, values) in enumerate(notes)}
        table = self._forms[kind, fields].filled(numbers, len(mine))
        width = table.shape[1]
        raw = table.tobytes()
        out[mine] = [raw[at : at + width] for at in range(0, len(raw), width)]

    def _notes(self, event: Group, part: NDArray[np.intp]) -> Notes:
        """Annotations of some of the events; of all of them or of none each value is lost."""
        out: Notes = []
        if event.point.returns:
            cells = by_file(event, event.caller, self._places.callers)
            out.append(("caller", "string_value_iid", self._interned(cells, part)))
        for one in event.values:
            name, show = one.field.name, one.field.show
            if show is Show.STRING:
                strings = [
                    FAULT if lost else whole(raw, one.field.room) + (MARK if cut else b"")
                    for raw, lost, cut in zip(
                        one.strings(), one.lost.tolist(), one.cut.tolist(), strict=True
                    )
                ]
                column = texts(strings)
                out.append((name, "string_value_iid", self._interned(column, part)))
            elif show in FLOATS:
                held = value_cells(one, event, self._places, for_json=False)
                shown = [cell for cell in held if isinstance(cell, Cells)]
                out += [(name, "string_value_iid", self._interned(cell, part)) for cell in shown]
            elif one.lost[part].any() or show is Show.SYMBOL:
                symbols = by_file(event, one.number.view(np.uint64), self._places.symbols)
                column = symbols.where(one.lost, FAULT)
                out.append((name, "string_value_iid", self._interned(column, part)))
            else:
                out.append((name, show.value, one.number[part]))
        return out

    def _interned(self, cells: Cells, part: NDArray[np.intp]) -> NDArray[np.int64]:
        """The numbers of texts."""
        table = cells.rows(slice(None))[part]
        held = np.ascontiguousarray(table).view(f"S{table.shape[1]}").ravel().tolist()
        known = self._strings
        return np.array([known.setdefault(text, len(known) + 1) for text in held], np.int64)


def _alike(event: Group) -> list[NDArray[np.intp]]:
    """The events in parts of which each has lost the same numbers."""
    code = np.zeros(len(event), np.int64)
    for bit, one in enumerate(one for one in event.values if one.field.show is not Show.STRING):
        code |= one.lost.astype(np.int64) << bit
    return [np.flatnonzero(code == value) for value in np.unique(code).tolist()]


def _hit_maker(
    kind: int, fields: tuple[tuple[str, str], ...]
) -> Callable[[Mapping[str, int]], Packet]:
    def make(numbers: Mapping[str, int]) -> Packet:
        packet = new_packet()
        packet.sequence_flags = packet.SEQ_NEEDS_INCREMENTAL_STATE
        packet.timestamp = numbers["timestamp"]
        event = packet.track_event
        event.type = getattr(event, TYPES[Kind(kind)])
        event.track_uuid, event.name_iid = numbers["track_uuid"], numbers["name_iid"]
        for number, (name, field) in enumerate(fields):
            value = numbers[str(number)]
            if field == "int_value" and value >= 1 << 63:
                value -= 1 << 64
            setattr(event.debug_annotations.add(name=name), field, value)
        return packet

    return make


class Perfetto(Report):
    """A trace for Perfetto."""

    name = "perfetto"
    shows = Data.CALLS | Data.HITS
    binary = True
    ends = (".perfetto", ".perfetto-trace", ".pftrace")

    def render(self, source: EventSource, style: Style) -> Iterator[bytes]:
        return _perfetto(source, style)


REPORT: Report = Perfetto()
