# SPDX-License-Identifier: MIT
"""Planning watches: the runtime is injected, with a table of what to watch.

The table has an entry for every watchpoint of the processor. So later requests only change bytes in
it, and `undo` reverts one command after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Protocol

import numpy as np

from ftpatch.arch import Arch, arch_of
from ftpatch.core.byte_order import ByteOrder
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
from ftpatch.inject.read_back import recording_of
from ftpatch.inject.runtime import WATCH, Keeping, configuration, watch_stub
from ftpatch.layout import offset_of, structure
from ftpatch.watch import Request, Watch, apply_requests, readable, watch_line
from ftpatch.watch.filtering import Filtering
from ftpatch.watch.homes import HOMES_SIZE, LINK, pack_homes, unpack_homes
from ftpatch.watch.library_variables import LibraryVariables
from ftpatch.watch.read_back import InjectedWatches, injected_watches, is_watched_alone
from ftpatch.watch.rules import RULES_SIZE, pack_rules, with_rows
from ftpatch.watch.table import SLOTS, TABLE_SIZE, pack_watches, unpack_watches

__all__ = [
    "Watched",
    "injected_watch_list",
    "pack_tables",
    "part_notes",
    "plan_first",
    "plan_watched",
    "read_watches",
    "require_watchable",
    "requested",
    "watched_lines",
]

SIZE = 64 << 20
"""Default size of a trace file."""
DEPTH = 8
"""Entries of a ret_stack: no returns are hooked."""


class Sized(Protocol):
    """Variables whose sizes are known."""

    def size(self, watch: Watch) -> int:
        """Size of a watch's symbol in bytes, 0: unknown."""


@dataclass(frozen=True, kw_only=True)
class Watched:
    """The outcome of requests: the plan, the resulting watches, and notes on them."""

    plan: Plan
    watches: tuple[Watch, ...]
    notes: tuple[str, ...]


def read_watches(image: Image) -> tuple[Watch, ...]:
    """Read a program's watches. Raises UsageError if it has none, InputError for a corrupt
    table."""
    laid = injected_watches(image)
    if laid is None:
        hint = "specify a watch, such as counter:rw-"
        raise UsageError(image.path, "no watches in this program", hint)
    return _watches(image, laid)


def watched_lines(image: Image) -> list[str]:
    """Read the watches as requests; none for a file without them. Raises InputError."""
    return [watch_line(readable(one)) for one in injected_watch_list(image)]


def injected_watch_list(image: Image) -> tuple[Watch, ...]:
    """Read a program's watches; none for a file without them. Raises InputError for a corrupt
    table."""
    laid = injected_watches(image) if image.is_program else None
    return _watches(image, laid) if laid else ()


def plan_watched(
    image: Image, requests: Sequence[Request], *, size: int | None, keeping: Keeping
) -> Watched:
    """Plan all requests, or none. ``size``: bytes of a trace file, None: unchanged, or the default;
    ``keeping`` is added to what is kept of accesses.

    Raises UsageError for what cannot be watched, or a program that has a tracer or probes already;
    InputError if there is no room, or for an architecture without watches.
    """
    arch = require_watchable(image)
    laid = _laid_in(image)
    before = () if laid is None else _watches(image, laid)
    watches, notes = requested(image, before, requests)
    asked = any(one.filter or one.stack for one in watches)
    missing = "filters and no stacks" if asked and laid and not laid.rules else ""
    if laid is not None and not laid.homes and any(one.home for one in watches):
        missing = "variables of libraries"
    if missing:
        reason = f"its watches are of an earlier version, which had no {missing}"
        raise UsageError(image.path, reason, "run `ftpatch undo` first, and watch again")
    if laid is None:
        plan = _first(image, arch, watches, SIZE if size is None else size, keeping)
    else:
        plan = _later(image, laid, watches, size, keeping)
    return Watched(plan=plan, watches=watches, notes=notes)


def plan_first(image: Image, watches: Sequence[Watch], size: int, keeping: Keeping) -> Plan:
    """Plan watches for a program that has nothing laid in. Raises as plan_watched does."""
    return _first(image, require_watchable(image), watches, size, keeping)


def pack_tables(watches: Sequence[Watch], order: ByteOrder) -> bytes:
    """Pack the table of watches, behind it their rules, from TABLE_SIZE on, and behind these their
    libraries."""
    homes = pack_homes([one.home for one in watches], order)
    return pack_watches(watches, order) + pack_rules(watches, order) + homes


def require_watchable(image: Image) -> Arch:
    """Return a program's architecture. Raises UsageError for what cannot be watched, InputError for
    an architecture without watches."""
    arch = arch_of(image.elf.skeleton.machine, image.elf.skeleton.elf_class)
    _check(image, arch)
    assert arch is not None
    watch_stub(image, arch.name)
    return arch


def requested(
    image: Image, before: Sequence[Watch], requests: Sequence[Request]
) -> tuple[tuple[Watch, ...], tuple[str, ...]]:
    """Apply requests to the watches that a program has; return the resulting ones, and notes on
    them. Raises UsageError for a request that cannot be."""
    variables, filtering = LibraryVariables(image, before), Filtering(image)
    spelled = [variables.asked(one) for one in requests]
    try:
        watches, notes = apply_requests(
            before,
            spelled,
            slots=SLOTS,
            resolve=variables.resolve,
            read_only=False,
            filtered=lambda text, watch: filtering.rows(text, watch, variables.variables(watch)),
        )
    except UsageError as error:
        raise UsageError(error.path or image.path, error.reason, error.hint) from None
    if not watches and not before:
        raise UsageError(image.path, "*:---: no such watch to clear", "nothing is watched")
    for watch in watches:
        if watch in before:
            continue
        line, own, link = (
            watch_line(readable(watch)),
            variables.variables(watch),
            watch.address & LINK,
        )
        if not own.has(link, watch.length):
            path = variables.path(watch)
            raise UsageError(path, f"{line}: it ends beyond the address space", "watch fewer bytes")
        if watch.type == "-w-" and own.never_written(link):
            notes.append(f"{line}: the variable is constant, the program cannot write it")
    notes += _together(watches)
    return tuple(map(variables.at_home, watches)), tuple(notes)


def part_notes(variables: Sized, watches: Sequence[Watch]) -> Iterator[str]:
    """Note each watch that covers only part of a symbol, or more than it, one clause each."""
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
    if laid_in_id(image) is not None and not is_watched_alone(image):
        raise UsageError(image.path, "already has a tracer or probes", "run `ftpatch undo` first")
    return laid


def _watches(image: Image, laid: InjectedWatches) -> tuple[Watch, ...]:
    raw = image.elf.contents(laid.table, _size(laid), "table of watches").tobytes()
    order = image.elf.order
    try:
        told = unpack_watches(raw, order)
        slots = [slot for slot, one in enumerate(told) if one is not None]
        watches = [one.watch for one in told if one is not None]
        homes = unpack_homes(raw[TABLE_SIZE + RULES_SIZE :].ljust(HOMES_SIZE, b"\0"), order)
        at_home = [replace(one, home=homes[slot]) for one, slot in zip(watches, slots, strict=True)]
        return with_rows(at_home, slots, raw[TABLE_SIZE:].ljust(RULES_SIZE, b"\0"), order)
    except UsageError as error:
        raise InputError(image.path, f"its table of watches is corrupt: {error}") from None


def _size(laid: InjectedWatches) -> int:
    """Bytes of the tables."""
    return TABLE_SIZE + RULES_SIZE * laid.rules + HOMES_SIZE * laid.homes


def _first(image: Image, arch: Arch, watches: Sequence[Watch], size: int, keeping: Keeping) -> Plan:
    """Plan the first watches of a program."""
    linker = linker_place(image) if image.elf.segment(Segment.PT_INTERP) is not None else 0
    tracer, stub = watch_stub(image, arch.name)
    whole, table_at = stub.with_data(pack_tables(watches, arch.order), arch.page)
    hooks = find_hooks(image, arch).pack(arch.order)
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
            user=(table_at + TABLE_SIZE + shift, table_at + TABLE_SIZE + RULES_SIZE + shift),
            probes=table_at + shift,
            hooks=hooks_at + shift,
            keeping=keeping,
        ),
    )
    changes, tail = for_debuggers(image, stub, laid)
    return replace(_plan(arch, changes), tail=tail)


def _later(
    image: Image,
    laid: InjectedWatches,
    watches: Sequence[Watch],
    size: int | None,
    keeping: Keeping,
) -> Plan:
    """Change only what differs, with one Change per entry of a table."""
    arch = arch_of(image.elf.skeleton.machine, image.elf.skeleton.elf_class)
    before = image.elf.contents(laid.table, _size(laid), "table of watches").tobytes()
    after = pack_tables(watches, image.elf.order)[: _size(laid)]
    entry = TABLE_SIZE // SLOTS
    old, new = (np.frombuffer(raw, np.uint8).reshape(-1, entry) for raw in (before, after))
    offset = laid.table + entry * np.arange(len(old), dtype=np.int64)
    parts = [Changes.of(Kind.LITERAL, offset, old, new, NO_OWNER).effective()]
    told = recording_of(image)
    assert told is not None
    kept = told.keeping | keeping
    kept.require_fit(WATCH)
    now = {"flags": told.flags & ~told.keeping.flags | kept.flags, "signal": kept.signal}
    for name, value in (now if size is None else now | {"size": size}).items():
        at = laid.config + offset_of("stub_config", name)
        width = structure("stub_config")[name].itemsize
        was = image.elf.contents(at, width, "configuration of its stub")[None]
        new = np.frombuffer(image.elf.order.packed(value, width), np.uint8)[None]
        place = np.array([at], np.int64)
        parts.append(Changes.of(Kind.LITERAL, place, was, new, NO_OWNER).effective())
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
