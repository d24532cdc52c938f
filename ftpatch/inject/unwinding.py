"""What unwinders are told of detours, so that a thread may be cancelled, or looked at, in one."""

from __future__ import annotations

from collections.abc import Sequence

from ftpatch.arch.detour import Detour
from ftpatch.arch.move import Mover
from ftpatch.elf.eh_frame import NO_CFA, Cfi, Entry, frame_of, packed
from ftpatch.errors import UsageError
from ftpatch.inject.methods import Chooser, Chosen
from ftpatch.inject.stub import Stub
from ftpatch.names.functions import Functions

__all__ = ["with_frames"]


def with_frames(
    stub: Stub,
    page: int,
    functions: Functions,
    chooser: Chooser,
    mover: Mover,
    detour: Detour,
    places: Sequence[tuple[Chosen, int, int]],
) -> Stub:
    """The stub with what is told of the detours of ``places``: each with its linked address and
    size in bytes. Where nothing is known of the function, nothing is told."""
    entries = []
    for chosen, start, size in places:
        frame = functions.frame_at(chosen.address)
        cfi = frame_of(functions.image.elf, frame) if frame else None
        if cfi is not None:
            told = _told(cfi, chosen, chooser, mover, detour)
            entries.append(Entry(cfi, start, size, told))
    if not entries or not stub.unwind:
        return stub
    data, _ = packed(entries, 0)
    whole, at = stub.with_data(data, page)
    data, rows = packed(entries, at)
    return whole.holding(at, data).knowing(rows)


def _told(
    cfi: Cfi, chosen: Chosen, chooser: Chooser, mover: Mover, detour: Detour
) -> list[tuple[int, bytes]]:
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
            part = chooser.moved(chosen, chosen.address, row.at - chosen.address)
        except UsageError:
            break
        if part.size != row.at - chosen.address or row.at >= chosen.address + chosen.needed + 16:
            break
        told.append((detour.size + len(part.code) - mover.jump_size, row.code))
    return told
