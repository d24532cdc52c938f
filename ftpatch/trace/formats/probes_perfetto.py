"""Events of probes in Perfetto's own format: what r probes saw as slices, others as instants, with
their values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ftpatch.probe.fetched import Seen, seen
from ftpatch.probe.hit_calls import calls, limit_depth
from ftpatch.probe.hits import Hits, read_hits
from ftpatch.trace.address_names import Places
from ftpatch.trace.formats.cells import Cells, texts
from ftpatch.trace.formats.perfetto import TYPES, WIDTHS
from ftpatch.trace.formats.perfetto_packets import Form, Packet, framed, new_packet, tracks
from ftpatch.trace.formats.probe_cells import MARK, by_file, whole
from ftpatch.trace.formats.style import Look
from ftpatch.trace.order import by_time
from ftpatch.trace.reader import Trace
from ftpatch.trace.rows import Kind, Rows

__all__ = ["probes_perfetto"]

NUMBER, STRING = 10, 4
"""Bytes of those of a value: 64 bits, and the number of a string."""
Notes = list[tuple[str, str, NDArray[Any]]]
"""Name and field of annotations, and what number each event has there, [n]."""
FAULT = b"(fault)"


def probes_perfetto(trace: Trace, batches: Iterable[Rows], look: Look) -> Iterator[bytes]:
    """The report, in parts."""
    del batches, look  # names are no text for a terminal here
    hits, places = read_hits(trace), Places(trace, str)
    limit_depth(hits)
    yield b"".join(tracks(trace))
    yield _names([probe.definition.name for probe in hits.probes], "event_names", 0)
    writer = _Writer(hits, places)
    for rows in by_time(calls(hits, np.arange(len(hits.probes), dtype=np.int32))):
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
            for probe in np.unique(number).tolist():
                mine = of_kind[number == probe]
                if kind in (Kind.ENTER, Kind.LEFT):
                    self._put(out, rows, mine, [])
                    continue
                event = seen(self._hits, probe, rows.value[mine].astype(np.intp))
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
            self._forms[kind, fields] = Form(_maker(kind, fields), widths)
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

    def _notes(self, event: Seen, part: NDArray[np.intp]) -> Notes:
        """Annotations of some of the events; of all of them or of none each value is lost."""
        out: Notes = []
        if event.probe.returns:
            cells = by_file(event, event.caller, self._places.callers)
            out.append(("caller", "string_value_iid", self._interned(cells, part)))
        for one in event.values:
            name, type = one.fetch.name, one.fetch.type
            if type == "string":
                strings = [
                    FAULT if lost else whole(raw) + (MARK if cut else b"")
                    for raw, lost, cut in zip(
                        one.strings(), one.lost.tolist(), one.cut.tolist(), strict=True
                    )
                ]
                column = texts(strings)
                out.append((name, "string_value_iid", self._interned(column, part)))
            elif one.lost[part].any() or type == "symbol":
                symbols = by_file(event, one.number.view(np.uint64), self._places.symbols)
                column = symbols.where(one.lost, FAULT)
                out.append((name, "string_value_iid", self._interned(column, part)))
            else:
                field = {"u": "uint_value", "s": "int_value"}.get(type[0], "pointer_value")
                out.append((name, field, one.number[part]))
        return out

    def _interned(self, cells: Cells, part: NDArray[np.intp]) -> NDArray[np.int64]:
        """The numbers of texts."""
        table = cells.rows(slice(None))[part]
        held = np.ascontiguousarray(table).view(f"S{table.shape[1]}").ravel().tolist()
        known = self._strings
        return np.array([known.setdefault(text, len(known) + 1) for text in held], np.int64)


def _alike(event: Seen) -> list[NDArray[np.intp]]:
    """The events in parts of which each has lost the same numbers."""
    code = np.zeros(len(event.rows), np.int64)
    for bit, one in enumerate(one for one in event.values if one.fetch.type != "string"):
        code |= one.lost.astype(np.int64) << bit
    return [np.flatnonzero(code == value) for value in np.unique(code).tolist()]


def _maker(kind: int, fields: tuple[tuple[str, str], ...]) -> Callable[[Mapping[str, int]], Packet]:
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
