# SPDX-License-Identifier: MIT
"""Planning probes: the detours, the runtime, and the jumps or breakpoints that lead there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ftpatch.arch import Arch, arch_of, supports
from ftpatch.arch.detour import Detour, detour_of
from ftpatch.arch.move import Mover, mover_of
from ftpatch.arch.puns import puns_of
from ftpatch.arch.registers import registers_of
from ftpatch.core.changes import Changes
from ftpatch.elf.dynamic import dynamic_tags
from ftpatch.elf.headers import Segment
from ftpatch.elf.properties import without_shadow_stack
from ftpatch.elf.segments import ProgramHeaders, header_field
from ftpatch.errors import InputError, Refused, UsageError
from ftpatch.ftrace.plan import Plan
from ftpatch.image import Image
from ftpatch.image.injected import laid_in_id
from ftpatch.inject.debug_sections import for_debuggers
from ftpatch.inject.hop_pages import HopPages
from ftpatch.inject.hops import Hops
from ftpatch.inject.inject import inject, start_of
from ftpatch.inject.library_tables import linker_place
from ftpatch.inject.probe_methods import PAD, Chosen, Methods, displaced
from ftpatch.inject.runtime import configuration, probes_stub
from ftpatch.inject.signal_calls import Asked, find_asked
from ftpatch.inject.stub import Stub, read_stub
from ftpatch.inject.unwinding import with_frames, with_hop_frames
from ftpatch.names.functions import Functions, read_functions
from ftpatch.probe import Definition, definition_text
from ftpatch.probe.found import Found, Placed, fetchings, placed_of
from ftpatch.probe.locations import Location, find_locations, find_pads
from ftpatch.probe.tables import Place, Tables
from ftpatch.probe.wildcards import Wildcards, require_each, skipping

__all__ = ["NEEDED", "Handler", "Probed", "Probing", "placed_probes", "plan_probed"]

ALIGN = 16
"""Alignment of detours (bytes)."""
ROOM = 4096
"""Of a detour, its unwind information and its part of the tables, without texts and fetches
(bytes)."""
STEP = 512
"""Of a fetch (bytes)."""
MAX_HEADERS = 4096
"""Maximum size of program headers (bytes): load_elf_phdrs() of fs/binfmt_elf.c refuses more than a
page (ELF_MIN_ALIGN) before Linux 6.17, and more than 64 KB since."""
PHDR = 56
"""sizeof(Elf64_Phdr)."""
FURTHER = 5
"""Program headers besides those of the stubs: detours, their unwind information, that of hops,
tables, and PT_GNU_EH_FRAME."""
TEXTREL = 22
"""DT_TEXTREL: code is relocated, and so is not in memory what it is in the file."""
NEEDED = ("move", "detour", "registers", "returns_twice", "system_calls")
"""Per architecture."""


@dataclass(frozen=True, kw_only=True)
class Handler:
    """A user's handler: its stub, and the function's name in it."""

    stub: Path
    name: str


@dataclass(frozen=True, kw_only=True)
class Probing:
    """Options of probes. ``depth``: entries of a ret_stack; ``size``: size of a trace file in
    bytes; ``wildcards``: what a FUNC may match."""

    definitions: Sequence[Definition]
    optimize: bool
    handler: Handler | None
    depth: int
    size: int
    wildcards: Wildcards = field(default_factory=Wildcards)


@dataclass(frozen=True, kw_only=True)
class Probed:
    """The plan, its probes in definition order, and the functions through which the program could
    set or block SIGILL (none without breakpoints)."""

    plan: Plan
    placed: Sequence[Placed]
    asks: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class _Program:
    """A program that can be probed, and what is known about its code."""

    image: Image
    arch: Arch
    mover: Mover
    functions: Functions
    methods: Methods


@dataclass(frozen=True, kw_only=True)
class _Placing:
    """The ``found`` locations of a program's probes, and its system calls about signals."""

    program: _Program
    definitions: Sequence[Definition]
    found: Sequence[Found]
    asked: Asked


def plan_probed(image: Image, probing: Probing, refused: Refused) -> Probed:
    """Plan probes at all places that are not ``refused``. Raises UsageError if none is left or the
    program cannot be probed; InputError if there is no room."""
    placing = _placing(image, probing, refused)
    if not placing.found:
        if refused.errors:
            raise refused.errors.pop()
        raise UsageError(image.path, "no probes", "specify a probe, such as 'p main'")
    plan = _plan(placing.program, probing, placing.found)
    left = placed_of(placing.found, placing.definitions)
    traps = any(one.method.traps for one in left)
    return Probed(plan=plan, placed=left, asks=placing.asked.names if traps else ())


def placed_probes(image: Image, probing: Probing, refused: Refused) -> list[Placed]:
    """Place probes as ``plan_probed`` does, with nothing made to insert. Raises what it raises."""
    placing = _placing(image, probing, refused)
    return placed_of(placing.found, placing.definitions)


def _placing(image: Image, probing: Probing, refused: Refused) -> _Placing:
    arch = arch_of(image.elf.skeleton.machine, image.elf.skeleton.elf_class)
    if not image.is_program or arch is None:
        raise UsageError(image.path, f"{image.kind} cannot be probed", "use an executable")
    if not supports(arch.name, *NEEDED):
        raise InputError(image.path, f"probes are not supported on {arch.name}")
    mover = mover_of(arch.name)
    if laid_in_id(image) is not None:
        raise UsageError(image.path, "already has a tracer or probes", "run `ftpatch undo` first")
    functions = read_functions(image)
    own = _own(image, probing.definitions, refused)
    probing.wildcards.reserve(own)
    definitions = probing.wildcards.spelled(functions, own, refused)
    pads, hops = find_pads(image), _hops(image, arch, mover, definitions, probing.handler)
    methods = Methods(image, arch, mover, functions, pads, hops)
    locations = find_locations(methods, functions, definitions, refused, optimize=probing.optimize)
    traps = any(one.chosen.method.traps for one in locations)
    asked = find_asked(image, arch) if traps else Asked()
    locations = _free(image, methods, locations, asked, refused)
    found = fetchings(image, locations, registers_of(arch.name), refused)
    left = [one.definition for one in placed_of(found, definitions)]
    require_each(functions, definitions, left, refused)
    program = _Program(image=image, arch=arch, mover=mover, functions=functions, methods=methods)
    return _Placing(program=program, definitions=definitions, found=found, asked=asked)


def _hops(
    image: Image,
    arch: Arch,
    mover: Mover,
    definitions: Sequence[Definition],
    handler: Handler | None,
) -> Hops | None:
    """Find room for hops, above a stub with the largest detours and tables that these probes may
    need."""
    if not supports(arch.name, "puns") or dynamic_tags(image.elf).get(TEXTREL):
        return None
    stubs = [probes_stub(arch.name)[1].parts]
    if handler is not None:
        stubs.append(read_stub(handler.stub, own=False, needs=handler.name).parts)
    size = sum(part.size + 2 * arch.page for parts in stubs for part in parts) + MAX_HEADERS
    for one in definitions:
        size += ROOM + len(definition_text(one)) + STEP * len(one.fetches)
    rows = image.elf.segment(Segment.PT_GNU_EH_FRAME)
    floor = start_of(image, arch.page)[1] + size + (rows.size if rows else 0)
    held = len(ProgramHeaders(image.elf).rows) + sum(map(len, stubs)) + FURTHER
    most = MAX_HEADERS // PHDR - held
    return Hops(puns_of(arch.name), mover, floor=floor, page=arch.page, most=max(most, 0))


def _own(image: Image, definitions: Sequence[Definition], refused: Refused) -> list[Definition]:
    """Drop those of libraries."""
    own = []
    for one in definitions:
        with refused.told(image.path):
            if one.library:
                reason = f"{one.event}: a library can only be probed in a running process"
                raise UsageError(image.path, reason, "use --pid")
            own.append(one)
    return own


def _free(
    image: Image,
    methods: Methods,
    locations: Sequence[Location],
    asked: Asked,
    refused: Refused,
) -> list[Location]:
    """Drop traps if a system call cannot be redirected, and probes on the code that the runtime
    itself redirects."""
    free = []
    for location in locations:
        names = ", ".join(one.event for one in location.definitions)
        with refused.told(skips=skipping(location.definitions)):
            if location.chosen.method.traps and asked.unled:
                reason = (
                    f"{names}: it needs a trap, and the system call at {asked.unled[0]:#x} may "
                    "set or block SIGILL, and cannot be redirected"
                )
                raise UsageError(image.path, reason, "probe another address")
            start, end = methods.span(location.chosen)
            for low, high in asked.led:
                if start < high and low < end:
                    reason = f"{names}: {low:#x} to {high:#x} are reserved for traps"
                    raise UsageError(image.path, reason, "probe another address")
            free.append(location)
    return free


def _plan(program: _Program, probing: Probing, found: Sequence[Found]) -> Plan:
    """Insert the runtime and the detours, and displace the probed instructions."""
    image, arch = program.image, program.arch
    detour = detour_of(arch.name)
    tracer, stub = probes_stub(arch.name)
    whole, handler = _with_handler(stub, probing.handler, arch.page)
    whole, detours, apart = _with_detours(whole, program, found, detour)
    whole, frames = with_hop_frames(
        whole,
        [one.location.chosen for one in found],
        page=arch.page,
        functions=program.functions,
        methods=program.methods,
    )
    whole, table_at = whole.with_data(
        bytes(len(_tables(found, detours, handler, 0).pack(0))), arch.page
    )
    caller, anywhere = (stub.address(f"ftrace_{name}caller") or 0 for name in ("", "regs_"))
    entry = header_field(image.elf, "e_entry")
    linker = linker_place(image) if image.elf.segment(Segment.PT_INTERP) is not None else 0

    def fill(shift: int) -> dict[int, bytes]:
        filled = configuration(
            image,
            stub,
            tracer,
            shift=shift,
            depth=probing.depth,
            size=probing.size,
            entry=entry,
            sites=0,
            arguments=False,
            probes=table_at + shift,
            libraries=(0, linker),
        )
        for number, (one, start) in enumerate(zip(found, detours, strict=True)):
            at, chosen = start + shift, one.location.chosen
            entry_only = program.functions.is_entry(one.location.ip) or chosen.method is PAD
            before = detour.make(at, number, (caller if entry_only else anywhere) + shift)
            filled[start] = before + program.methods.moved(chosen, at + len(before)).code
        for evicted, start in apart:
            filled[start] = program.methods.moved(evicted, start + shift).code
        filled[frames.at] = frames.pack(shift)
        filled[table_at] = _tables(found, detours, handler, shift).pack(table_at + shift)
        return filled

    laid_out = [(one.location.chosen, start) for one, start in zip(found, detours, strict=True)]
    laid_out += apart
    pages = HopPages(
        hops=[(one.hop.at, start) for one, start in laid_out if one.hop],
        mover=program.mover,
        page=arch.page,
        most=program.methods.hops.most if program.methods.hops else 0,
        frames=frames.rows,
    )
    begin = stub.address("ftrace_start")
    laid = inject(image, whole, page=arch.page, entry=begin, fill=fill, hops=pages)
    changes, tail = for_debuggers(image, stub, laid)
    parts = [changes, without_shadow_stack(image.elf, arch.shadow_stack)]
    for chosen, start in laid_out:
        new = chosen.new_code(program.mover, start + laid.shift)
        parts.append(displaced(image, chosen, new))
    code = np.empty((0, arch.width), np.uint8)
    return Plan(
        changes=Changes.concat(parts),
        code=code,
        selected=len(found),
        changed=len(found),
        dropped=0,
        restored=0,
        action="",
        tail=tail,
    )


def _with_handler(stub: Stub, handler: Handler | None, page: int) -> tuple[Stub, int]:
    """Join the user's stub, if any; return the result and the handler's linked address, 0 for
    none."""
    if handler is None:
        return stub, 0
    own = read_stub(handler.stub, own=False, needs=handler.name)
    whole, apart = stub.beside(own, page)
    return whole, (own.address(handler.name) or 0) + apart


def _with_detours(
    stub: Stub, program: _Program, found: Sequence[Found], detour: Detour
) -> tuple[Stub, list[int], list[tuple[Chosen, int]]]:
    """Add room for the detours and their unwind information; return the stub, the linked address of
    each detour, and the evicted instructions, each with the linked address at which it runs."""
    methods, page = program.methods, program.arch.page
    chosen = [one.location.chosen for one in found]
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
    whole = with_frames(whole, places, page=page, functions=program.functions, methods=methods)
    apart = list(zip(evicted, starts[len(chosen) :], strict=True))
    return whole, starts[: len(chosen)], apart


def _tables(found: Sequence[Found], detours: Sequence[int], handler: int, shift: int) -> Tables:
    """Build the runtime's tables, for a stub that is ``shift`` bytes above its link address."""
    places = [
        Place(
            address=one.location.chosen.address,
            detour=start + shift,
            probes=len(one.location.definitions),
            trap=one.location.chosen.method.traps,
        )
        for one, start in zip(found, detours, strict=True)
    ]
    probes = [
        packed for one in found for packed in one.probes(handler=handler + shift if handler else 0)
    ]
    return Tables(places, probes)
