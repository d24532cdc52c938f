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
from ftpatch.arch.boot import MEMORY, Wanted, boot_tracer_of
from ftpatch.boot.faults import FAULTS, WARNINGS, reporting
from ftpatch.boot.in_module import plan_in_module
from ftpatch.boot.padding import find_ring, find_room, find_word, lay_at
from ftpatch.core.changes import Changes, Kind
from ftpatch.errors import SiteRefused, UsageError
from ftpatch.ftrace.addr import Callee
from ftpatch.ftrace.filter import Selection, select_sites, unmatched
from ftpatch.ftrace.plan import Plan, plan_enable
from ftpatch.ftrace.sites import Sites
from ftpatch.names.suggest import meant, near

__all__ = ["MAX_EVENTS", "BootTracing", "plan_boot"]

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


def plan_boot(sites: Sites, mask: NDArray[np.bool_], tracing: BootTracing) -> Plan:
    """Plan calls to a tracer inside the text, or the module, at the sites in ``mask``, bool[n].

    Raises UsageError for anything but a kernel or a module, and for an unknown sink or function;
    SiteRefused for sites that call something already, and if there is no room.
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
    last = _until(sites, tracing.until)
    mask = mask | last
    if tracing.live:
        mask = mask | reporting(sites.ip, sites.image.symbols, (*FAULTS, *WARNINGS))
    counts = sink == MEMORY or tracer.always_word or tracing.most is not None
    counts = counts or bool(tracing.until)
    most = MAX_EVENTS if tracing.most is None else tracing.most
    if sites.image.is_relocatable:
        wanted = Wanted(sink, tracing.time, 0 if counts else None)
        return plan_in_module(sites, mask, last, tracer, wanted, most)
    word = ring if sink == MEMORY else find_word(sites) if counts else 0
    # The size is known once it is built, and does not depend on the place.
    distance = 1 << 24 if counts else None
    size = len(tracer.assemble(Wanted(sink, tracing.time, distance)).code)
    at = find_room(sites, tracer.pads, size)
    distance = word - at if counts else None
    laid = tracer.assemble(Wanted(sink, tracing.time, distance))
    # What runs at the sites needs no ftrace_ops: literals may stay.
    plain = replace(sites, abi=replace(sites.abi, nop_ops=0))
    plan = plan_enable(plain, mask, Callee(at + laid.entry, "the boot tracer"))
    changes = [_to_last(sites, plan.changes, last, at + laid.last), lay_at(sites, at, laid.code)]
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


def _to_last(sites: Sites, changes: Changes, last: NDArray[np.bool_], addr: int) -> Changes:
    """Make the sites in ``last`` call what stops the tracer."""
    if not last.any():
        return changes
    via = np.full(len(sites), addr, np.uint64)
    new = sites.arch.make_call(sites.ip, via, sites.width, sites.abi)
    where = np.flatnonzero((changes.kind == Kind.CODE) & np.isin(changes.owner, sites.ip[last]))
    order = np.argsort(sites.ip, kind="stable")
    site = order[np.searchsorted(sites.ip[order], changes.owner[where])]
    inside = np.arange(new.shape[1]) < changes.width[where][:, None]
    written = changes.new.copy()
    part = written[where, : new.shape[1]]
    written[where, : new.shape[1]] = np.where(inside, new[site], part)
    return replace(changes, new=written)
