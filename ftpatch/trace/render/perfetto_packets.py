# SPDX-License-Identifier: MIT
"""Packets of perfetto_trace.proto, made by Perfetto's library.

Of packets that differ only in numbers, the library makes one, with numbers whose bytes can be
located; it is copied and filled in for all events: a varint may have more bytes than it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ftpatch.trace.source import Recording

__all__ = ["Form", "Packet", "framed", "new_packet", "tracks"]

Packet = Any
"""A TracePacket of the library, which is loaded on use."""
SEQUENCE = 1


class Form:
    """A packet template: its bytes, and each number's position. ``make`` returns one with those
    numbers, each a varint of ``widths`` bytes (at most 10: 64 bits)."""

    def __init__(
        self, make: Callable[[Mapping[str, int]], Packet], widths: Mapping[str, int]
    ) -> None:
        bits = {name: min(7 * width, 64) for name, width in widths.items()}
        full = {name: (1 << many) - 1 for name, many in bits.items()}
        self.bytes = np.frombuffer(framed(make(full)), np.uint8)
        self._place: dict[str, tuple[int, int]] = {}
        for name, width in widths.items():
            other = make({**full, name: 1 << (bits[name] - 1)})
            differs = np.flatnonzero(self.bytes != np.frombuffer(framed(other), np.uint8))
            self._place[name] = int(differs[0]), width

    def filled(self, numbers: Mapping[str, NDArray[Any]], count: int) -> NDArray[np.uint8]:
        """``count`` packets with those numbers, uint8[count, width]."""
        out = np.tile(self.bytes, (count, 1))
        for name, (at, width) in self._place.items():
            shifts = np.arange(0, 7 * width, 7, dtype=np.uint64)
            digits = (numbers[name].astype(np.uint64)[:, None] >> shifts) & np.uint64(0x7F)
            digits[:, :-1] |= np.uint64(0x80)
            out[:, at : at + width] = digits
        return out


def new_packet() -> Packet:
    """An empty packet."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

    return TracePacket(trusted_packet_sequence_id=SEQUENCE)


def framed(packet: Packet) -> bytes:
    """Encode a packet as in a trace file."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as Packets

    return bytes(Packets(packet=[packet]).SerializeToString())


def tracks(recording: Recording) -> Iterator[bytes]:
    """Describe a track for each process and thread, and the start of the names."""
    packet = new_packet()
    packet.sequence_flags = packet.SEQ_INCREMENTAL_STATE_CLEARED
    yield framed(packet)
    threads = len(recording.tids)
    for number, header in enumerate(recording.headers):
        packet = new_packet()
        packet.track_descriptor.uuid = threads + number + 1
        packet.track_descriptor.process.pid = _signed(header.pid)
        packet.track_descriptor.process.process_name = header.comm
        yield framed(packet)
    owners = recording.owner.tolist()
    for number, (tid, owner) in enumerate(zip(recording.tids, owners, strict=True)):
        packet = new_packet()
        packet.track_descriptor.uuid = number + 1
        packet.track_descriptor.parent_uuid = threads + owner + 1
        packet.track_descriptor.thread.pid = _signed(recording.headers[owner].pid)
        packet.track_descriptor.thread.tid = _signed(tid)
        packet.track_descriptor.thread.thread_name = recording.headers[owner].comm
        yield framed(packet)


def _signed(number: int) -> int:
    """Convert a 32-bit number to the schema's int32."""
    return number - (1 << 32) if number >= 1 << 31 else number
