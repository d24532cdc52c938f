# SPDX-License-Identifier: MIT
"""Probe tables for the runtime, packed as in stubs/runtime/probes.h and trace.h."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.layout import constants, pack, structure
from ftpatch.probe.fetching import Fetching

__all__ = ["Place", "Probe", "Tables"]

RETURN, FAULTS, CUT = (constants[f"PROBE_{name}"] for name in ("RETURN", "FAULTS", "CUT"))
WAY_SHIFT = constants["PROBE_METHOD"]
HEADER = constants["TRACE_HEADER"]
"""Size of a trace header's fixed part, before the probes (bytes)."""
ANY = constants["ANY"]
ENTRY = structure("trace_hist").itemsize


@dataclass(frozen=True)
class Place:
    """Link addresses of the displaced instructions and of their detour, the number of probes there,
    and whether it is a trap."""

    address: int
    detour: int
    probes: int
    trap: bool


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A probe. ``ip``: link address of the function + offset; ``text``: its definition;
    ``handler``: link address, 0 for none; ``way``: 1 pad, 2 jump, 3 trap, 4 pun."""

    ip: int
    returns: bool
    maxactive: int
    fetching: Fetching
    text: str
    handler: int
    way: int

    @property
    def flags(self) -> int:
        """enum probe_flags, and those only the trace has."""
        flags = RETURN * self.returns + FAULTS * self.fetching.faults + CUT
        return flags + (self.way << WAY_SHIFT)


class Tables:
    """All tables in one block, whose size does not depend on addresses. ``places`` by address,
    ``probes`` in definition order."""

    def __init__(self, places: Sequence[Place], probes: Sequence[Probe]) -> None:
        self._told = _told(probes)
        self._places, self._probes = places, probes

    def pack(self, at: int) -> bytes:
        """Pack them for the link address ``at``, starting with a struct probe_table."""
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
        counts = np.array([len(probe.fetching.steps) for probe in self._probes], np.uint32)
        probes["filter"] = [probe.fetching.filter for probe in self._probes]
        probes["hist"] = [probe.fetching.hist for probe in self._probes]
        probes["entries"] = [probe.fetching.entries for probe in self._probes]
        probes["fetches"] = counts - probes["filter"] - probes["hist"]
        hists = probes["entries"].astype(np.uint64) * np.uint64(ENTRY)
        probes["hist_at"] = HEADER + len(self._told) + np.cumsum(hists) - hists
        probes["words"] = [probe.fetching.words for probe in self._probes]
        probes["fetch"] = _firsts(counts)
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
            hists=int(hists.sum()),
            traps=sum(place.trap for place in self._places),
        )
        return b"".join([table, *parts, self._told])


def _firsts(counts: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Start index of each of consecutive runs."""
    return (np.cumsum(counts) - counts).astype(np.uint32)


def _told(probes: Sequence[Probe]) -> bytes:
    """The trace's entries for all probes, with their texts, padded to a whole page."""
    texts = [probe.text.encode() for probe in probes]
    told = np.zeros(len(probes), structure("trace_probe"))
    told["ip"] = [probe.ip for probe in probes]
    told["words"] = [probe.fetching.words for probe in probes]
    told["flags"] = [probe.flags for probe in probes]
    told["length"] = [len(text) for text in texts]
    told["text"] = HEADER + told.nbytes + _firsts(told["length"])
    out = told.tobytes() + b"".join(texts)
    return out + bytes(-len(out) % HEADER)
