# SPDX-License-Identifier: MIT
"""Planning probes: the detours, the runtime, and the jumps or breakpoints that lead there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from ftpatch.core.changes import Changes
from ftpatch.elf.headers import Segment
from ftpatch.elf.properties import without_shadow_stack
from ftpatch.elf.segments import header_field
from ftpatch.errors import Refused, UsageError
from ftpatch.ftrace.plan import Plan
from ftpatch.image import Image
from ftpatch.image.needed import Needed
from ftpatch.inject.beside import SITE_CALLER, Beside
from ftpatch.inject.debug_sections import for_debuggers
from ftpatch.inject.inject import inject
from ftpatch.inject.library_start import LibraryStart
from ftpatch.inject.library_tables import linker_place
from ftpatch.inject.runtime import LIBRARY, PROBES, Keeping, configuration, probes_stub
from ftpatch.inject.stub import Stub, read_stub
from ftpatch.layout import structure
from ftpatch.probe import Definition
from ftpatch.probe.detours import with_detours
from ftpatch.probe.found import Found, Placed, placed_of
from ftpatch.probe.library_copies import (
    LibraryCopy,
    needing,
    place_in_libraries,
    plan_copy,
)
from ftpatch.probe.placing import (
    Placing,
    Room,
    place_in_library,
    place_in_program,
    require_program,
)
from ftpatch.probe.tables import Place, Tables
from ftpatch.probe.wildcards import Wildcards
from ftpatch.probe.within import Searched, with_calls

__all__ = ["Handler", "Probed", "Probing", "no_probes", "placed_probes", "plan_probed"]


@dataclass(frozen=True, kw_only=True)
class Handler:
    """A user's handler: its stub, and the function's name in it."""

    stub: Path
    name: str


@dataclass(frozen=True, kw_only=True)
class Probing:
    """Options of probes. ``depth``: entries of a ret_stack; ``size``: size of a trace file in
    bytes; ``wildcards``: what a FUNC may match; ``folder``: the name of the folder, beside the
    output, of copies of libraries; ``keeping``: what is kept of events; ``beside``: what is laid in
    with them."""

    definitions: Sequence[Definition]
    optimize: bool
    handler: Handler | None
    depth: int
    size: int
    wildcards: Wildcards = field(default_factory=Wildcards)
    folder: str = "libs"
    keeping: Keeping = field(default_factory=Keeping)
    beside: Beside | None = None


@dataclass(frozen=True, kw_only=True)
class Probed:
    """The plan, its probes in definition order, and the functions through which the program could
    set or block the traps' ``signal`` (none without breakpoints); ``copies`` of libraries that it
    loads; ``caller``: the link address that the sites of a tracer beside them are to call."""

    plan: Plan
    placed: Sequence[Placed]
    asks: Sequence[str]
    signal: str
    copies: Sequence[LibraryCopy] = ()
    caller: int = 0


def plan_probed(image: Image, probing: Probing, refused: Refused) -> Probed:
    """Plan probes at all places that are not ``refused``. Raises UsageError if none is left or the
    program cannot be probed; InputError if there is no room."""
    probing.keeping.require_fit(PROBES)
    if probing.keeping.rotate and any(one.hist for one in probing.definitions):
        reason = "--rotate: a histogram is in one file"
        raise UsageError(image.path, reason, "remove it, or the histograms")
    placing, libraries = _placed(image, probing, refused)
    if not placing.found and not libraries and (refused.errors or probing.beside is None):
        if refused.errors:
            raise refused.errors.pop()
        raise UsageError(image.path, "no probes", "specify a probe, such as 'p main'")
    copies, first = list[LibraryCopy](), len(placing.found)
    for needed, one in libraries.items():
        copies.append(plan_copy(needed, one, first, image))
        first += len(one.found)
    plan, shift = _plan(placing, probing, [*libraries.values()], copies)
    left = _in_order(probing, [placing, *libraries.values()])
    traps = any(one.method.traps for one in left)
    asks = placing.asked.names if traps else ()
    caller = 0
    if probing.beside is not None:
        caller = (probing.beside.stub(placing.arch.name).address(SITE_CALLER) or 0) + shift
    signal = placing.mover.signal
    return Probed(plan=plan, placed=left, asks=asks, signal=signal, copies=copies, caller=caller)


def no_probes() -> Probed:
    """The plan for a program without any."""
    plan = Plan(
        changes=Changes.concat([]),
        code=np.empty((0, 0), np.uint8),
        selected=0,
        changed=0,
        dropped=0,
        restored=0,
        action="",
    )
    return Probed(plan=plan, placed=(), asks=(), signal="")


def placed_probes(image: Image, probing: Probing, refused: Refused) -> list[Placed]:
    """Place probes as ``plan_probed`` does, with nothing made to insert. Raises what it raises."""
    placing, libraries = _placed(image, probing, refused)
    return _in_order(probing, [placing, *libraries.values()])


def _placed(
    image: Image, probing: Probing, refused: Refused
) -> tuple[Placing, dict[Needed, Placing]]:
    """Place the probes of a program and of its libraries."""
    require_program(image)
    probing.wildcards.reserve(probing.definitions)
    own = [one for one in probing.definitions if not one.library]
    others = [one for one in probing.definitions if one.library]
    handler = probing.handler
    if image.is_library and others:
        reason = f"{others[0].event}: not a function of this library"
        raise UsageError(image.path, reason, "probe a program for what is in others")
    libraries = place_in_libraries(image, others, refused, probing.wildcards)
    room = Room(
        stub=read_stub(handler.stub, own=False, needs=(handler.name,)) if handler else None,
        others=[each for one in libraries.values() for each in one.definitions],
        beside=probing.beside,
    )
    if image.is_library:
        placing = place_in_library(image, own, refused, wildcards=probing.wildcards, room=room)
    else:
        placing = place_in_program(
            image,
            own,
            refused,
            optimize=probing.optimize,
            wildcards=probing.wildcards,
            room=room,
        )
    known = [((""), image.path), *((one.names, one.path) for one in libraries)]
    images = [placing, *libraries.values()]
    searched = [
        Searched(functions=one.functions, found=one.found, names=names, path=path, rank=rank)
        for rank, (one, (names, path)) in enumerate(zip(images, known, strict=True))
    ]
    found = with_calls(searched, refused)
    placing, *copied = [replace(one, found=kept) for one, kept in zip(images, found, strict=True)]
    pairs = zip(libraries, copied, strict=True)
    return placing, {library: one for library, one in pairs if one.found}


def _in_order(probing: Probing, placings: Sequence[Placing]) -> list[Placed]:
    """The placed probes, in the order of their definitions."""
    rows = {one.text: row for row, one in reversed([*enumerate(probing.definitions)])}
    placed = [each for one in placings for each in placed_of(one.found, one.definitions)]
    return sorted(placed, key=lambda one: rows[one.definition.text])


def _plan(
    placing: Placing,
    probing: Probing,
    libraries: Sequence[Placing],
    copies: Sequence[LibraryCopy],
) -> tuple[Plan, int]:
    """Insert the runtime and the detours, and displace the probed instructions; ``copies`` are
    those of the ``libraries``. Also return how far the stub is from where it was linked to be."""
    image, arch, found = placing.image, placing.arch, placing.found
    tracer, stub = probes_stub(arch.name)
    beside = probing.beside
    if beside is not None:
        tracer, stub = beside.recorded, beside.stub(arch.name)
    whole, handler = _with_handler(stub, probing.handler, arch.page)
    laid = with_detours(whole, placing)
    whole = laid.stub

    def tables(shift: int) -> Tables:
        user = handler + shift if handler else 0
        places = _places(found, [start + shift for start in laid.starts])
        probes = [packed for one in found for packed in one.probes(handler=user)]
        for rank, (one, copy) in enumerate(zip(libraries, copies, strict=True), 1):
            places += _places(one.found, copy.detours)
            packed = (made for each in one.found for made in each.probes(handler=user))
            probes += [replace(made, rank=rank) for made in packed]
        return Tables(arch.order, places, probes, searched=len(found))

    entries = needing(image, [one.name for one in copies], probing.folder) if copies else None
    strings_at = told_at = 0
    told = b"".join(one.told for one in copies)
    if entries is not None:
        told += bytes(structure("probed_library").itemsize)
        whole, strings_at = whole.with_data(entries.strings, arch.page)
        whole, told_at = whole.with_data(told, arch.page, writable=True)
    size = len(tables(0).pack(0))
    whole, table_at = whole.with_data(bytes(size), arch.page, writable=bool(copies))
    watches_at = hooks_at = 0
    if beside is not None and beside.watches:
        whole, watches_at = whole.with_data(beside.watches, arch.page)
        whole, hooks_at = whole.with_data(beside.hooks, arch.page)
    own = None
    if image.is_library:
        own = LibraryStart(image, stub, whole, page=arch.page)
        whole = own.whole
    callers = stub.address("ftrace_caller") or 0, stub.address("ftrace_regs_caller") or 0
    entry = own.init if own else header_field(image.elf, "e_entry")
    linked = own is None and image.elf.segment(Segment.PT_INTERP) is not None
    linker = linker_place(image) if linked else 0

    def fill(shift: int) -> dict[int, bytes]:
        filled = configuration(
            image,
            stub,
            tracer,
            shift=shift,
            depth=probing.depth,
            size=probing.size,
            entry=entry,
            sites=len(beside.sites) if beside else 0,
            arguments=False,
            probes=table_at + shift,
            libraries=(told_at + shift if copies else 0, linker),
            flags=(LIBRARY if own else 0) | (beside.flags if beside else 0),
            ended=own.ended if own else 0,
            watches=watches_at + shift if watches_at else 0,
            user=(
                watches_at + beside.rules + shift if beside and watches_at else 0,
                watches_at + beside.homes + shift if beside and watches_at else 0,
            ),
            hooks=hooks_at + shift if hooks_at else 0,
            keeping=probing.keeping,
        )
        filled |= laid.code(shift, callers)
        filled |= own.fill(shift) if own else {}
        filled[table_at] = tables(shift).pack(table_at + shift)
        return filled

    begin = None if own else stub.address("ftrace_start")
    hops, moved = laid.hops(), own.moved if own else None
    done = inject(image, whole, page=arch.page, entry=begin, fill=fill, hops=hops, dynamic=moved)
    changes, tail = for_debuggers(image, stub, done)
    parts = [changes, without_shadow_stack(image.elf, arch.shadow_stack)]
    parts += laid.changes(done.shift)
    if own:
        parts.append(own.changes(done.shift))
    if entries is not None:
        parts.append(entries.changes(strings_at + done.shift))
    code = np.empty((0, arch.width), np.uint8)
    plan = Plan(
        changes=Changes.concat(parts),
        code=code,
        selected=len(found),
        changed=len(found),
        dropped=0,
        restored=0,
        action="",
        tail=tail,
    )
    return plan, done.shift


def _with_handler(stub: Stub, handler: Handler | None, page: int) -> tuple[Stub, int]:
    """Join the user's stub, if any; return the result and the handler's linked address, 0 for
    none."""
    if handler is None:
        return stub, 0
    own = read_stub(handler.stub, own=False, needs=(handler.name,))
    whole, apart = stub.beside(own, page)
    return whole, (own.callable(handler.name) or 0) + apart


def _places(found: Sequence[Found], detours: Sequence[int]) -> list[Place]:
    """The places of an image, with the link address of each one's detour."""
    return [
        Place(
            address=one.location.chosen.address,
            detour=detour,
            probes=len(one.location.definitions),
            trap=one.location.chosen.method.traps,
        )
        for one, detour in zip(found, detours, strict=True)
    ]
