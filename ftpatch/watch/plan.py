# SPDX-License-Identifier: MIT
"""Planning watches: the runtime is injected, with a table of what to watch.

The table has an entry for every watchpoint of the processor. So later requests only change bytes in
it, and `undo` reverts one command after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from ftpatch.arch import Arch, arch_of
from ftpatch.core.changes import NO_OWNER, Changes, Kind
from ftpatch.elf.headers import Segment
from ftpatch.elf.segments import header_field
from ftpatch.errors import InputError, UsageError
from ftpatch.ftrace.plan import Plan
from ftpatch.image import Image
from ftpatch.image.injected import laid_in_id
from ftpatch.image.language import is_go
from ftpatch.inject.debug_sections import for_debuggers
from ftpatch.inject.hook_table import find_hooks
from ftpatch.inject.inject import inject
from ftpatch.inject.library_tables import linker_place
from ftpatch.inject.runtime import configuration, watch_stub
from ftpatch.watch import Request, Watch, apply_requests, readable, watch_line
from ftpatch.watch.read_back import InjectedWatches, injected_watches
from ftpatch.watch.table import SLOTS, TABLE_SIZE, pack_watches, unpack_watches
from ftpatch.watch.variables import Variables

__all__ = ["Watched", "part_notes", "plan_watched", "read_watches", "watched_lines"]

SIZE = 64 << 20
"""Default size of a trace file."""
DEPTH = 8
"""Entries of a ret_stack: no returns are hooked."""


@dataclass(frozen=True, kw_only=True)
class Watched:
    """The outcome of requests: the plan, the resulting watches, and notes on them."""

    plan: Plan
    watches: tuple[Watch, ...]
    notes: tuple[str, ...]


def read_watches(image: Image) -> tuple[Watch, ...]:
    """Read a program's watches. Raises UsageError if it has none, InputError for a corrupt
    table."""
    laid = _laid_in(image)
    if laid is None:
        hint = "specify a watch, such as counter:rw-"
        raise UsageError(image.path, "no watches in this program", hint)
    return _watches(image, laid)


def watched_lines(image: Image) -> list[str]:
    """Read the watches as requests; none for a file without them. Raises InputError."""
    laid = injected_watches(image) if image.is_program else None
    return [watch_line(readable(one)) for one in (_watches(image, laid) if laid else ())]


def plan_watched(image: Image, requests: Sequence[Request], *, size: int | None) -> Watched:
    """Plan all requests, or none. ``size``: bytes of a trace file, None: unchanged, or the default.

    Raises UsageError for what cannot be watched, or a program that has a tracer or probes already;
    InputError if there is no room, or for an architecture without watches.
    """
    arch = arch_of(image.elf.skeleton.machine, image.elf.skeleton.elf_class)
    _check(image, arch)
    assert arch is not None
    laid = _laid_in(image)
    before = () if laid is None else _watches(image, laid)
    for one in requests:
        if one.library:
            reason = f"{one.place}: libraries are watched in running processes only"
            raise UsageError(image.path, reason, "use --pid")
    variables = Variables(image)
    spelled = [variables.asked(one) for one in requests]
    try:
        watches, notes = apply_requests(
            before, spelled, slots=SLOTS, resolve=variables.resolve, read_only=False
        )
    except UsageError as error:
        raise UsageError(error.path or image.path, error.reason, error.hint) from None
    if not watches and not before:
        raise UsageError(image.path, "*:---: no such watch to clear", "nothing is watched")
    for watch in watches:
        if watch in before:
            continue
        line = watch_line(readable(watch))
        if not variables.has(watch.address, watch.length):
            raise UsageError(
                image.path, f"{line}: it ends beyond the address space", "watch fewer bytes"
            )
        if watch.type == "-w-" and variables.never_written(watch.address):
            notes.append(f"{line}: the variable is constant, the program cannot write it")
    notes += _together(watches)
    if laid is None:
        plan = _first(image, arch, watches, SIZE if size is None else size)
    else:
        plan = _later(image, laid, watches, size)
    return Watched(plan=plan, watches=watches, notes=tuple(notes))


def part_notes(image: Image, watches: Sequence[Watch]) -> Iterator[str]:
    """Note each watch that covers only part of a symbol, or more than it, one clause each."""
    variables = Variables(image)
    for watch in watches:
        size = variables.size(watch)
        if size and size != watch.length:
            from_ = f" from byte {watch.offset} on" if watch.offset else ""
            clause = f"watching {watch.length} of {size} bytes{from_}"
            if watch.offset + watch.length > size:
                clause = f"watching {watch.length} bytes, but the variable has {size}"
            yield f"{watch_line(readable(watch))}: {clause}"


def _check(image: Image, arch: Arch | None) -> None:
    """Raise for what cannot be watched, whatever the requests are."""
    if not image.is_program or arch is None:
        reason = f"not a program ({image.container.name})"
        raise UsageError(image.path, reason, "variables of executables can be watched")
    if is_go(image):
        reason = "a Go program, whose runtime treats SIGTRAP as a crash"
        raise UsageError(image.path, reason, "use a debugger")


def _together(watches: Sequence[Watch]) -> Iterator[str]:
    """Name the watches that one instruction may hit at once: the kernel keeps only one pending
    SIGTRAP per thread (``legacy_queue`` in kernel/signal.c)."""
    for one, other in combinations(sorted(watches, key=lambda watch: watch.address), 2):
        if one.symbol == other.symbol or one.address + one.length > other.address:
            clause = "an instruction that accesses both is reported once"
            lines = [watch_line(readable(watch)) for watch in (one, other)]
            yield f"{' and '.join(lines)}: {clause}"


def _laid_in(image: Image) -> InjectedWatches | None:
    laid = injected_watches(image)
    if laid is None and laid_in_id(image) is not None:
        raise UsageError(image.path, "already has a tracer or probes", "run `ftpatch undo` first")
    return laid


def _watches(image: Image, laid: InjectedWatches) -> tuple[Watch, ...]:
    raw = image.elf.contents(laid.table, TABLE_SIZE, "table of watches").tobytes()
    try:
        return tuple(told.watch for told in unpack_watches(raw) if told is not None)
    except UsageError as error:
        raise InputError(image.path, f"its table of watches is corrupt: {error}") from None


def _first(image: Image, arch: Arch, watches: Sequence[Watch], size: int) -> Plan:
    """Plan the first watches of a program."""
    linker = linker_place(image) if image.elf.segment(Segment.PT_INTERP) is not None else 0
    tracer, stub = watch_stub(image, arch.name)
    whole, table_at = stub.with_data(pack_watches(watches), arch.page)
    hooks = find_hooks(image, arch).pack()
    whole, hooks_at = whole.with_data(hooks, arch.page)
    laid = inject(
        image,
        whole,
        page=arch.page,
        entry=stub.address("ftrace_start"),
        fill=lambda shift: configuration(
            image,
            stub,
            tracer,
            shift=shift,
            depth=DEPTH,
            size=size,
            entry=header_field(image.elf, "e_entry"),
            sites=0,
            arguments=False,
            libraries=(0, linker),
            probes=table_at + shift,
            hooks=hooks_at + shift,
        ),
    )
    changes, tail = for_debuggers(image, stub, laid)
    return replace(_plan(arch, changes), tail=tail)


def _later(image: Image, laid: InjectedWatches, watches: Sequence[Watch], size: int | None) -> Plan:
    """Change only what differs, with one Change per table entry."""
    arch = arch_of(image.elf.skeleton.machine, image.elf.skeleton.elf_class)
    before = image.elf.contents(laid.table, TABLE_SIZE, "table of watches").tobytes()
    entry = TABLE_SIZE // SLOTS
    old, new = (
        np.frombuffer(raw, np.uint8).reshape(SLOTS, entry)
        for raw in (before, pack_watches(watches))
    )
    offset = laid.table + entry * np.arange(SLOTS, dtype=np.int64)
    parts = [Changes.of(Kind.LITERAL, offset, old, new, NO_OWNER).effective()]
    if size is not None:
        was = image.elf.contents(laid.size, 8, "size of its trace").tobytes()
        now = size.to_bytes(8, "little")
        was_, now_ = (np.frombuffer(raw, np.uint8)[None] for raw in (was, now))
        place = np.array([laid.size], np.int64)
        parts.append(Changes.of(Kind.LITERAL, place, was_, now_, NO_OWNER).effective())
    assert arch is not None
    return _plan(arch, Changes.concat(parts))


def _plan(arch: Arch, changes: Changes) -> Plan:
    return Plan(
        changes=changes,
        code=np.empty((0, arch.width), np.uint8),
        selected=0,
        changed=0,
        dropped=0,
        restored=0,
        action="",
    )
