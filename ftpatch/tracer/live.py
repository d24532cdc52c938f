# SPDX-License-Identifier: MIT
"""A tracer in a running process: brought in, called by more sites, or by fewer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ftpatch.errors import UsageError
from ftpatch.io.cleanup import CLEANUP
from ftpatch.process.attached import WAIT, Live, bring, called, required
from ftpatch.process.loaded import Loaded
from ftpatch.process.maps import Mapping
from ftpatch.process.memory_target import writable_memory
from ftpatch.process.planned import Planned, joined
from ftpatch.process.process import Process
from ftpatch.process.process_journal import Entry, locked
from ftpatch.process.rewrite import Pause
from ftpatch.process.take_out import restore_code
from ftpatch.tracer.attach import Chosen, calls_of, plan_attached
from ftpatch.tracer.plan import Tracing

__all__ = ["attach", "attach_more", "detach_some"]


def attach(
    process: Process,
    loaded: Sequence[Loaded],
    chosen: Sequence[Chosen],
    tracing: Tracing,
    environment: dict[str, str],
    trace: str = "",
    *,
    asked: Callable[[], bool] = lambda: CLEANUP.is_asked,
) -> Live:
    """Bring a tracer into a process and let the chosen sites call it, as ``bring`` does."""

    def plan(mappings: Sequence[Mapping]) -> Planned:
        return plan_attached(process, loaded, chosen, mappings, tracing, environment)

    return bring(process, plan, loaded, trace, asked=asked)


def attach_more(process: Process, chosen: Sequence[Chosen]) -> Live:
    """Let more sites call the tracer that is in a process. Raises UsageError for an image that it
    was not brought in for, SiteRefused and InputError."""
    with CLEANUP, locked(process):
        return _attach_more(process, required(process), chosen)


def _attach_more(process: Process, entry: Entry, chosen: Sequence[Chosen]) -> Live:
    known = {(path, bias): callee for path, bias, callee in entry.callees}
    parts = []
    for one in chosen:
        callee = known.get((str(one.loaded.path), one.loaded.bias))
        if callee is None:
            hint = f"run `ftpatch undo --pid {process.pid}` first, then name all libraries at once"
            raise UsageError(one.loaded.path, "the tracer was brought in without it", hint)
        parts.append(calls_of(one, callee))
    calls = joined(parts)
    if not len(calls.changes):  # they all do
        return Live(entry=entry, sites=0, pause=Pause())
    with writable_memory(process) as target:
        entry, pause = called(target, entry, calls)
    return Live(entry=entry, sites=len(calls.changes), pause=pause)


def detach_some(process: Process, chosen: Sequence[Chosen]) -> Live:
    """Let sites call the tracer no more, which stays. The journal goes on to tell of them: a child
    may have been forked before. Raises UsageError and InputError."""
    with CLEANUP, locked(process):
        return _detach_some(process, required(process), chosen)


def _detach_some(process: Process, entry: Entry, chosen: Sequence[Chosen]) -> Live:
    gone = np.zeros(len(entry.changes), bool)
    for one in chosen:
        sites = one.loaded.sites
        address = one.loaded.file.elf.address_of(sites.offset[one.mask])
        address += np.uint64(one.loaded.bias % (1 << 64))
        gone |= np.isin(entry.changes.offset, address.view(np.int64))
    with writable_memory(process) as target:
        done, _, pause = restore_code(target, entry, entry.changes.take(gone), WAIT)
    return Live(entry=entry, sites=done, pause=pause)
