# SPDX-License-Identifier: MIT
"""Planning probes for a running process: an area near each probed image, with its detours.

program   | e9 rel32 ...   | area: runtime, detours, tables |
library   | e9 rel32 ...   | area: detours, which call the runtime from afar |
any       | e9 rel32 ...   | area: its system calls about signals, if there are traps |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from ftpatch.core.byte_order import NATIVE
from ftpatch.core.changes import Changes
from ftpatch.elf.headers import Segment
from ftpatch.errors import InputError, UsageError
from ftpatch.inject.library_tables import linker_place
from ftpatch.inject.lookups import (
    asked_place,
    exported,
    led_slots,
    looked_up,
    lookups,
)
from ftpatch.inject.runtime import Keeping, configuration, probes_stub
from ftpatch.inject.stub import Part, Stub
from ftpatch.io.cleanup import CLEANUP
from ftpatch.probe import definition_text
from ftpatch.probe.led_calls import NearCalls
from ftpatch.probe.near_detours import NearDetours
from ftpatch.probe.tables import Place, Probe, Tables
from ftpatch.probe.targets import COPY, Target
from ftpatch.process.areas import Area, filled
from ftpatch.process.attached import Live, bring
from ftpatch.process.bring_in import CODE, STACK
from ftpatch.process.loaded import Loaded
from ftpatch.process.maps import Mapping
from ftpatch.process.planned import Calls, Planned, Signals
from ftpatch.process.process import Process
from ftpatch.process.room import Room
from ftpatch.process.started import linker_span, started
from ftpatch.process.throwing import CANNOT_PASS
from ftpatch.process.unwinders import Unwinders, find_unwinders

__all__ = ["Limits", "lay_into"]

TOP: Final = 1 << 64
OTHERWISE: Final = f"use p probes, or {COPY}"
"""The hint where exceptions find no way."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """``depth``: entries of a ret_stack; ``size``: size of a trace file in bytes; ``keeping``: what
    is kept of events."""

    depth: int
    size: int
    keeping: Keeping = field(default_factory=Keeping)


def lay_into(
    process: Process,
    loaded: Sequence[Loaded],
    targets: Sequence[Target],
    limits: Limits,
    environment: dict[str, str],
    trace: str,
    *,
    asked: Callable[[], bool] = lambda: CLEANUP.is_asked,
) -> Live:
    """Lay the probes of all targets into a process, as ``bring`` does; ``loaded`` begins with the
    program."""

    def plan(mappings: Sequence[Mapping]) -> Planned:
        return _plan(process, loaded, targets, mappings, limits, environment)

    return bring(process, plan, loaded, trace, asked=asked)


def _plan(
    process: Process,
    loaded: Sequence[Loaded],
    targets: Sequence[Target],
    mappings: Sequence[Mapping],
    limits: Limits,
    environment: dict[str, str],
) -> Planned:
    """Plan the probes of all targets. ``environment``: as in a program that starts with its
    runtime. Raises UsageError and InputError."""
    arch, program = targets[0].arch, loaded[0]
    tracer, stub = probes_stub(arch.name)
    unwinders = _unwinders(loaded, targets)
    callers = _address(stub, "ftrace_caller"), _address(stub, "ftrace_regs_caller")
    # By address, in which the runtime looks for traps.
    targets = sorted(targets, key=lambda one: (one.loaded.address - program.bias) % TOP)
    whole, own, others, number = stub, dict[int, NearDetours](), list[NearDetours](), 0
    for target in targets:
        is_far = target.loaded is not program
        detours = NearDetours(target, number, is_far=is_far)
        number += len(target.found)
        if is_far:
            others.append(detours)
        else:
            whole, at = whole.with_code(bytes(detours.size), arch.page)
            own[at] = detours
    size = len(_tables(targets, program, [0] * number).pack(0))
    whole, table = whole.with_data(bytes(size), arch.page)
    room = Room(process, mappings, arch)
    main = room.place(program.span, whole.parts, before=CODE, behind=STACK)
    shift = main.shift - program.bias
    values = configuration(
        program.file,
        stub,
        tracer,
        shift=shift,
        depth=limits.depth,
        size=limits.size,
        entry=0,
        sites=0,
        arguments=False,
        probes=(table + shift) % TOP,
        libraries=(0, _linker(program)),
        attached=True,
        keeping=limits.keeping,
    )
    there = callers[0] + main.shift, callers[1] + main.shift
    if unwinders.functions:
        values |= lookups(stub, unwinders.functions, [looked_up(stub, main)])
    areas, changes, places = list[Area](), list[Changes](), dict[int, int]()
    for at, detours in own.items():
        made = detours.make(at + main.shift, there)
        values[at] = made.code
        changes.append(made.changes)
        places |= detours.places(at + main.shift)
    for detours in others:
        part = Part(0, np.zeros(detours.size, np.uint8), detours.size, Segment.PF_R | Segment.PF_X)
        area = room.place(detours.target.loaded.span, [part])
        made = detours.make(area.shift, there)
        areas.append(replace(area, contents=((area.shift, made.code),)))
        changes.append(made.changes)
        places |= detours.places(area.shift)
    ordered = [(places[row] - program.bias) % TOP for row in range(number)]
    values[table] = _tables(targets, program, ordered).pack((table + shift) % TOP)
    signals, led = _signals(targets, room, stub, main.shift)
    areas += led
    start, block = started(process, main, _address(stub, "trace_start"), environment)
    jumps = Changes.concat(changes)
    return Planned(
        arch=arch.name,
        tracer=tracer.name,
        records=tracer.records,
        hooks=True,  # a call that was moved leaves a shadow stack without an entry, too
        areas=(replace(main, contents=(*filled(main, values), block)), *areas),
        start=start,
        calls=Calls(jumps, np.zeros(len(jumps), bool)),
        runtime=_address(stub, "process") + main.shift,
        returns=_address(stub, "return_to_handler") + main.shift,
        otherwise=COPY,
        probes=tuple(
            (target.loaded.above(one.location.chosen.address), definition_text(definition))
            for target in targets
            for one in target.found
            for definition in one.location.definitions
        ),
        signals=signals,
        slots=led_slots(unwinders, stub, main),
        asked=asked_place(stub, arch.name) + main.shift if unwinders.functions else 0,
        linker=linker_span(process, loaded) if unwinders.unbound else None,
        exports=exported(unwinders, stub, main),
    )


def _unwinders(loaded: Sequence[Loaded], targets: Sequence[Target]) -> Unwinders:
    """Find the unwinders that have to get past calls whose returns are probed. An exception may
    pass them in any image, thrown by a function that they call back. Raises UsageError where one
    would find no way."""
    returning = [one.loaded for one in targets if one.returns]
    unwinders = find_unwinders(loaded if returning else ())
    for one in [*unwinders.missed, *returning]:
        if unwinders.misses(one):
            raise UsageError(one.path, CANNOT_PASS, OTHERWISE)
    return unwinders


def _signals(
    targets: Sequence[Target], room: Room, stub: Stub, shift: int
) -> tuple[Signals | None, list[Area]]:
    """Plan what traps need, if there are any: areas for system calls of all images that have some,
    which are led to the runtime, ``shift`` bytes above its link address."""
    if not any(target.traps for target in targets):
        return None, []
    state, take, release, asked = (
        _address(stub, name) + shift
        for name in ("ftpatch_signals", "traps_taken", "signal_given_back", "ftrace_asked")
    )
    areas, changes = list[Area](), list[Changes]()
    gates, spans = dict[int, int](), list[tuple[int, int]]()
    for loaded, found in targets[0].asked:
        if not found.led:
            continue
        calls = NearCalls(loaded, targets[0].arch, found.led)
        part = Part(0, np.zeros(calls.size, np.uint8), calls.size, Segment.PF_R | Segment.PF_X)
        area = room.place(loaded.span, [part])
        made = calls.make(area.shift, asked)
        areas.append(replace(area, contents=((area.shift, made.code),)))
        changes.append(made.changes)
        gates |= made.gates
        spans += made.spans
    signals = Signals(
        state=state,
        take=take,
        release=release,
        changes=Changes.concat(changes),
        gates=gates,
        spans=tuple(spans),
    )
    return signals, areas


def _tables(targets: Sequence[Target], program: Loaded, detours: Sequence[int]) -> Tables:
    """Build the runtime's tables. Its link addresses are the program's: a library's are as far from
    those as the library is in memory, and so are all ``detours``."""
    places, probes = list[Place](), list[Probe]()
    for target in targets:
        above = target.loaded.bias - program.bias
        for one in target.found:
            address = (one.location.chosen.address + above) % TOP
            count = len(one.location.definitions)
            traps, detour = one.location.chosen.method.traps, detours[len(places)]
            places.append(Place(address=address, detour=detour, probes=count, trap=traps))
            probes += one.probes(above=above)
    return Tables(NATIVE, places, probes)


def _linker(program: Loaded) -> int:
    """Link address of the dynamic linker's list of libraries, by which callers are named; 0 for
    none."""
    if program.file.elf.segment(Segment.PT_INTERP) is None:
        return 0
    try:
        return linker_place(program.file)
    except InputError:
        return 0


def _address(stub: Stub, name: str) -> int:
    """The linked address of a symbol. Raises InputError for a stub without it."""
    found = stub.address(name)
    if found is None:
        raise InputError(stub.path, f"the stub has no {name}")
    return found
