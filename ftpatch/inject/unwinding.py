# SPDX-License-Identifier: MIT
"""Unwind information for detours, so that a thread can be cancelled, or backtraced, inside one."""

from __future__ import annotations

from collections.abc import Sequence

from ftpatch.arch.detour import Detour
from ftpatch.elf.eh_frame import NO_CFA, Cfi, Entry, frame_of, packed
from ftpatch.errors import UsageError
from ftpatch.inject.probe_methods import Chosen, Methods
from ftpatch.inject.stub import Stub
from ftpatch.names.functions import Functions

__all__ = ["with_frames"]


def with_frames(
    stub: Stub,
    places: Sequence[tuple[Chosen, int, int]],
    *,
    page: int,
    functions: Functions,
    methods: Methods,
    detour: Detour,
) -> Stub:
    """Add unwind information for the detours of ``places``, each with its linked address and size
    in bytes, to a stub. If a function has none, neither has its detour."""
    entries = []
    for chosen, start, size in places:
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


def _told(cfi: Cfi, chosen: Chosen, methods: Methods, detour: Detour) -> list[tuple[int, bytes]]:
    """The rows of one detour: (offset in bytes, DWARF instructions)."""
    before = [row for row in cfi.rows if row.at <= chosen.address]
    cfa = before[-1].cfa if before else cfi.cfa
    told = [(0, row.code) for row in before]
    if cfa != NO_CFA and cfa[0] == detour.stack:
        saves = [row.code[0] & 0x3F for row in before if row.code[0] & 0xC0 == 0x80]
        told += detour.frames(cfa[1], detour.link in saves)
    for row in cfi.rows:
        if row in before:
            continue
        try:
            part = methods.moved(chosen, chosen.address, row.at - chosen.address)
        except UsageError:
            break
        if part.size != row.at - chosen.address or row.at >= chosen.address + chosen.needed + 16:
            break
        told.append((detour.size + len(part.code) - methods.mover.jump_size, row.code))
    return told
