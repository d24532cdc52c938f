# SPDX-License-Identifier: MIT
"""Detours that are inserted into a file, and what leads there.

| detour: to the runtime; displaced instructions; back | ... | instructions that gave way | ...
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ftpatch.arch.detour import Detour, detour_of
from ftpatch.core.changes import Changes
from ftpatch.inject.hop_pages import HopPages
from ftpatch.inject.probe_methods import PAD, Chosen, displaced
from ftpatch.inject.stub import Stub
from ftpatch.inject.unwinding import HopFrames, with_frames, with_hop_frames
from ftpatch.probe.placing import Placing

__all__ = ["Detours", "with_detours"]

ALIGN = 16
"""Alignment of detours (bytes)."""


@dataclass(frozen=True, kw_only=True)
class Detours:
    """The detours of an image, of which the first has the number ``first``, in a ``stub``:
    ``starts`` are their linked addresses; ``apart``: the instructions that gave way to probes, each
    with the linked address at which it runs; ``frames``: the unwind information of hops."""

    placing: Placing
    detour: Detour
    first: int
    stub: Stub
    starts: list[int]
    apart: list[tuple[Chosen, int]]
    frames: HopFrames

    @property
    def laid_out(self) -> list[tuple[Chosen, int]]:
        """All displaced instructions, with the linked address of each."""
        chosen = [one.location.chosen for one in self.placing.found]
        return [*zip(chosen, self.starts, strict=True), *self.apart]

    def code(self, shift: int, callers: tuple[int, int]) -> dict[int, bytes]:
        """The code by linked address, for a stub that is ``shift`` bytes above that; ``callers``:
        ftrace_caller and ftrace_regs_caller as linked."""
        placing, filled = self.placing, dict[int, bytes]()
        for row, (one, start) in enumerate(zip(placing.found, self.starts, strict=True)):
            at, chosen = start + shift, one.location.chosen
            entry_only = placing.functions.is_entry(one.location.ip) or chosen.method is PAD
            caller = callers[0 if entry_only else 1] + shift
            second = placing.functions.marked(chosen.address) - chosen.address
            before = self.detour.make(at + second, self.first + row, caller)
            filled[start] = before + placing.methods.moved(chosen, at + len(before)).code
        for evicted, start in self.apart:
            filled[start] = placing.methods.moved(evicted, start + shift).code
        if self.frames.entries:
            filled[self.frames.at] = self.frames.pack(shift)
        return filled

    def hops(self) -> HopPages:
        """The hops that lead to them."""
        hops = self.placing.methods.hops
        return HopPages(
            hops=[(one.hop.at, start) for one, start in self.laid_out if one.hop],
            mover=self.placing.mover,
            page=self.placing.arch.page,
            most=hops.most if hops else 0,
            frames=self.frames.rows,
        )

    def changes(self, shift: int) -> Iterator[Changes]:
        """The Changes to the image that lead to them."""
        for chosen, start in self.laid_out:
            new = chosen.new_code(self.placing.mover, start + shift)
            yield displaced(self.placing.image, chosen, new)


def with_detours(stub: Stub, placing: Placing, first: int = 0) -> Detours:
    """Add room for the detours of an image and for their unwind information to a stub."""
    detour = detour_of(placing.arch.name)
    if not placing.found:
        return Detours(
            placing=placing,
            detour=detour,
            first=first,
            stub=stub,
            starts=[],
            apart=[],
            frames=HopFrames(),
        )
    methods, page = placing.methods, placing.arch.page
    chosen = [one.location.chosen for one in placing.found]
    evicted = [one for each in chosen for one in each.evicted]
    prologues = [detour] * len(chosen) + [None] * len(evicted)
    sizes = [
        (prologue.size if prologue else 0) + len(methods.moved(one, one.address).code)
        for one, prologue in zip([*chosen, *evicted], prologues, strict=True)
    ]
    offsets, end = [], 0
    for size in sizes:
        offsets.append(end)
        end = (end + size + ALIGN - 1) // ALIGN * ALIGN
    whole, code_at = stub.with_code(bytes(end), page)
    starts = [code_at + offset for offset in offsets]
    places = list(zip([*chosen, *evicted], starts, sizes, prologues, strict=True))
    functions = placing.functions
    whole = with_frames(whole, places, page=page, functions=functions, methods=methods)
    whole, frames = with_hop_frames(whole, chosen, page=page, functions=functions, methods=methods)
    return Detours(
        placing=placing,
        detour=detour,
        first=first,
        stub=whole,
        starts=starts[: len(chosen)],
        apart=list(zip(evicted, starts[len(chosen) :], strict=True)),
        frames=frames,
    )
