# SPDX-License-Identifier: MIT
"""Planning a tracer: the stub is injected into the program, and the sites call it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import Arch, State, arch_of
from ftpatch.core.changes import Changes
from ftpatch.elf.properties import without_shadow_stack
from ftpatch.elf.segments import header_field
from ftpatch.errors import SiteRefused, UsageError
from ftpatch.ftrace.addr import Callee
from ftpatch.ftrace.plan import Plan, plan_enable, plan_laid
from ftpatch.ftrace.sites import Sites
from ftpatch.image import Image
from ftpatch.image.injected import laid_in_at
from ftpatch.inject.debug_sections import for_debuggers
from ftpatch.inject.dynamic_strings import replaced, strings
from ftpatch.inject.inject import inject
from ftpatch.inject.library_calls import LibraryCalls
from ftpatch.inject.library_start import LibraryStart, require_ordinary
from ftpatch.inject.library_tables import Library, libraries_table, linker_place
from ftpatch.inject.module_stub import stub_in_module
from ftpatch.inject.runtime import (
    LIBRARY,
    TRACERS,
    USER,
    Keeping,
    Tracer,
    configuration,
    tracer_named,
    tracer_of,
    user_functions,
    user_stub,
)
from ftpatch.inject.stub import Stub
from ftpatch.names.plt import Plt

__all__ = ["Tracing", "plan_runtime", "plan_traced", "require_untraced", "traceable"]

LATE = ("mcount", "_mcount", "__gnu_mcount_nc")
"""Called when the function already has a frame (gcc -pg without -mfentry): where in that it keeps
its return address, only its code tells."""
FENTRY = "__fentry__"


@dataclass(frozen=True, kw_only=True)
class Tracing:
    """Options of a tracer: its name, entries of a ret_stack, bytes of a trace file, whether to
    record arguments and return values; the PLT entries and the shared libraries to trace as well,
    and strings of the program's dynamic table, by the entry's offset; how many sites ``more`` may
    come later; what is kept of events (``keeping``)."""

    tracer: str
    depth: int
    size: int
    arguments: bool
    calls: Plt | None = None
    libraries: tuple[Library, ...] = ()
    strings: Mapping[int, bytes] = field(default_factory=dict)
    more: int = 0
    keeping: Keeping = field(default_factory=Keeping)

    def __post_init__(self) -> None:
        """Raise UsageError for an unknown tracer, or one that cannot keep events so, before
        anything is asked about files."""
        self.keeping.require_fit(tracer_named(self.tracer))


def plan_traced(sites: Sites, mask: NDArray[np.bool_], tracing: Tracing) -> Plan:
    """Plan calls to a tracer, injected into the program, at the sites in ``mask``, bool[n]; a
    user's stub may be laid into a module as well.

    Raises UsageError for anything but a program or a library without a tracer; InputError or
    SiteRefused if there is no room.
    """
    image = sites.image
    if image.is_module and tracer_named(tracing.tracer) is USER:
        if sites.blocks:
            raise SiteRefused(image.path, "already patched", "run `ftpatch undo` first")
        return plan_laid(sites, mask, stub_in_module(sites, Path(tracing.tracer)))
    if image.is_library:
        require_ordinary(image, "use `ftpatch trace --libcalls PROG` for calls of it")
    elif not image.is_program:
        if image.is_module:
            hint = "use --tracer boot, a stub of your own, or --to"
            raise UsageError(image.path, "this tracer works on programs, not on a module", hint)
        if image.is_kernel:
            hint = "use --tracer boot, or --to"
            raise UsageError(
                image.path, f"this tracer works on programs, not on {image.kind}", hint
            )
        hint = "use an executable, a shared object, or --to"
        raise UsageError(image.path, f"{image.kind} has no tracers yet", hint)
    mask = traceable(
        sites, mask, libraries=bool(tracing.libraries or tracing.calls or tracing.more)
    )
    laid = _inject(image, sites.arch, tracing, len(sites))
    plan = plan_enable(sites, mask, laid.callee)
    changes = Changes.concat([plan.changes, laid.changes])
    return replace(plan, changes=changes, tail=laid.tail, calls=len(tracing.calls or ()))


def plan_runtime(image: Image, tracing: Tracing) -> Plan:
    """Plan a tracer for a program without any site, for the sake of its libraries or of its calls
    to them. Raises InputError if there is no room."""
    arch = arch_of(image.elf.skeleton.machine, image.elf.skeleton.elf_class)
    if arch is None or not image.is_program:
        raise UsageError(
            image.path, "not a program of a supported architecture", "use an executable"
        )
    require_untraced(image)
    laid = _inject(image, arch, tracing, 0)
    code = np.empty((0, arch.width), np.uint8)
    return Plan(
        changes=laid.changes,
        code=code,
        selected=0,
        changed=0,
        dropped=0,
        restored=0,
        action="",
        tail=laid.tail,
        calls=len(tracing.calls or ()),
    )


def require_untraced(image: Image) -> None:
    """Raise UsageError for a program that a tracer was injected into, or probes."""
    if laid_in_at(image) is not None:
        raise UsageError(image.path, "already has a tracer", "run `ftpatch undo` first")


@dataclass(frozen=True, kw_only=True)
class _Injected:
    """An injected tracer: the changes, the bytes to append to the file, and the callee."""

    changes: Changes
    tail: bytes
    callee: Callee


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """A tracer's ``stub`` and the ``whole`` to inject: with a user's stub, which is ``apart`` bytes
    from its link address, the table of libraries (linked address, 0: none), and the strings (linked
    address) for ``places`` of the dynamic table; ``calls``: thunks of PLT entries."""

    tracer: Tracer
    stub: Stub
    whole: Stub
    user: Stub | None
    apart: int
    table: int
    strings: int
    places: Mapping[int, int]
    calls: LibraryCalls | None


def _inject(image: Image, arch: Arch, tracing: Tracing, sites: int) -> _Injected:
    """Inject the tracer for a program with ``sites`` sites."""
    parts = _parts(image, arch, tracing)
    tracer, stub = parts.tracer, parts.stub
    entry = header_field(image.elf, "e_entry")
    start = stub.address("ftrace_start") if tracer.records else None
    own_start = None
    whole = parts.whole
    if image.is_library:
        start = None
        if tracer.records:
            own_start = LibraryStart(image, stub, whole, page=arch.page)
            whole, entry = own_start.whole, own_start.init

    def fill(shift: int) -> dict[int, bytes]:
        user, table = parts.user, parts.table
        own = user_functions(user, parts.apart + shift) if user else (0, 0)
        filled = parts.calls.fill(shift) if parts.calls else {}
        filled |= own_start.fill(shift) if own_start else {}
        return filled | configuration(
            image,
            stub,
            tracer,
            shift=shift,
            depth=tracing.depth,
            size=tracing.size,
            entry=entry,
            sites=sites
            + len(tracing.calls or ())
            + sum(one.sites for one in tracing.libraries)
            + tracing.more,
            arguments=tracing.arguments,
            user=own,
            libraries=(table + shift, linker_place(image)) if table else (0, 0),
            keeping=tracing.keeping,
            flags=LIBRARY if image.is_library else 0,
            ended=own_start.ended if own_start else 0,
        )

    dynamic = own_start.moved if own_start else None
    laid = inject(image, whole, page=arch.page, entry=start, fill=fill, dynamic=dynamic)
    changes, tail = for_debuggers(image, stub, laid)
    all_changes = [changes]
    if parts.places:
        all_changes.append(replaced(image, parts.places, parts.strings + laid.shift))
    if own_start:
        all_changes.append(own_start.changes(laid.shift))
    if parts.calls:
        all_changes.append(parts.calls.changes(laid.shift))
    if tracer.hooks:
        all_changes.append(without_shadow_stack(image.elf, arch.shadow_stack))
    name = "ftrace_regs_caller" if tracing.arguments else "ftrace_caller"
    callee = Callee((stub.address(name) or 0) + laid.shift, name)
    return _Injected(changes=Changes.concat(all_changes), tail=tail, callee=callee)


def _parts(image: Image, arch: Arch, tracing: Tracing) -> _Parts:
    """Everything to inject, in one stub."""
    tracer, stub = tracer_of(tracing.tracer, arch.name, arguments=tracing.arguments)
    whole, user, apart = stub, None, 0
    if tracer.name not in TRACERS:
        stub, user = user_stub(Path(tracing.tracer), arch.name)
        whole, apart = stub.beside(user, arch.page)
        whole = whole.knowing([(at + apart, fde + apart) for at, fde in user.unwind_rows()[1]])
    table = names = 0
    if tracing.libraries:
        whole, table = whole.with_data(libraries_table(tracing.libraries, arch.order), arch.page)
    held, places = strings(tracing.strings)
    if places:
        whole, names = whole.with_data(held, arch.page)
    calls = None
    if tracing.calls:
        calls = LibraryCalls(
            image, arch.name, tracing.calls, stub=stub, whole=whole, page=arch.page
        )
        whole = calls.whole
    return _Parts(
        tracer=tracer,
        stub=stub,
        whole=whole,
        user=user,
        apart=apart,
        table=table,
        strings=names,
        places=places,
        calls=calls,
    )


def traceable(sites: Sites, mask: NDArray[np.bool_], *, libraries: bool) -> NDArray[np.bool_]:
    """Select the sites in ``mask``, bool[n], whose calls a tracer can follow. Raises UsageError for
    an image that has a tracer already, or whose functions call too late; or that has no sites,
    unless there are ``libraries``, or calls to them."""
    image = sites.image
    if any(block.start > block.length - len(block.cut) for block in sites.blocks):
        raise UsageError(image.path, "already has a tracer", "run `ftpatch undo` first")
    if not len(sites) and not libraries:
        raise UsageError(
            image.path,
            "no pad is large enough for a call",
            f"compile with -fpatchable-function-entry={sites.arch.pad_nops}",
        )
    if _calls_late(sites):
        early = "-mfentry, or with " if FENTRY in sites.arch.mcount_names else ""
        raise UsageError(
            image.path,
            "its functions call mcount after the prologue: the return address cannot be found",
            f"compile with {early}-fpatchable-function-entry={sites.arch.pad_nops}",
        )
    return mask & ~_chained(sites)


def _calls_late(sites: Sites) -> bool:
    """Test whether they are calls of -pg: by what they call, or, where none reads as a pad or a
    call of another form, by the image's symbols."""
    if len(np.intersect1d(sites.addr, sites.targets.are(LATE))):
        return True
    tables = (sites.image.symbols, sites.image.dynamic_symbols)
    names = any(len(table.rows_named(name, defined=False)) for table in tables for name in LATE)
    return names and len(sites) > 0 and bool((sites.state == State.UNEXPECTED).all())


def _chained(sites: Sites) -> NDArray[np.bool_]:
    """Sites of nested functions that call __fentry__ with more than the return address on the
    stack, bool[n]: a tracer would mistake that for the caller's address; and of those that do not
    call it, but are recorded. They are left out."""
    chain = np.frombuffer(sites.arch.chain, np.uint8)
    if sites.arch.records_nested and not sites.abi.pad:
        return np.asarray(sites.state == State.UNEXPECTED)
    if sites.abi.pad or not len(chain):
        return np.zeros(len(sites), bool)
    held, there = sites.image.elf.gather(sites.offset - len(chain), len(chain))
    return np.asarray(there & (held == chain).all(axis=1))
