"""Tables of probes for the runtime, packed as stubs/runtime/probes.h and trace.h have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.layout import constants, pack, structure
from ftpatch.probe.steps import Fetching

__all__ = ["Place", "Probe", "Tables"]

RETURN, FAULTS, CUT = (constants[f"PROBE_{name}"] for name in ("RETURN", "FAULTS", "CUT"))
WAY_SHIFT = constants["PROBE_METHOD"]
HEADER = constants["TRACE_HEADER"]
"""Bytes of a trace's header in front of what is told."""
ANY = constants["ANY"]


@dataclass(frozen=True)
class Place:
    """Link addresses of what is displaced and of its detour; how many probes are there; whether it
    is a trap."""

    address: int
    detour: int
    probes: int
    trap: bool


@dataclass(frozen=True, kw_only=True)
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
        places = np.zeros(len(self._places), structure("probe_place"))
        places["address"] = [place.address for place in self._places]
        places["detour"] = [place.detour for place in self._places]
        places["count"] = [place.probes for place in self._places]
        places["first"] = _firsts(places["count"])
        probes = np.zeros(len(self._probes), structure("probe"))
        probes["handler"] = [probe.handler for probe in self._probes]
        probes["flags"] = [probe.flags for probe in self._probes]
        probes["maxactive"] = [probe.maxactive or ANY for probe in self._probes]
        probes["fetches"] = [len(probe.fetching.steps) for probe in self._probes]
        probes["words"] = [probe.fetching.words for probe in self._probes]
        probes["fetch"] = _firsts(probes["fetches"])
        fetches = np.zeros(len(steps), structure("fetch"))
        if steps:
            fetches["op"], fetches["what"], fetches["value"] = zip(*steps, strict=True)
        parts = [places.tobytes(), probes.tobytes(), fetches.tobytes()]
        starts = [at + structure("probe_table").itemsize]
        for part in parts:
            starts.append(starts[-1] + len(part))
        table = pack(
            "probe_table",
            places=starts[0],
            probes=starts[1],
            fetches=starts[2],
            told=starts[3],
            place_count=len(places),
            probe_count=len(probes),
            told_size=len(self._told),
            traps=sum(place.trap for place in self._places),
        )
        return b"".join([table, *parts, self._told])


def _firsts(counts: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Where each of these begins, that follow one another."""
    return (np.cumsum(counts) - counts).astype(np.uint32)


def _told(probes: Sequence[Probe]) -> bytes:
    """Entries of all probes, and their texts, up to a whole page."""
    texts = [probe.text.encode() for probe in probes]
    told = np.zeros(len(probes), structure("trace_probe"))
    told["ip"] = [probe.ip for probe in probes]
    told["words"] = [probe.fetching.words for probe in probes]
    told["flags"] = [probe.flags for probe in probes]
    told["length"] = [len(text) for text in texts]
    told["text"] = HEADER + told.nbytes + _firsts(told["length"])
    out = told.tobytes() + b"".join(texts)
    return out + bytes(-len(out) % HEADER)
