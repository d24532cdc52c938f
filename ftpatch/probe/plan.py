"""A plan with probes: detours and a runtime go into the program, and the probed places go there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ftpatch.arch import Arch, arch_of
from ftpatch.arch.detour import DETOURS
from ftpatch.arch.move import Mover, mover_of
from ftpatch.arch.registers import REGISTERS, Registers
from ftpatch.core.changes import Changes
from ftpatch.elf.headers import Segment
from ftpatch.elf.properties import without_shadow_stack
from ftpatch.elf.segments import header_field
from ftpatch.errors import InputError, Refused, UsageError
from ftpatch.ftrace.plan import Plan
from ftpatch.image import Image
from ftpatch.image.injected import laid_in_id
from ftpatch.inject.asked_signals import Asked, find_asked
from ftpatch.inject.displaced import displaced
from ftpatch.inject.inject import lay
from ftpatch.inject.library_tables import linker_place
from ftpatch.inject.methods import Chooser, Way
from ftpatch.inject.runtime import configuration, probes_stub
from ftpatch.inject.stub import read_stub
from ftpatch.inject.unwinding import with_frames
from ftpatch.names.functions import Functions, read_functions
from ftpatch.names.named_symbols import DATA, Named
from ftpatch.names.suggest import meant
from ftpatch.probe import Definition, definition_text
from ftpatch.probe.locations import Spot, find_pads, find_spots
from ftpatch.probe.steps import Fetching, Own, fetching
from ftpatch.probe.tables import Place, Probe, Tables
from ftpatch.tracer.plan import for_debuggers

__all__ = ["Handler", "Placed", "Probed", "Probing", "plan_probed"]

ALIGN = 16
"""Bytes: where detours begin."""


@dataclass(frozen=True)
class Handler:
    """A user's own: the stub that has it, and its name there."""

    stub: Path
    name: str


@dataclass(frozen=True)
class Probing:
    """The options of probes. ``depth``: entries of a ret_stack; ``size``: bytes of a trace file."""

    definitions: Sequence[Definition]
    optimize: bool
    handler: Handler | None
    depth: int
    size: int


@dataclass(frozen=True)
class Placed:
    """What a probe got: ``address`` where the file is changed, ``why`` it is no jump."""

    definition: Definition
    address: int
    way: Way
    why: str


@dataclass(frozen=True)
class Probed:
    """The plan, what each probe got, in their order, and what the program calls that could set or
    block SIGILL; empty where there are no breakpoints."""

    plan: Plan
    placed: Sequence[Placed]
    asks: Sequence[str]


def plan_probed(image: Image, probing: Probing, refused: Refused) -> Probed:
    """Probes at all the places but those that are ``refused``. Raises UsageError where none is
    left, or the program cannot have any; InputError where there is no room for them."""
    arch = arch_of(image.elf.skeleton.machine, image.elf.skeleton.elf_class)
    mover = None if arch is None else mover_of(arch.name)
    if image.container != "executable" or arch is None:
        raise UsageError(image.path, f"{image.kind} cannot be probed", "give an executable")
    if mover is None:
        raise InputError(image.path, f"there are no probes for {arch.name}")
    if laid_in_id(image) is not None:
        raise UsageError(
            image.path, "it has a tracer or probes already", "undo that first: `ftpatch undo`"
        )
    functions = read_functions(image)
    definitions = []
    for one in probing.definitions:
        with refused.told(image.path):
            symbol = one.symbol and functions.names.spelled(one.symbol)
            definitions.append(replace(one, symbol=symbol))
    chooser = Chooser(image, arch, mover, functions, find_pads(image))
    spots = find_spots(chooser, functions, definitions, refused, optimize=probing.optimize)
    traps = any(spot.chosen.way == Way.TRAP for spot in spots)
    asked = find_asked(image, arch) if traps else Asked()
    spots = _free(image, chooser, spots, asked, refused)
    spots, fetchings = _fetching(image, spots, REGISTERS[arch.name], refused)
    if not spots:
        if refused.errors:
            raise refused.errors.pop()
        raise UsageError(image.path, "no probes", "say what to probe, as in 'p main'")
    plan = _laid(image, arch, mover, functions, chooser, spots, fetchings, probing)
    placed = {
        definition: Placed(definition, spot.chosen.address, spot.chosen.way, spot.chosen.why)
        for spot in spots
        for definition in spot.definitions
    }
    traps = any(spot.chosen.way == Way.TRAP for spot in spots)
    left = [placed[one] for one in definitions if one in placed]
    return Probed(plan, left, asked.names if traps else ())


def _free(
    image: Image, chooser: Chooser, spots: Sequence[Spot], asked: Asked, refused: Refused
) -> list[Spot]:
    """The spots but traps beside what the runtime cannot answer in the kernel's place, and probes
    on what it has to lead elsewhere."""
    free = []
    for spot in spots:
        names = ", ".join(one.name for one in spot.definitions)
        with refused.told():
            if spot.chosen.way == Way.TRAP and asked.unled:
                reason = (
                    f"{names}: it needs a trap, and the system call at {asked.unled[0]:#x} may "
                    "set or block SIGILL, and cannot be redirected"
                )
                raise UsageError(image.path, reason, "choose another place")
            start, end = chooser.span(spot.chosen)
            for low, high in asked.led:
                if start < high and low < end:
                    reason = f"{names}: {low:#x} to {high:#x} are reserved for traps"
                    raise UsageError(image.path, reason, "choose another place")
            free.append(spot)
    return free


def _fetching(
    image: Image, spots: Sequence[Spot], registers: Registers, refused: Refused
) -> tuple[list[Spot], list[Fetching]]:
    """What is left of the spots, and what each of their probes has to do, in their order."""
    own = Own(
        image.symbols.find, lambda at, size: _has(image, at, size), lambda name: _like(image, name)
    )
    left, fetchings = [], []
    for spot in spots:
        definitions = []
        for one in spot.definitions:
            with refused.told(image.path):
                fetchings.append(fetching(one, spot.ip, registers, own))
                definitions.append(one)
        if definitions:
            left.append(replace(spot, definitions=tuple(definitions)))
    return left, fetchings


def _laid(
    image: Image,
    arch: Arch,
    mover: Mover,
    functions: Functions,
    chooser: Chooser,
    spots: Sequence[Spot],
    fetchings: Sequence[Fetching],
    probing: Probing,
) -> Plan:
    detour = DETOURS[arch.name]
    tracer, stub = probes_stub(arch.name)
    whole, handler, apart = stub, 0, 0
    if probing.handler is not None:
        own = read_stub(probing.handler.stub, own=False, needs=probing.handler.name)
        whole, apart = stub.beside(own, arch.page)
        handler = (own.address(probing.handler.name) or 0) + apart
    definitions = [(spot, one) for spot in spots for one in spot.definitions]

    def tables(shift: int, starts: Sequence[int]) -> Tables:
        return Tables(
            [
                Place(
                    spot.chosen.address,
                    start + shift,
                    len(spot.definitions),
                    spot.chosen.way == Way.TRAP,
                )
                for spot, start in zip(spots, starts, strict=True)
            ],
            [
                Probe(
                    spot.ip,
                    one.kind == "r",
                    one.maxactive,
                    fetched,
                    definition_text(one),
                    handler + shift if handler else 0,
                    1 + list(Way).index(spot.chosen.way),
                )
                for (spot, one), fetched in zip(definitions, fetchings, strict=True)
            ],
        )

    sizes = [
        detour.size + len(chooser.moved(spot.chosen, spot.chosen.address).code) for spot in spots
    ]
    offsets, end = [], 0
    for size in sizes:
        offsets.append(end)
        end = (end + size + ALIGN - 1) // ALIGN * ALIGN
    whole, code_at = whole.with_code(bytes(end), arch.page)
    starts = [code_at + offset for offset in offsets]
    told = [
        (spot.chosen, start, size) for spot, start, size in zip(spots, starts, sizes, strict=True)
    ]
    whole = with_frames(whole, arch.page, functions, chooser, mover, detour, told)
    whole, table_at = whole.with_data(bytes(len(tables(0, starts).pack(0))), arch.page)
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
        for number, (spot, start) in enumerate(zip(spots, starts, strict=True)):
            at = start + shift
            entry_only = functions.is_entry(spot.ip) or spot.chosen.way == Way.PAD
            before = detour.make(at, number, (caller if entry_only else anywhere) + shift)
            filled[start] = before + chooser.moved(spot.chosen, at + len(before)).code
        filled[table_at] = tables(shift, starts).pack(table_at + shift)
        return filled

    laid = lay(image, whole, page=arch.page, entry=stub.address("ftrace_start"), fill=fill)
    changes, tail = for_debuggers(image, stub, laid)
    parts = [changes, without_shadow_stack(image.elf, arch.shadow_stack)]
    for spot, start in zip(spots, starts, strict=True):
        address, detoured = spot.chosen.address, start + laid.shift
        trap = spot.chosen.way == Way.TRAP
        new = mover.trap if trap else mover.jump(address, detoured)
        parts.append(displaced(image, spot.chosen, new))
    code = np.empty((0, arch.width), np.uint8)
    plan = Plan(Changes.concat(parts), code, len(spots), len(spots), 0, 0, "")
    return replace(plan, tail=tail)


def _like(image: Image, name: str) -> str:
    """What may have been meant."""
    found = Named(image.symbols, DATA)
    return meant(found.find(name) or found.like(name), "see `nm`")


def _has(image: Image, address: int, size: int) -> bool:
    """Whether these bytes are in a segment."""
    ends = np.array([address, address + size - 1], np.int64).view(np.uint64)
    return bool(image.elf.in_memory(ends).all())
