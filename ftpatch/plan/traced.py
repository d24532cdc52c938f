"""A plan with a tracer: the stub goes into the program, and the sites call it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.changes import Changes
from ftpatch.errors import UsageError
from ftpatch.image import Image
from ftpatch.image.headers import Section
from ftpatch.inject import TRACERS, Laid, Stub, lay, read_stub, tracer_of
from ftpatch.inject.debug_frame import relocated
from ftpatch.inject.headers import header_field
from ftpatch.inject.properties import without_shadow_stack
from ftpatch.inject.tracers import configuration, user_functions
from ftpatch.plan import Plan, plan_enable
from ftpatch.plan.headers import Headers, Tail
from ftpatch.plan.target import Callee
from ftpatch.sites import Sites

__all__ = ["Tracing", "plan_traced"]

FRAMES = ".debug_frame"
LATE = ("mcount", "_mcount")
"""What is called when the function has a frame already (gcc -pg without -mfentry)."""


@dataclass(frozen=True)
class Tracing:
    """The options of a tracer: its name, entries of a ret_stack, bytes of a trace file, whether
    arguments and values are recorded."""

    tracer: str
    depth: int
    size: int
    arguments: bool


def plan_traced(sites: Sites, mask: NDArray[np.bool_], tracing: Tracing) -> Plan:
    """The sites in ``mask``, bool[n], are to call a tracer that is laid into the program.

    Raises UsageError for what is no program, or has a tracer already; InputError or SiteRefused
    where there is no place for it.
    """
    image = sites.image
    if image.container != "executable":
        raise UsageError(
            image.path, f"a {image.container} has no tracers yet", "give an executable, or use --to"
        )
    if any(block.start > block.length - len(block.cut) for block in sites.blocks):
        raise UsageError(image.path, "it has a tracer already", "undo that first: `ftpatch undo`")
    tracer, stub = tracer_of(tracing.tracer, sites.arch.name, arguments=tracing.arguments)
    if len(np.intersect1d(sites.addr, sites.targets.are(LATE))):
        raise UsageError(
            image.path,
            "its functions call mcount after their prologue: where they return to cannot be seen",
            "compile with -mfentry, or with -fpatchable-function-entry=5",
        )
    whole, own, apart = stub, None, 0
    if tracer.name not in TRACERS:
        own = read_stub(Path(tracing.tracer), own=False)
        whole, apart = stub.beside(own, sites.arch.page)
    entry = header_field(image, "e_entry")
    start = stub.address("ftrace_start")
    laid = lay(
        image,
        whole,
        page=sites.arch.page,
        entry=start if tracer.records else None,
        fill=lambda shift: configuration(
            image,
            stub,
            tracer,
            shift=shift,
            depth=tracing.depth,
            size=tracing.size,
            entry=entry,
            sites=len(sites),
            arguments=tracing.arguments,
            user=user_functions(own, apart + shift) if own else (0, 0),
        ),
    )
    mask = mask & ~_chained(sites)
    name = "ftrace_regs_caller" if tracing.arguments else "ftrace_caller"
    plan = plan_enable(sites, mask, Callee((stub.address(name) or 0) + laid.shift, name))
    changes, tail = _for_debuggers(image, stub, laid)
    parts = [plan.changes, changes]
    if tracer.hooks:
        parts.append(without_shadow_stack(image, sites.arch))
    return replace(plan, changes=Changes.concat(parts), tail=tail)


def _chained(sites: Sites) -> NDArray[np.bool_]:
    """Sites of nested functions that call __fentry__ with more than the return address on the
    stack, bool[n]: what a tracer would take for that is something else. They are left out."""
    chain = np.frombuffer(sites.arch.chain, np.uint8)
    if sites.abi.pad or not len(chain):
        return np.zeros(len(sites), bool)
    held, there = sites.image.elf.gather(sites.offset - len(chain), len(chain))
    return np.asarray(there & (held == chain).all(axis=1))


def _for_debuggers(image: Image, stub: Stub, laid: Laid) -> tuple[Changes, bytes]:
    """The stub's .debug_frame as a section of the program, or behind its own, and what is laid in
    all; a program without section headers has no place for one."""
    names = _section_names(image)
    if not stub.frames or names is None:
        return laid.changes, laid.tail
    headers = Headers(image, Tail(len(image.data)))
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
    index = header_field(image, "e_shstrndx")
    if not 0 < index < len(image.elf.sections):
        return None
    names = image.elf.sections[index]
    end = names.offset + names.size
    if names.type != Section.SHT_STRTAB or not names.size or end > len(image.data):
        return None
    return names if not image.data[end - 1] else None
