"""Tables of probes for the runtime, packed as stubs/runtime/probes.h and trace.h have it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from ftpatch.probe.steps import Fetching

__all__ = ["Place", "Probe", "Tables"]

PLACE = struct.Struct("<2Q2I")
"""address, detour | number of its first probe, how many."""
PROBE = struct.Struct("<Q6I")
"""handler | flags, maxactive, first step, steps, words, 0."""
STEP = struct.Struct("<2Iq")
TABLE = struct.Struct("<4Q4I")
"""places, probes, steps, what the trace says | places, probes, bytes that it says, traps."""
TOLD = struct.Struct("<4Q4I")
"""0, missed, active, ip | words, flags, text, length."""
RETURN, FAULTS, CUT, WAY_SHIFT = 1, 2, 4, 8
HEADER = 4096
"""Bytes of a trace's header in front of what is told."""
ANY = 0xFFFF_FFFF


@dataclass(frozen=True)
class Place:
    """Link addresses of what is displaced and of its detour; how many probes are there; whether it
    is a trap."""

    address: int
    detour: int
    probes: int
    trap: bool


@dataclass(frozen=True)
class Probe:
    """``ip``: link address of the function + offset; ``text``: its definition; ``handler``: link
    address, 0 for none; ``way``: 1 for a pad, 2 for a jump, 3 for a trap."""

    ip: int
    returns: bool
    maxactive: int
    fetching: Fetching
    text: str
    handler: int
    way: int

    @property
    def flags(self) -> int:
        """enum probe_flags, and what only the trace tells."""
        flags = RETURN * self.returns + FAULTS * self.fetching.faults + CUT
        return flags + (self.way << WAY_SHIFT)


class Tables:
    """All of it in one piece, whose size does not depend on where things are. ``places`` by
    address, ``probes`` in their order."""

    def __init__(self, places: Sequence[Place], probes: Sequence[Probe]) -> None:
        self._told = _told(probes)
        self._places, self._probes = places, probes

    def pack(self, at: int) -> bytes:
        """The bytes for link address ``at``; a struct probe_table is in front."""
        steps = [step for probe in self._probes for step in probe.fetching.steps]
        first, places, probes = 0, b"", b""
        for place in self._places:
            places += PLACE.pack(place.address, place.detour, first, place.probes)
            first += place.probes
        first = 0
        for probe in self._probes:
            number = len(probe.fetching.steps)
            probes += PROBE.pack(
                probe.handler,
                probe.flags,
                probe.maxactive or ANY,
                first,
                number,
                probe.fetching.words,
                0,
            )
            first += number
        packed = b"".join(STEP.pack(*step) for step in steps)
        starts = [at + TABLE.size]
        for part in (places, probes, packed):
            starts.append(starts[-1] + len(part))
        table = TABLE.pack(
            *starts,
            len(self._places),
            len(self._probes),
            len(self._told),
            sum(place.trap for place in self._places),
        )
        return table + places + probes + packed + self._told


def _told(probes: Sequence[Probe]) -> bytes:
    """Entries of all probes, and their texts, up to a whole page."""
    texts = [probe.text.encode() for probe in probes]
    at = HEADER + TOLD.size * len(probes)
    out = b""
    for probe, text in zip(probes, texts, strict=True):
        out += TOLD.pack(0, 0, 0, probe.ip, probe.fetching.words, probe.flags, at, len(text))
        at += len(text)
    out += b"".join(texts)
    return out + bytes(-len(out) % HEADER)
