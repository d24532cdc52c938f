"""A plan with a tracer: the stub goes into the program, and the sites call it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import Arch, arch_of
from ftpatch.core.changes import Changes
from ftpatch.elf.headers import Section
from ftpatch.elf.properties import without_shadow_stack
from ftpatch.elf.sections import Headers, Tail
from ftpatch.elf.segments import header_field
from ftpatch.errors import UsageError
from ftpatch.ftrace.addr import Callee
from ftpatch.ftrace.plan import Plan, plan_enable
from ftpatch.ftrace.sites import Sites
from ftpatch.image import Image
from ftpatch.inject.debug_frame import relocated
from ftpatch.inject.dynamic_strings import replaced, strings
from ftpatch.inject.inject import Laid, lay
from ftpatch.inject.library_tables import Library, libraries_table, linker_place
from ftpatch.inject.runtime import TRACERS, configuration, tracer_of, user_functions
from ftpatch.inject.stub import Stub, read_stub

__all__ = ["Tracing", "for_debuggers", "plan_runtime", "plan_traced", "traceable"]

FRAMES = ".debug_frame"
LATE = ("mcount", "_mcount")
"""What is called when the function has a frame already (gcc -pg without -mfentry)."""


@dataclass(frozen=True)
class Tracing:
    """The options of a tracer: its name, entries of a ret_stack, bytes of a trace file, whether
    arguments and values are recorded; the shared libraries that are traced too, and strings of the
    program's dynamic table, by the place of the entry in it."""

    tracer: str
    depth: int
    size: int
    arguments: bool
    libraries: tuple[Library, ...] = ()
    strings: Mapping[int, bytes] = field(default_factory=dict)


def plan_traced(sites: Sites, mask: NDArray[np.bool_], tracing: Tracing) -> Plan:
    """The sites in ``mask``, bool[n], are to call a tracer that is laid into the program.

    Raises UsageError for what is no program, or has a tracer already; InputError or SiteRefused
    where there is no place for it.
    """
    image = sites.image
    if image.container != "executable":
        if image.is_kernel:
            hint = "use --tracer boot, or --to"
            raise UsageError(image.path, f"this tracer is for programs, not for {image.kind}", hint)
        hint = "give an executable, or use --to"
        raise UsageError(image.path, f"{image.kind} has no tracers yet", hint)
    mask = traceable(sites, mask, libraries=bool(tracing.libraries))
    laid = _laid(image, sites.arch, tracing, len(sites))
    plan = plan_enable(sites, mask, laid.callee)
    return replace(plan, changes=Changes.concat([plan.changes, laid.changes]), tail=laid.tail)


def plan_runtime(image: Image, tracing: Tracing) -> Plan:
    """A program without any site gets a tracer for the sake of its libraries. Raises InputError
    where there is no place for it."""
    arch = arch_of(image.elf.skeleton.machine, image.elf.skeleton.elf_class)
    if arch is None or image.container != "executable":
        raise UsageError(image.path, "no program of a known architecture", "give an executable")
    laid = _laid(image, arch, tracing, 0)
    code = np.empty((0, arch.width), np.uint8)
    return Plan(laid.changes, code, 0, 0, 0, 0, "", tail=laid.tail)


@dataclass(frozen=True)
class _Laid:
    """What is laid in: changes to headers, what comes behind the file, and what sites call."""

    changes: Changes
    tail: bytes
    callee: Callee


def _laid(image: Image, arch: Arch, tracing: Tracing, sites: int) -> _Laid:
    tracer, stub = tracer_of(tracing.tracer, arch.name, arguments=tracing.arguments)
    whole, own, apart = stub, None, 0
    if tracer.name not in TRACERS:
        own = read_stub(Path(tracing.tracer), own=False)
        whole, apart = stub.beside(own, arch.page)
    entry = header_field(image.elf, "e_entry")
    start = stub.address("ftrace_start")
    table = names = 0
    held, places = strings(tracing.strings)
    if tracing.libraries:
        whole, table = whole.with_data(libraries_table(tracing.libraries), arch.page)
    if places:
        whole, names = whole.with_data(held, arch.page)
    laid = lay(
        image,
        whole,
        page=arch.page,
        entry=start if tracer.records else None,
        fill=lambda shift: configuration(
            image,
            stub,
            tracer,
            shift=shift,
            depth=tracing.depth,
            size=tracing.size,
            entry=entry,
            sites=sites + sum(one.sites for one in tracing.libraries),
            arguments=tracing.arguments,
            user=user_functions(own, apart + shift) if own else (0, 0),
            libraries=(table + shift, linker_place(image)) if table else (0, 0),
        ),
    )
    name = "ftrace_regs_caller" if tracing.arguments else "ftrace_caller"
    changes, tail = for_debuggers(image, stub, laid)
    parts = [changes, replaced(image, places, names + laid.shift)] if places else [changes]
    if tracer.hooks:
        parts.append(without_shadow_stack(image.elf, arch.shadow_stack))
    callee = Callee((stub.address(name) or 0) + laid.shift, name)
    return _Laid(Changes.concat(parts), tail, callee)


def traceable(sites: Sites, mask: NDArray[np.bool_], *, libraries: bool) -> NDArray[np.bool_]:
    """Those of the sites in ``mask``, bool[n], whose calls a tracer can follow. Raises UsageError
    for an image that has a tracer already, or whose functions call too late; or that has no site,
    unless there are ``libraries``."""
    image = sites.image
    if any(block.start > block.length - len(block.cut) for block in sites.blocks):
        raise UsageError(image.path, "it has a tracer already", "undo that first: `ftpatch undo`")
    if not len(sites) and not libraries:
        raise UsageError(
            image.path,
            "no pad of its functions has room for a call",
            f"compile with -fpatchable-function-entry={sites.arch.pad_nops}",
        )
    if len(np.intersect1d(sites.addr, sites.targets.are(LATE))):
        raise UsageError(
            image.path,
            "its functions call mcount after their prologue: where they return to cannot be seen",
            "compile with -mfentry, or with -fpatchable-function-entry=5",
        )
    return mask & ~_chained(sites)


def _chained(sites: Sites) -> NDArray[np.bool_]:
    """Sites of nested functions that call __fentry__ with more than the return address on the
    stack, bool[n]: what a tracer would take for that is something else. They are left out."""
    chain = np.frombuffer(sites.arch.chain, np.uint8)
    if sites.abi.pad or not len(chain):
        return np.zeros(len(sites), bool)
    held, there = sites.image.elf.gather(sites.offset - len(chain), len(chain))
    return np.asarray(there & (held == chain).all(axis=1))


def for_debuggers(image: Image, stub: Stub, laid: Laid) -> tuple[Changes, bytes]:
    """The stub's .debug_frame as a section of the program, or behind its own, and what is laid in
    all; a program without section headers has no place for one."""
    names = _section_names(image)
    if not stub.frames or names is None:
        return laid.changes, laid.tail
    headers = Headers(image.elf, Tail(len(image.data)))
    headers.tail.data += laid.tail
    own = image.elf.section(FRAMES)
    before = headers.contents(own) if own else b""
    added = relocated(stub.frames, word=image.elf.word, shift=laid.shift, base=len(before))
    if own is not None:
        headers.move(own.index, before + added)
    else:
        held = headers.contents(names)
        headers.move(names.index, held + FRAMES.encode() + b"\0")
        headers.append(len(held), Section.SHT_PROGBITS, added)
    changes = Changes.concat([laid.changes, headers.changes()])
    return changes, bytes(headers.tail.data)


def _section_names(image: Image) -> Section | None:
    """The section with the names of sections; None where there is none, or it ends without a NUL
    byte."""
    index = header_field(image.elf, "e_shstrndx")
    if not 0 < index < len(image.elf.sections):
        return None
    names = image.elf.sections[index]
    end = names.offset + names.size
    if names.type != Section.SHT_STRTAB or not names.size or end > len(image.data):
        return None
    return names if not image.data[end - 1] else None
