# SPDX-License-Identifier: MIT
"""The places of probes in a file, before anything is made to lead there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ftpatch.arch import Arch, arch_of, supports
from ftpatch.arch.move import Mover, mover_of
from ftpatch.arch.puns import puns_of
from ftpatch.arch.registers import registers_of
from ftpatch.elf.dynamic import dynamic_tags
from ftpatch.elf.headers import Segment
from ftpatch.elf.segments import ProgramHeaders
from ftpatch.errors import InputError, Refused, UsageError
from ftpatch.image import Image
from ftpatch.image.injected import laid_in_id
from ftpatch.inject.beside import Beside
from ftpatch.inject.hops import Hops
from ftpatch.inject.inject import start_of
from ftpatch.inject.library_start import require_ordinary
from ftpatch.inject.probe_methods import Methods
from ftpatch.inject.runtime import probes_stub
from ftpatch.inject.signal_calls import Asked, find_asked
from ftpatch.inject.stub import Stub
from ftpatch.names.functions import Functions, read_functions
from ftpatch.probe import Definition, definition_text
from ftpatch.probe.found import Found, fetchings, placed_of
from ftpatch.probe.locations import Location, find_locations, find_pads
from ftpatch.probe.usable import require_return
from ftpatch.probe.wildcards import Wildcards, require_each, skipping

__all__ = [
    "AFAR",
    "LATER",
    "NEEDED",
    "Placing",
    "Room",
    "place_in_library",
    "place_in_program",
    "require_program",
]

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
OF_LIBRARIES = 2
"""Those of probed libraries: their list, and strings of the dynamic table."""
TEXTREL = 22
"""DT_TEXTREL: code is relocated, and so is not in memory what it is in the file."""
NEEDED = ("move", "detour", "registers", "returns_twice")
"""Per architecture."""
AFAR = "use `ftpatch probe -c`"
"""The hint where a library's copy cannot be probed, and the library in a process can."""
LATER = "one that is opened later (dlopen) can be probed in its own file"
"""The hint about a library that is not there when a program starts."""


@dataclass(frozen=True, kw_only=True)
class Placing:
    """An image that can be probed, what is known about its code, the ``found`` locations of its
    probes, and its system calls about signals."""

    image: Image
    arch: Arch
    mover: Mover
    functions: Functions
    methods: Methods
    definitions: Sequence[Definition]
    found: Sequence[Found]
    asked: Asked


@dataclass(frozen=True, kw_only=True)
class Room:
    """Room in front of a program's hops, besides that for its own probes: of a user's ``stub``, and
    of the tables of ``others``, probes of its libraries, and of what is laid in ``beside`` them."""

    stub: Stub | None = None
    others: Sequence[Definition] = ()
    beside: Beside | None = None


def require_program(image: Image) -> None:
    """Raise UsageError for anything but a program or a library without a tracer or probes."""
    if image.is_library:
        hint = f"probe a program that loads it, as in 'p {image.path.name}:FUNC'"
        require_ordinary(image, hint)
    elif not image.is_program:
        raise UsageError(image.path, f"{image.kind} cannot be probed", "use an executable")
    if laid_in_id(image) is not None:
        raise UsageError(image.path, "already has a tracer or probes", "run `ftpatch undo` first")


def place_in_program(
    image: Image,
    definitions: Sequence[Definition],
    refused: Refused,
    *,
    optimize: bool,
    wildcards: Wildcards,
    room: Room,
) -> Placing:
    """Place probes in a program, leaving out those that are ``refused``. Raises UsageError for a Go
    program, InputError for an architecture without probes."""

    def hops(arch: Arch, definitions: Sequence[Definition]) -> Hops | None:
        return _hops(image, arch, definitions, room)

    def accept(placing: Placing, locations: Sequence[Location]) -> tuple[list[Location], Asked]:
        locations = _beside(placing, locations, room.beside, refused)
        traps = any(one.chosen.method.traps for one in locations)
        asked = find_asked(image, placing.arch) if traps else Asked()
        return _free(placing, locations, asked, refused), asked

    taken = room.beside.sites if room.beside else {}
    finding = _Finding(
        optimize=optimize, wildcards=wildcards, hops=hops, accept=accept, taken=taken
    )
    return _place(image, definitions, refused, finding)


def place_in_library(
    image: Image,
    definitions: Sequence[Definition],
    refused: Refused,
    *,
    wildcards: Wildcards,
    room: Room | None = None,
) -> Placing:
    """The same for a library, which a program's runtime finds, or that has its own: there are no
    traps, which could be reached before the runtime is there."""

    def accept(placing: Placing, locations: Sequence[Location]) -> tuple[list[Location], Asked]:
        usable = []
        for one in _beside(placing, locations, room.beside if room else None, refused):
            names = ", ".join(each.event for each in one.definitions)
            with refused.told(image.path, skips=skipping(one.definitions)):
                if one.chosen.method.traps:
                    reason = f"{names}: no room for a jump: {one.chosen.why}"
                    raise UsageError(image.path, reason, AFAR)
                if one.ip in placing.functions.resolvers:
                    reason = f"{names}: it only chooses the function's implementation (IFUNC)"
                    raise UsageError(image.path, reason, AFAR)
                require_return(image.path, placing.functions, one)
                usable.append(one)
        asked = find_asked(image, placing.arch)
        return _free(placing, usable, asked, refused), asked

    def hops(arch: Arch, definitions: Sequence[Definition]) -> Hops | None:
        return _hops(image, arch, definitions, room or Room())

    taken = room.beside.sites if room and room.beside else {}
    finding = _Finding(optimize=True, wildcards=wildcards, hops=hops, accept=accept, taken=taken)
    return _place(image, definitions, refused, finding)


@dataclass(frozen=True, kw_only=True)
class _Finding:
    """Rules for places: the ``hops`` that there may be, the locations to ``accept``, and the sites
    that are ``taken``."""

    optimize: bool
    wildcards: Wildcards
    hops: Callable[[Arch, Sequence[Definition]], Hops | None]
    accept: Callable[[Placing, Sequence[Location]], tuple[list[Location], Asked]]
    taken: Mapping[int, int] = field(default_factory=dict)


def _place(
    image: Image, definitions: Sequence[Definition], refused: Refused, finding: _Finding
) -> Placing:
    """Place probes by these rules."""
    arch = arch_of(image.elf.skeleton.machine, image.elf.skeleton.elf_class)
    if arch is None or not supports(arch.name, *NEEDED):
        reason = f"probes are not supported on {arch.name if arch else 'its architecture'}"
        raise InputError(image.path, reason)
    functions = read_functions(image)
    mover = mover_of(arch.name, functions.is_second)
    named = finding.wildcards.spelled(functions, definitions, refused)
    methods = Methods(
        image,
        arch,
        mover,
        functions,
        find_pads(image),
        finding.hops(arch, named),
        taken=finding.taken,
    )
    locations = find_locations(methods, functions, named, refused, optimize=finding.optimize)
    bare = Placing(
        image=image,
        arch=arch,
        mover=mover,
        functions=functions,
        methods=methods,
        definitions=named,
        found=(),
        asked=Asked(),
    )
    accepted, asked = finding.accept(bare, locations)
    found = fetchings(image, accepted, registers_of(arch.name), refused)
    left = [one.definition for one in placed_of(found, named)]
    require_each(functions, named, left, refused)
    return replace(bare, found=found, asked=asked)


def _hops(image: Image, arch: Arch, definitions: Sequence[Definition], room: Room) -> Hops | None:
    """Find room for hops, above a stub with the largest detours and tables that these probes may
    need."""
    if not supports(arch.name, "puns") or dynamic_tags(image.elf).get(TEXTREL):
        return None
    beside = room.beside
    stubs = [(beside.stub(arch.name) if beside else probes_stub(arch.name)[1]).parts]
    if room.stub is not None:
        stubs.append(room.stub.parts)
    size = sum(part.size + 2 * arch.page for parts in stubs for part in parts) + MAX_HEADERS
    size += 2 * arch.page * FURTHER  # each begins a page of its own
    for one in (*definitions, *room.others):
        size += ROOM + len(definition_text(one)) + STEP * len(one.fetches)
    if beside is not None:
        size += len(beside.watches) + len(beside.hooks) + 2 * arch.page * beside.parts
    rows = image.elf.segment(Segment.PT_GNU_EH_FRAME)
    floor = start_of(image, arch.page)[1] + size + (rows.size if rows else 0)
    held = len(ProgramHeaders(image.elf).rows) + sum(map(len, stubs)) + FURTHER
    held += (OF_LIBRARIES if room.others else 0) + (beside.parts if beside else 0)
    most = MAX_HEADERS // PHDR - held
    mover = mover_of(arch.name)
    return Hops(puns_of(arch.name), mover, floor=floor, page=arch.page, most=max(most, 0))


def _beside(
    placing: Placing, locations: Sequence[Location], beside: Beside | None, refused: Refused
) -> list[Location]:
    """Drop what a tracer or watches leave no room for: probes in the code of a tracer's site, and
    traps beside watches, since the runtime handles one signal."""
    if beside is None:
        return [*locations]
    path, free = placing.image.path, []
    for one in locations:
        names = ", ".join(each.event for each in one.definitions)
        with refused.told(path, skips=skipping(one.definitions)):
            start, end = placing.methods.span(one.chosen)
            if beside.overlaps(start, end):
                reason = f"{names}: {start:#x} is in the code that calls the tracer"
                raise UsageError(path, reason, "probe another address")
            if one.chosen.method.traps and beside.watches:
                why = f": {one.chosen.why}" if one.chosen.why else ""
                reason = f"{names}: it needs a trap, which a program with watches cannot have{why}"
                raise UsageError(path, reason, "probe another address, or watch by --pid")
            free.append(one)
    return free


def _free(
    placing: Placing, locations: Sequence[Location], asked: Asked, refused: Refused
) -> list[Location]:
    """Drop traps if a system call cannot be redirected, and probes on the code that the runtime
    itself redirects."""
    path, free = placing.image.path, []
    for location in locations:
        names = ", ".join(one.event for one in location.definitions)
        with refused.told(skips=skipping(location.definitions)):
            if location.chosen.method.traps and asked.unled:
                reason = (
                    f"{names}: it needs a trap, and the system call at {asked.unled[0]:#x} may "
                    f"set or block {placing.mover.signal}, and cannot be redirected"
                )
                raise UsageError(path, reason, "probe another address")
            start, end = placing.methods.span(location.chosen)
            for low, high in asked.led:
                if start < high and low < end:
                    reason = f"{names}: {low:#x} to {high:#x} are reserved for traps"
                    raise UsageError(path, reason, "probe another address")
            free.append(location)
    return free
