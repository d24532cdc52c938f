# SPDX-License-Identifier: MIT
"""Planning a boot tracer: a stub in padding of a kernel's text, which the sites call.

Nothing is added to the file or mapped: what is inside the text is there before the first C function
runs. A module gets it in sections of its own (in_module.py). The sites' records are dropped, since
ftrace_init knows no such call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import supports
from ftpatch.arch.boot import MEMORY, TracerCode, Wanted, boot_tracer_of
from ftpatch.boot.behind_text import find_room_behind
from ftpatch.boot.faults import FAULTS, WARNINGS, reporting
from ftpatch.boot.hooks import NO_HOOKS, HookCode, Hooks, require_journal
from ftpatch.boot.in_module import plan_in_module
from ftpatch.boot.padding import find_ring, find_room, find_spare, find_word, lay_at
from ftpatch.core.changes import Changes, Kind
from ftpatch.errors import SiteRefused, UsageError
from ftpatch.ftrace.addr import Callee
from ftpatch.ftrace.filter import Selection, select_sites, unmatched
from ftpatch.ftrace.plan import Plan, plan_enable
from ftpatch.ftrace.sites import Sites
from ftpatch.names.suggest import meant, near

__all__ = ["MAX_EVENTS", "BootTracing", "plan_boot"]

FAR = 1 << 24
"""Distance of the tracer's data while its size is found out (bytes)."""
MAX_EVENTS = (1 << 31) - 1
"""Maximum count of the word: a tracer that has one sends no more, whatever --max is."""


@dataclass(frozen=True, kw_only=True)
class BootTracing:
    """Options of a boot tracer: the sink for events (empty: the architecture's default), a function
    whose entry is the last event, the maximum number of events, whether events are timed; whether
    they are read while the kernel runs (``live``): then the default is a ring in its memory, and
    the functions that report a fault are always traced."""

    sink: str = ""
    until: str = ""
    most: int | None = None
    time: bool = False
    live: bool = False


def plan_boot(
    sites: Sites, mask: NDArray[np.bool_], tracing: BootTracing, hooks: Hooks = NO_HOOKS
) -> Plan:
    """Plan calls to a tracer inside the text, or the module, at the sites in ``mask``, bool[n], and
    calls to the code of ``hooks`` at theirs.

    Raises UsageError for anything but a kernel or a module, and for an unknown sink or function;
    SiteRefused for sites that call something already, and if there is no room; InputError for a
    kernel whose journal is gone.
    """
    path = sites.image.path
    if not sites.abi.kernel:
        raise UsageError(path, "the boot tracer is for kernels and modules", "use a vmlinux")
    if sites.image.is_relocatable and tracing.live:
        hint = "use a vmlinux, or `ftpatch enable --tracer boot`"
        raise UsageError(path, "a module does not boot", hint)
    if not supports(sites.arch.name, "boot"):
        raise UsageError(path, f"no boot tracer for {sites.arch.name}")
    tracer = boot_tracer_of(sites.arch.name)
    if tracer.pads_only and not sites.abi.pad:
        raise UsageError(path, "its sites call _mcount, and the boot tracer is for pads")
    ring = find_ring(sites) if tracing.live else 0
    sinks = (MEMORY, *tracer.sinks) if ring else tracer.sinks
    sink = tracing.sink or sinks[0]
    if sink not in sinks:
        hint = meant(near(sink, sinks), f"use {' or '.join(sinks)}")
        raise UsageError(path, f"unsupported sink {sink} for {sites.arch.name}", hint)
    if tracing.most is not None and not 0 < tracing.most <= MAX_EVENTS:
        raise UsageError(None, f"--max {tracing.most} is out of range (1 to {MAX_EVENTS})")
    if sites.blocks:
        raise SiteRefused(path, "already patched", "run `ftpatch undo` first")
    require_journal(sites.image)
    last = _until(sites, tracing.until)
    mask = mask | last
    if tracing.live:
        mask = mask | reporting(sites.ip, sites.image.symbols, (*FAULTS, *WARNINGS))
    counts = sink == MEMORY or sink in tracer.locked or tracing.most is not None
    counts = counts or bool(tracing.until)
    most = MAX_EVENTS if tracing.most is None else tracing.most
    if sites.image.is_relocatable:
        wanted = Wanted(sink, tracing.time, 0 if counts else None)
        return plan_in_module(sites, mask, last, tracer, wanted, most)
    word = ring if sink == MEMORY else find_word(sites) if counts else 0
    hooked = hooks.at(sites)
    if (last & (hooked >= 0)).any():
        reason = f"--until {tracing.until}: the function has a probe"
        raise UsageError(path, reason, "use another function, or --max")
    spare = find_spare(sites, hooks.spare) if hooks.spare else 0

    def build(at: int) -> tuple[TracerCode, HookCode]:
        distance = word - at if counts else None
        laid = tracer.assemble(Wanted(sink, tracing.time, distance))
        return laid, hooks.lay(sites, laid, at, spare)

    # The size is known once it is built, and does not depend on the place.
    base = max(word, spare) or int(sites.ip[0])
    size = build(base - FAR)[1].size
    room = (
        find_room_behind(sites, tracer.tail, size)
        if tracer.tail
        else find_room(sites, tracer.pads, size)
    )
    at = room.at
    laid, behind = build(at)
    mask = mask | (hooked >= 0)
    # What runs at the sites needs no ftrace_ops: literals may stay.
    callee = Callee(at + laid.entry, "the boot tracer", reads_ops=False)
    plan = plan_enable(sites, mask, callee)
    to = np.where(last, at + laid.last, at + laid.entry).astype(np.uint64)
    entries = np.array([*behind.entries, 0], np.uint64) + np.uint64(at)
    to = np.where(hooked >= 0, entries[hooked], to)
    elsewhere = last | (hooked >= 0)
    changes = [_lead(sites, plan.changes, elsewhere, to), room.grown, room.lay(sites, behind.code)]
    changes += hooks.jumps(sites, [at + entry for entry in behind.entries])
    if behind.record:
        changes.append(room.lay(sites, behind.record, len(behind.code)))
    if counts:
        changes.append(lay_at(sites, word, most.to_bytes(4, "little")))
    return replace(plan, changes=Changes.concat(changes))


def _until(sites: Sites, name: str) -> NDArray[np.bool_]:
    """Return the sites of that function, bool[n], by any of its names; none for an empty one."""
    if not name:
        return np.zeros(len(sites), bool)
    try:
        return select_sites(sites, Selection([re.escape(name)], regex=True))
    except UsageError:
        image = sites.image
        hint = unmatched(name, [sites], regex=False).hint
        reason = f"--until {name}: " + (
            "the function has no site"
            if len(image.symbols.rows_named(name))
            else "no such function"
        )
        raise UsageError(image.path, reason, hint) from None


def _lead(
    sites: Sites, changes: Changes, mask: NDArray[np.bool_], to: NDArray[np.uint64]
) -> Changes:
    """Make the sites in ``mask``, bool[n], call addresses of their own: ``to``, uint64[n]."""
    if not mask.any():
        return changes
    where = np.flatnonzero((changes.kind == Kind.CODE) & np.isin(changes.owner, sites.ip[mask]))
    new = sites.arch.make_call(sites.ip, to, sites.width, sites.abi)
    order = np.argsort(sites.ip, kind="stable")
    site = order[np.searchsorted(sites.ip[order], changes.owner[where])]
    inside = np.arange(new.shape[1]) < changes.width[where][:, None]
    written = changes.new.copy()
    part = written[where, : new.shape[1]]
    written[where, : new.shape[1]] = np.where(inside, new[site], part)
    return replace(changes, new=written)
