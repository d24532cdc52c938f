# SPDX-License-Identifier: MIT
"""Planning a tracer for a running process: what is mapped in it, and what its sites become.

    program    | sites ...                  | area: runtime and stub |
    library    | sites ...  | area: its stub, which calls the runtime |

The same sites, plan and verifier as for files: an image has the code that stands in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import Arch, State, arch_of
from ftpatch.core.changes import Kind
from ftpatch.errors import InputError, NoTable, SiteRefused, UsageError
from ftpatch.ftrace.addr import Callee
from ftpatch.ftrace.filter import Selection
from ftpatch.ftrace.plan import plan_enable
from ftpatch.ftrace.site_code import written
from ftpatch.ftrace.sites import read_sites
from ftpatch.image.injected import image_id
from ftpatch.image.language import is_go
from ftpatch.inject.library_tables import Library, fitting, libraries_table, ranges
from ftpatch.inject.lookups import (
    answers,
    asked_place,
    exported,
    led_slots,
    looked_up,
    lookups,
)
from ftpatch.inject.runtime import (
    TRACERS,
    configuration,
    library_stub,
    tracer_named,
    tracer_of,
)
from ftpatch.inject.stub import Stub
from ftpatch.layout import offset_of
from ftpatch.process.areas import Area, filled
from ftpatch.process.breakpoints import BREAKPOINT, END_IT, has_breakpoint
from ftpatch.process.bring_in import CODE, STACK
from ftpatch.process.loaded import Loaded
from ftpatch.process.maps import Mapping
from ftpatch.process.memory_target import in_memory
from ftpatch.process.planned import Calls, Planned, joined
from ftpatch.process.process import Process
from ftpatch.process.room import Room
from ftpatch.process.started import linker_span, started
from ftpatch.process.throwing import CANNOT_PASS
from ftpatch.process.unwinders import Unwinders, find_unwinders
from ftpatch.tracer.choice import Choice, require_tracer
from ftpatch.tracer.plan import Tracing, traceable
from ftpatch.update.refused_sites import refused_sites
from ftpatch.write.verify import verify_image

__all__ = ["THROWS", "Chosen", "calls_of", "choose", "plan_attached"]

HOOK: Final = "ftpatch_library"
LISTED: Final = "see `ftpatch status -v --pid`"
CALLEE: Final = "ftrace_caller"
"""Name of what sites call, for messages."""


THROWS: Final = (
    CANNOT_PASS,
    "use --tracer function, or trace a copy of the file",
)
"""Reason and hint for what cannot be traced."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """An image of a process, and the sites to trace in it, bool[n]."""

    loaded: Loaded
    mask: NDArray[np.bool_]


def choose(loaded: Sequence[Loaded], selection: Selection, globs: Sequence[str]) -> list[Chosen]:
    """Choose sites of a process's program, and of its libraries that match ``globs``. Raises
    UsageError for a filter or a glob that matches nothing, NoTable where there are no sites."""
    program = loaded[0]
    choice, out = Choice(selection), []
    matched = _matching(program, loaded[1:], globs)
    for one in [program, *matched]:
        if one.sites_of_file.table_name:
            sites = one.sites
            mask = traceable(sites, choice.of(sites), libraries=True)
            out.append(Chosen(loaded=one, mask=mask))
    pid = program.process.pid
    if not out:
        try:
            read_sites(program.file)
        except NoTable as error:
            hint = f"use `ftpatch probe --pid {pid}`, which needs none, or {error.hint}"
            raise NoTable(program.path, error.reason, hint) from None
    if matched and not any(len(one.mask) for one in out if one.loaded is not program):
        names = ", ".join(one.path.name for one in matched)
        raise UsageError(program.path, f"no library to trace: {names} without call sites", LISTED)
    for text in sorted(choice.missing or ()):
        others = [one for one in loaded[1:] if one not in matched]
        if (library := _having(others, text, regex=selection.regex)) is not None:
            reason = f"filter {text!r} matches no site of it, but of {library.path}"
            raise UsageError(program.path, reason, f"add --lib {library.path.name!r}")
    choice.require(program.path, f"see `ftpatch list --pid {pid}`")
    return [one for one in out if one.mask.any()]


def _having(libraries: Sequence[Loaded], text: str, *, regex: bool) -> Loaded | None:
    """The first library with a site that a filter matches."""
    for one in libraries:
        if one.sites_of_file.table_name:
            missing = set[str]()
            one.select(Selection([text], [], regex), missing)
            if not missing:
                return one
    return None


def _matching(program: Loaded, libraries: Sequence[Loaded], globs: Sequence[str]) -> list[Loaded]:
    """Libraries whose name matches any glob. Raises UsageError for one that matches none."""
    for glob in globs:
        if not any(fnmatchcase(one.path.name, glob) for one in libraries):
            raise UsageError(
                program.path,
                f"--lib {glob!r} matches no library that it has loaded",
                f"it has {', '.join(sorted(one.path.name for one in libraries))}",
            )
    return [one for one in libraries if any(fnmatchcase(one.path.name, g) for g in globs)]


def plan_attached(
    process: Process,
    loaded: Sequence[Loaded],
    chosen: Sequence[Chosen],
    mappings: Sequence[Mapping],
    tracing: Tracing,
    environment: dict[str, str],
) -> Planned:
    """Plan a tracer for the chosen sites; ``loaded`` begins with the program. ``environment``: as
    in a program that starts with its runtime. Raises UsageError, InputError and SiteRefused."""
    program = loaded[0]
    arch = _arch(program)
    if tracer_named(tracing.tracer).name not in TRACERS:
        raise UsageError(None, "a tracer of your own works on files only", "use `ftpatch enable`")
    tracer, stub = tracer_of(tracing.tracer, arch.name, arguments=tracing.arguments)
    unwinders = find_unwinders(loaded if tracer.hooks and answers(stub) else ())
    _require_slots(unwinders, chosen if tracer.hooks else ())
    libraries = [one for one in chosen if one.loaded is not program]
    if libraries:
        require_tracer(tracing.tracer, "--lib")
    name = "ftrace_regs_caller" if tracing.arguments else "ftrace_caller"
    room = Room(process, mappings, arch)
    hooked = library_stub(arch.name, arguments=tracing.arguments) if libraries else stub
    beside = [_Placed(one, hooked, room.place(one.loaded.span, hooked.parts)) for one in libraries]
    whole, table = stub, 0
    if beside:
        whole, table = stub.with_data(
            libraries_table(_told(program, beside), arch.order), arch.page
        )
    main = room.place(program.span, whole.parts, before=CODE, behind=STACK)
    sites = sum(int(one.mask.sum()) for one in chosen)
    shift = main.shift - program.bias
    values = configuration(
        program.file,
        stub,
        tracer,
        shift=shift,
        depth=tracing.depth,
        size=tracing.size,
        entry=0,
        sites=sites + tracing.more,
        arguments=tracing.arguments,
        libraries=((table + shift) % (1 << 64), 0) if table else (0, 0),
        attached=True,
        keeping=tracing.keeping,
    )
    if unwinders.functions:
        tables = [looked_up(stub, main), *(looked_up(hooked, one.area) for one in beside)]
        values |= lookups(stub, unwinders.functions, tables)
    start, block = started(process, main, _address(stub, "trace_start"), environment)
    areas = [replace(main, contents=(*filled(main, values), block))]
    for one in beside:
        known = {
            _address(hooked, HOOK) + offset_of("library_hook", "image_id", arch.name): image_id(
                one.chosen.loaded.file
            )
        }
        areas.append(replace(one.area, contents=filled(one.area, known)))
    own = [_Placed(one, stub, main) for one in chosen if one.loaded is program]
    callees = [(one.chosen, one.callee(name)) for one in [*own, *beside]]
    returns = stub.address("return_to_handler")
    return Planned(
        arch=arch.name,
        tracer=tracing.tracer,
        records=tracer.records,
        hooks=tracer.hooks,
        areas=tuple(areas),
        start=start,
        calls=joined([calls_of(one, callee) for one, callee in callees]),
        callees=tuple((str(one.loaded.path), one.loaded.bias, to) for one, to in callees),
        runtime=_address(stub, "process") + main.shift,
        returns=0 if returns is None else returns + main.shift,
        otherwise="use --tracer function",
        slots=led_slots(unwinders, stub, main),
        asked=asked_place(stub, arch.name) + main.shift if unwinders.functions else 0,
        linker=linker_span(process, loaded) if unwinders.unbound else None,
        exports=exported(unwinders, stub, main),
        config=_address(stub, "ftpatch_config") + main.shift,
    )


def _require_slots(unwinders: Unwinders, chosen: Sequence[Chosen]) -> None:
    """Raise UsageError for an image that may throw, or let pass, exceptions for which there is no
    slot: no unwinder would find return_to_handler in memory that belongs to no image, and the
    process would end; so would Go's runtime (traceback.go: "unexpected return pc")."""
    images = [each.loaded for each in chosen]
    for one in images:
        if is_go(one.file):
            reason = "a Go program, whose runtime reads the return addresses that would be replaced"
            raise UsageError(one.path, reason, "use --tracer function")
    for one in [*unwinders.missed, *images]:
        if unwinders.misses(one):
            raise UsageError(one.path, *THROWS)


@dataclass(frozen=True)
class _Placed:
    """Chosen sites, and the ``stub`` that they call, in its ``area``."""

    chosen: Chosen
    stub: Stub
    area: Area

    def callee(self, name: str) -> int:
        """What the sites call (address in memory)."""
        return _address(self.stub, name) + self.area.shift


def calls_of(one: Chosen, callee: int) -> Calls:
    """The Changes to an image's code in memory that let the chosen sites call an address. Raises
    SiteRefused where the old code is not what it must be."""
    sites = one.loaded.sites
    plan = plan_enable(sites, one.mask, Callee((callee - one.loaded.bias) % (1 << 64), CALLEE))
    code = plan.changes.take(plan.changes.kind == Kind.CODE)
    if len(code) != plan.changed:
        raise InputError(sites.image.path, "its sites cannot be changed in memory alone")
    known = written(sites.image, sites.arch)
    verdict = verify_image(sites.image, code, sites.arch.align, known)
    if not verdict.passed:
        bug, reason = refused_sites(sites, verdict, plan.action)[0]
        if has_breakpoint(one.loaded, bug.ip):
            raise SiteRefused(sites.image.path, f"{bug.place}: {BREAKPOINT}", END_IT)
        raise SiteRefused(sites.image.path, f"{bug.place}: {reason}")
    nop = np.isin(code.owner, sites.ip[sites.state == State.NOP])
    return Calls(in_memory(code, one.loaded), nop)


def _arch(program: Loaded) -> Arch:
    skeleton = program.file.elf.skeleton
    arch = arch_of(skeleton.machine, skeleton.elf_class)
    if arch is None:
        raise UsageError(program.path, "not a program of a supported architecture")
    return arch


def _address(stub: Stub, name: str) -> int:
    """The linked address of a symbol. Raises InputError for a stub without it."""
    found = stub.address(name)
    if found is None:
        raise InputError(stub.path, f"the stub has no {name}")
    return found


def _told(program: Loaded, libraries: Sequence[_Placed]) -> list[Library]:
    """What the runtime knows of each library. Raises UsageError and InputError for too many."""
    paths = [bytes(one.chosen.loaded.path) for one in libraries]
    if not all(fitting(paths)):
        raise UsageError(program.path, "too many libraries for one trace", "trace fewer")
    spans = ranges(program.file, [one.chosen.loaded.file for one in libraries])
    out = []
    for one, path, (start, size, base) in zip(libraries, paths, spans, strict=True):
        loaded = one.chosen.loaded
        out.append(
            Library(
                path=path,
                image_id=image_id(loaded.file),
                start=start,
                size=size,
                base=base,
                dynamic=0,
                place=_address(one.stub, HOOK) + one.area.shift,
                sites=int(one.chosen.mask.sum()),
                bias=loaded.bias,
            )
        )
    return out
