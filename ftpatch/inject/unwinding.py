# SPDX-License-Identifier: MIT
"""Unwind information for detours and hops, so that a thread can be cancelled, or backtraced, inside
one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ftpatch.arch.detour import Detour
from ftpatch.elf.eh_frame import NO_CFA, Cfi, Entry, frame_of, packed, saved_by
from ftpatch.errors import UsageError
from ftpatch.inject.probe_methods import Chosen, Methods
from ftpatch.inject.stub import Stub
from ftpatch.names.functions import Functions

__all__ = ["HopFrames", "with_frames", "with_hop_frames"]


@dataclass(frozen=True)
class HopFrames:
    """Unwind information of hops: ``entries`` to be at the stub's linked address ``at``. Hops do
    not move with the stub, so it depends on where that goes."""

    entries: Sequence[Entry] = ()
    at: int = 0

    @property
    def rows(self) -> list[tuple[int, int]]:
        """Link address of each hop, linked address of its FDE."""
        starts = (entry.start for entry in self.entries)
        return [(start, frame) for start, (_, frame) in zip(starts, self._packed()[1], strict=True)]

    def size(self) -> int:
        """Bytes."""
        return len(self._packed()[0])

    def pack(self, shift: int) -> bytes:
        """The bytes for a stub that is ``shift`` bytes above its linked address."""
        return packed(self.entries, self.at + shift)[0]

    def _packed(self) -> tuple[bytes, list[tuple[int, int]]]:
        return packed([replace(entry, start=self.at) for entry in self.entries], self.at)


def with_hop_frames(
    stub: Stub, chosen: Sequence[Chosen], *, page: int, functions: Functions, methods: Methods
) -> tuple[Stub, HopFrames]:
    """Add room for the unwind information of the hops of the ``chosen`` places to a stub."""
    entries = []
    for one in (each for first in chosen for each in (first, *first.evicted)):
        frame = functions.frame_at(one.address) if one.hop else 0
        cfi = frame_of(functions.image.elf, frame) if frame else None
        if cfi is not None and one.hop:
            told = [(0, row.code) for row in cfi.rows if row.at <= one.address]
            entries.append(Entry(cfi, one.hop.at, methods.mover.jump_size, told))
    if not entries or not stub.unwind:
        return stub, HopFrames()
    whole, at = stub.with_data(bytes(HopFrames(entries).size()), page)
    return whole, HopFrames(entries, at)


def with_frames(
    stub: Stub,
    places: Sequence[tuple[Chosen, int, int, Detour | None]],
    *,
    page: int,
    functions: Functions,
    methods: Methods,
) -> Stub:
    """Add unwind information for the detours of ``places``, each with its linked address, its size
    in bytes and its prologue, if any, to a stub. If a function has none, neither has its
    detour."""
    entries = []
    for chosen, start, size, detour in places:
        frame = functions.frame_at(chosen.address)
        cfi = frame_of(functions.image.elf, frame) if frame else None
        if cfi is not None:
            told = _told(cfi, chosen, methods, detour)
            entries.append(Entry(cfi, start, size, told))
    if not entries or not stub.unwind:
        return stub
    data, _ = packed(entries, 0)
    whole, at = stub.with_data(data, page)
    data, rows = packed(entries, at)
    return whole.holding(at, data).knowing(rows)


def _told(
    cfi: Cfi, chosen: Chosen, methods: Methods, detour: Detour | None
) -> list[tuple[int, bytes]]:
    """The rows of one detour: (offset in bytes, DWARF instructions)."""
    before = [row for row in cfi.rows if row.at <= chosen.address]
    cfa = before[-1].cfa if before else cfi.cfa
    told = [(0, row.code) for row in before]
    if detour and cfa != NO_CFA and cfa[0] == detour.stack:
        saves = [saved_by(row.code) for row in before]
        told += detour.frames(cfa[1], detour.link in saves)
    for row in cfi.rows:
        if row in before:
            continue
        if row.at >= chosen.address + chosen.needed + 16:
            break
        try:
            part = methods.moved(chosen, chosen.address, row.at - chosen.address)
        except UsageError:
            break
        if part.size != row.at - chosen.address:
            break
        before_it = detour.size if detour else 0
        told.append((before_it + len(part.code) - methods.mover.jump_size, row.code))
    return told
