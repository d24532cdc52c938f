"""A plan with probes: detours and a runtime go into the program, and the probed places go there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ftpatch.arch import Arch, State, arch_of
from ftpatch.arch.detour import DETOURS
from ftpatch.arch.move import Mover, mover_of
from ftpatch.arch.registers import REGISTERS
from ftpatch.changes import NO_OWNER, Changes, Kind
from ftpatch.errors import FtpatchError, InputError, UsageError
from ftpatch.image import Image
from ftpatch.image.traced import laid_in_id
from ftpatch.inject import lay, read_stub
from ftpatch.inject.headers import header_field
from ftpatch.inject.probes import Place, Probe, Tables
from ftpatch.inject.properties import without_shadow_stack
from ftpatch.inject.tracers import configuration, probes_stub
from ftpatch.plan import Plan
from ftpatch.plan.functions import Functions, read_functions
from ftpatch.plan.hooks import Hooks, find_hooks
from ftpatch.plan.places import Chooser, Chosen, Way
from ftpatch.plan.traced import for_debuggers
from ftpatch.plan.unwinding import with_frames
from ftpatch.probe import Definition, definition_text
from ftpatch.probe.steps import Own, fetching
from ftpatch.sites import read_sites

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
    """The plan, what each probe got, in their order, and by what SIGTRAP may be blocked although
    there are breakpoints; empty where there are none."""

    plan: Plan
    placed: Sequence[Placed]
    risks: str


@dataclass(frozen=True)
class _Spot:
    """Probes of one place, p probes first: they are not to see that a return is awaited."""

    ip: int
    chosen: Chosen
    definitions: tuple[Definition, ...]


def plan_probed(image: Image, probing: Probing) -> Probed:
    """Probes at all the places, or UsageError for one that cannot be; InputError where there is no
    room for them."""
    arch = arch_of(image.elf.skeleton.machine, image.elf.skeleton.elf_class)
    mover = None if arch is None else mover_of(arch.name)
    if image.container != "executable" or arch is None:
        raise UsageError(image.path, f"a {image.container} cannot be probed", "give an executable")
    if mover is None:
        raise InputError(image.path, f"there are no probes for {arch.name}")
    if laid_in_id(image) is not None:
        raise UsageError(
            image.path, "it has a tracer or probes already", "undo that first: `ftpatch undo`"
        )
    functions = read_functions(image)
    chooser = Chooser(image, arch, mover, functions, _pads(image))
    spots = _spots(chooser, functions, probing)
    traps = any(spot.chosen.way == Way.TRAP for spot in spots)
    hooks = find_hooks(image, arch, functions, chooser) if traps else Hooks()
    plan = _laid(image, arch, mover, functions, chooser, spots, hooks, probing)
    placed = {
        definition: Placed(definition, spot.chosen.address, spot.chosen.way, spot.chosen.why)
        for spot in spots
        for definition in spot.definitions
    }
    return Probed(plan, [placed[one] for one in probing.definitions], hooks.risks)


def _spots(chooser: Chooser, functions: Functions, probing: Probing) -> list[_Spot]:
    """The places by address, and what each gets."""
    by_ip: dict[int, list[Definition]] = {}
    for definition in probing.definitions:
        by_ip.setdefault(_address(functions, definition), []).append(definition)
    addresses = sorted(by_ip)
    spots: list[_Spot] = []
    for ip, after in zip(addresses, [*addresses[1:], None], strict=True):
        chosen = chooser.choose(ip, optimize=probing.optimize, until=after)
        if spots and chosen.address == spots[-1].chosen.address:
            raise UsageError(
                functions.image.path,
                f"{ip:#x} is what {spots[-1].ip:#x} is, behind its landing pad",
                "name one of them",
            )
        if ip in functions.resolvers and chosen.way == Way.TRAP:
            raise UsageError(
                functions.image.path,
                f"{by_ip[ip][0].name}: the dynamic linker calls this before a trap can be caught",
            )
        ordered = sorted(by_ip[ip], key=lambda one: one.kind)
        spots.append(_Spot(ip, chosen, tuple(ordered)))
    return spots


def _address(functions: Functions, definition: Definition) -> int:
    """Link address of what is probed. Raises UsageError for what is not there."""
    path = functions.image.path
    if definition.symbol is None:
        address = definition.address or 0
    else:
        start = functions.named(definition.symbol)
        address = start + definition.offset
        around = functions.around(start)
        if around is not None and address >= around[1]:
            size = around[1] - around[0]
            raise UsageError(
                path, f"{definition.symbol} has {size} bytes, not {definition.offset + 1}"
            )
    if definition.kind == "r" and not functions.is_called(address):
        raise UsageError(
            path,
            f"{definition.name}: {address:#x} is not known to be a function that is called",
            "take a p probe",
        )
    return address


def _pads(image: Image) -> set[int]:
    """Addresses of the pads that its table names and that are what the compiler left."""
    try:
        sites = read_sites(image)
    except FtpatchError:
        return set()
    if not sites.abi.pad:
        return set()
    nops = (sites.state == State.NOP) & sites.placed & (sites.offset >= 0)
    starts = sites.ip[nops] - np.uint64(sites.lead)
    return set(starts.tolist())


def _laid(
    image: Image,
    arch: Arch,
    mover: Mover,
    functions: Functions,
    chooser: Chooser,
    spots: Sequence[_Spot],
    hooks: Hooks,
    probing: Probing,
) -> Plan:
    registers, detour = REGISTERS[arch.name], DETOURS[arch.name]
    tracer, stub = probes_stub(arch.name)
    whole, handler, apart = stub, 0, 0
    if probing.handler is not None:
        own = read_stub(probing.handler.stub, own=False, needs=probing.handler.name)
        whole, apart = stub.beside(own, arch.page)
        handler = (own.address(probing.handler.name) or 0) + apart
    mine = Own(image.symbols.find, lambda at, size: _has(image, at, size))
    definitions = [(spot.ip, one) for spot in spots for one in spot.definitions]
    fetchings = [fetching(one, ip, registers, mine) for ip, one in definitions]

    def tables(shift: int, starts: Sequence[int]) -> Tables:
        rows = [(slot.place, int(slot.which), 0) for slot in hooks.slots]
        places = starts[len(spots) :]
        rows += [
            (place + shift, int(which), 1)
            for (which, _), place in zip(hooks.code, places, strict=True)
        ]
        return Tables(
            [
                Place(
                    spot.chosen.address,
                    start + shift,
                    len(spot.definitions),
                    spot.chosen.way == Way.TRAP,
                )
                for spot, start in zip(spots, starts, strict=False)
            ],
            [
                Probe(
                    ip,
                    one.kind == "r",
                    one.maxactive,
                    fetched,
                    definition_text(one),
                    handler + shift if handler else 0,
                )
                for (ip, one), fetched in zip(definitions, fetchings, strict=True)
            ],
            rows,
            hooks.sealed,
        )

    sizes = [
        detour.size + len(chooser.moved(spot.chosen, spot.chosen.address).code) for spot in spots
    ]
    sizes += [len(chooser.moved(chosen, chosen.address).code) for _, chosen in hooks.code]
    offsets, end = [], 0
    for size in sizes:
        offsets.append(end)
        end = (end + size + ALIGN - 1) // ALIGN * ALIGN
    whole, code_at = whole.with_code(bytes(end), arch.page)
    starts = [code_at + offset for offset in offsets]
    told = [
        (spot.chosen, start, size) for spot, start, size in zip(spots, starts, sizes, strict=False)
    ]
    whole = with_frames(whole, arch.page, functions, chooser, mover, detour, told)
    whole, table_at = whole.with_data(bytes(len(tables(0, starts).pack(0))), arch.page)
    caller, anywhere = (stub.address(f"ftrace_{name}caller") or 0 for name in ("", "regs_"))
    entry = header_field(image, "e_entry")

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
        )
        for (_, chosen), start in zip(hooks.code, starts[len(spots) :], strict=True):
            filled[start] = chooser.moved(chosen, start + shift).code
        for number, (spot, start) in enumerate(zip(spots, starts, strict=False)):
            at = start + shift
            entry_only = functions.is_entry(spot.ip) or spot.chosen.way == Way.PAD
            before = detour.make(at, number, (caller if entry_only else anywhere) + shift)
            filled[start] = before + chooser.moved(spot.chosen, at + len(before)).code
        filled[table_at] = tables(shift, starts).pack(table_at + shift)
        return filled

    laid = lay(image, whole, page=arch.page, entry=stub.address("ftrace_start"), fill=fill)
    changes, tail = for_debuggers(image, stub, laid)
    parts = [changes, without_shadow_stack(image, arch)]
    for spot, start in zip(spots, starts, strict=False):
        parts.append(_site(image, mover, spot.chosen, start + laid.shift))
    for which, chosen in hooks.code:
        wrapper = (stub.address(which.wrapper) or 0) + laid.shift
        parts.append(_site(image, mover, chosen, wrapper))
    code = np.empty((0, arch.width), np.uint8)
    plan = Plan(Changes.concat(parts), code, len(spots), len(spots), 0, 0, "")
    return replace(plan, tail=tail)


def _site(image: Image, mover: Mover, chosen: Chosen, detour: int) -> Changes:
    """The jump or the breakpoint.

    x86_64   55 48 89 e5 41 57   ->   e9 rel32 57    or   cc 48 89 e5 41 57
    """
    new = mover.trap if chosen.way == Way.TRAP else mover.jump(chosen.address, detour)
    offset = image.elf.offset_of(np.array([chosen.address], np.uint64))
    old = np.frombuffer(chosen.code[: len(new)], np.uint8)[None]
    return Changes.of(Kind.CODE, offset, old, np.frombuffer(new, np.uint8)[None], NO_OWNER)


def _has(image: Image, address: int, size: int) -> bool:
    """Whether these bytes are in a segment."""
    ends = np.array([address, address + size - 1], np.int64).view(np.uint64)
    return bool(image.elf.in_memory(ends).all())
