# SPDX-License-Identifier: MIT
"""Probe tables for the runtime, packed as in stubs/runtime/probes.h and trace.h."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.byte_order import ByteOrder
from ftpatch.inject.runtime_steps import Row, Step
from ftpatch.layout import constants, pack, structure
from ftpatch.probe.fetching import Fetching

__all__ = ["Place", "Probe", "Tables", "in_tables"]

RETURN, FAULTS, CUT, CALLS = (
    constants[f"PROBE_{name}"] for name in ("RETURN", "FAULTS", "CUT", "CALLS")
)
WAY_SHIFT = constants["PROBE_METHOD"]
HEADER = constants["TRACE_HEADER"]
"""Size of a trace header's fixed part, before the probes (bytes)."""
ANY = constants["ANY"]


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
    ``handler``: link address, 0 for none; ``way``: 1 pad, 2 jump, 3 trap, 4 pun;
    ``rank``: of its image, among those whose addresses may be the same."""

    ip: int
    returns: bool
    maxactive: int
    fetching: Fetching
    text: str
    handler: int
    way: int
    rank: int = 0

    @property
    def flags(self) -> int:
        """enum probe_flags, and those only the trace has."""
        flags = RETURN * self.returns + FAULTS * self.fetching.faults + CUT
        flags += CALLS * self.fetching.calls
        return flags + (self.way << WAY_SHIFT)


class Tables:
    """All tables in one block, whose size does not depend on addresses. ``places`` by address,
    those of libraries last; ``probes`` in definition order. ``searched``: how many places, the
    first ones, may be traps; None for all."""

    def __init__(
        self,
        order: ByteOrder,
        places: Sequence[Place],
        probes: Sequence[Probe],
        *,
        searched: int | None = None,
    ) -> None:
        self._order = order
        self._searched = len(places) if searched is None else searched
        self._told = _told(probes, order)
        self._places, self._probes = places, probes

    def pack(self, at: int) -> bytes:
        """Pack them for the link address ``at``, starting with a struct probe_table."""
        steps = [self._numbered(row) for probe in self._probes for row in probe.fetching.steps]
        places = self._rows(len(self._places), "probe_place")
        places["address"] = [place.address for place in self._places]
        places["detour"] = [place.detour for place in self._places]
        places["count"] = [place.probes for place in self._places]
        places["first"] = _firsts(places["count"])
        probes = self._rows(len(self._probes), "probe")
        probes["handler"] = [probe.handler for probe in self._probes]
        probes["flags"] = [probe.flags for probe in self._probes]
        probes["maxactive"] = [probe.maxactive or ANY for probe in self._probes]
        counts = np.array([len(probe.fetching.steps) for probe in self._probes], np.uint32)
        probes["filter"] = [probe.fetching.filter for probe in self._probes]
        probes["hist"] = [probe.fetching.hist for probe in self._probes]
        probes["entries"] = [probe.fetching.entries for probe in self._probes]
        probes["fetches"] = counts - probes["filter"] - probes["hist"]
        sizes = np.array([probe.fetching.entry_size for probe in self._probes], np.uint64)
        hists = probes["entries"].astype(np.uint64) * sizes
        probes["hist_at"] = HEADER + len(self._told) + np.cumsum(hists) - hists
        probes["words"] = [probe.fetching.words for probe in self._probes]
        probes["fetch"] = _firsts(counts)
        fetches = self._rows(len(steps), "fetch")
        if steps:
            fetches["op"], fetches["what"], fetches["value"] = zip(*steps, strict=True)
        parts = [places.tobytes(), probes.tobytes(), fetches.tobytes()]
        starts = [at + structure("probe_table").itemsize]
        for part in parts:
            starts.append(starts[-1] + len(part))
        table = pack(
            "probe_table",
            self._order,
            places=starts[0],
            probes=starts[1],
            fetches=starts[2],
            told=starts[3],
            place_count=self._searched,
            probe_count=len(probes),
            told_size=len(self._told),
            hists=int(hists.sum()),
            traps=sum(place.trap for place in self._places),
        )
        return b"".join([table, *parts, self._told])

    def _rows(self, count: int, name: str) -> NDArray[np.void]:
        return np.zeros(count, self._order.record(structure(name)))

    def _numbered(self, row: Row) -> Row:
        """A step, with the ``r`` probes that follow a function instead of its address: how many,
        and the first."""
        step, _, value = row
        if step != Step.WITHIN:
            return row
        those = self._followed[value]
        return step, len(those), those[0]

    @cached_property
    def _followed(self) -> Mapping[int, Sequence[int]]:
        """The ``r`` probes of each function, one behind the other, by its address."""
        out = dict[int, list[int]]()
        for number, probe in enumerate(self._probes):
            if probe.returns:
                out.setdefault(in_tables(probe.ip, probe.rank), []).append(number)
        return out


def in_tables(address: int, rank: int) -> int:
    """Stand for a function of an image of that ``rank``, at an address of 64 bits, until its probes
    have numbers."""
    return rank << 64 | address


def _firsts(counts: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Start index of each of consecutive runs."""
    return (np.cumsum(counts) - counts).astype(np.uint32)


def _told(probes: Sequence[Probe], order: ByteOrder) -> bytes:
    """The trace's entries for all probes, with their texts, padded to a whole page."""
    texts = [probe.text.encode() for probe in probes]
    told = np.zeros(len(probes), order.record(structure("trace_probe")))
    told["ip"] = [probe.ip for probe in probes]
    told["words"] = [probe.fetching.words for probe in probes]
    told["flags"] = [probe.flags for probe in probes]
    told["length"] = [len(text) for text in texts]
    told["text"] = HEADER + told.nbytes + _firsts(told["length"])
    out = told.tobytes() + b"".join(texts)
    return out + bytes(-len(out) % HEADER)
