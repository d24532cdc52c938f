# SPDX-License-Identifier: MIT
"""Perfetto's format, read back with the schema that its makers publish."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given, settings

from tests.support.command import ftpatch
from tests.support.sampling import scaled
from tests.support.trace_naive import read
from tests.support.trace_writer import BASE, ENTRY_ARGS, EXIT_VALUE, Thread, TraceFile
from tests.trace.test_trace_reading import files


def _events(path: Path, out: Path) -> dict[int, list[tuple[str, int, int]]]:
    """By tid: (type, func, time)."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    result = ftpatch("report", "--format", "perfetto", "-o", out, "--force", path)
    assert result.code == 0 and not result.err
    packets: Any = Trace()
    packets.ParseFromString(out.read_bytes())
    tids, names = {}, {}
    rows: dict[int, list[tuple[str, int, int]]] = {}
    for packet in packets.packet:
        assert packet.trusted_packet_sequence_id == 1
        track = packet.track_descriptor
        if track.HasField("thread"):
            tids[track.uuid] = track.thread.tid
            assert track.thread.pid == 100 and track.thread.thread_name == "prog"
        for name in packet.interned_data.event_names:
            names[name.iid] = int(name.name, 16) - BASE + 1
        if packet.HasField("track_event"):
            event = packet.track_event
            assert packet.sequence_flags == packet.SEQ_NEEDS_INCREMENTAL_STATE
            kind = event.Type.Name(event.type).removeprefix("TYPE_")
            row = (kind, names[event.name_iid], packet.timestamp)
            rows.setdefault(tids[event.track_uuid], []).append(row)
    return rows


def _expected(file: TraceFile) -> dict[int, list[tuple[str, int, int]]]:
    out: dict[int, list[tuple[str, int, int]]] = {}
    for thread in file.threads:
        depth = 0
        for row in read(thread.events):
            kind = "SLICE_BEGIN" if row.event == "entry" else "SLICE_END"
            # What returned without being open changes no level.
            if kind == "SLICE_END" and row.depth == depth:
                kind = "INSTANT"
            depth += {"SLICE_BEGIN": 1, "SLICE_END": -1, "INSTANT": 0}[kind]
            out.setdefault(thread.tid, []).append((kind, row.func, row.time))
    return out


@settings(max_examples=scaled(60, 15))
@given(files())
def test_events_come_back(tmp_path: Path, file: TraceFile) -> None:
    path = file.write(tmp_path / "trace")
    assert _events(path, tmp_path / "out") == _expected(file)


def test_values(tmp_path: Path) -> None:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    thread = Thread(9).add(ENTRY_ARGS, "hash", 1, 1, 2, 3, 4, 5, (1 << 64) - 1)
    path = TraceFile([thread.add(EXIT_VALUE, "hash", 9, 7)]).write(tmp_path / "trace")
    out = tmp_path / "out"
    assert ftpatch("report", "--format", "perfetto", "-o", out, path).code == 0
    packets: Any = Trace()
    packets.ParseFromString(out.read_bytes())
    begin, end = (p.track_event for p in packets.packet if p.HasField("track_event"))
    notes = [(note.name, note.pointer_value) for note in begin.debug_annotations]
    assert notes == [*((f"arg{i}", i + 1) for i in range(5)), ("arg5", (1 << 64) - 1)]
    assert [(note.name, note.pointer_value) for note in end.debug_annotations] == [("value", 7)]


def test_times_and_threads_at_their_ends(tmp_path: Path) -> None:
    thread = Thread((1 << 32) - 1).add(1, "main", 0).add(7, 0, 0, (1 << 63) - 1).add(2, "main", 0)
    path = TraceFile([thread]).write(tmp_path / "trace")
    (rows,) = _events(path, tmp_path / "out").values()
    assert [time for _, _, time in rows] == [0, (1 << 56) - 1]
