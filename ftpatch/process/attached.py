# SPDX-License-Identifier: MIT
"""A runtime in a running process: brought in, asked how far it is, taken out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ftpatch.core.changes import Changes, Space
from ftpatch.errors import FtpatchError, InputError, UsageError
from ftpatch.io.cleanup import CLEANUP
from ftpatch.io.under_way import trace_of
from ftpatch.layout import structure
from ftpatch.process.bring_in import bring_in
from ftpatch.process.callers import Callers
from ftpatch.process.loaded import Loaded, loaded_images
from ftpatch.process.maps import Mapping, read_maps
from ftpatch.process.memory_target import MemoryTarget, writable_memory
from ftpatch.process.own_signal import take_signal
from ftpatch.process.page_ends import paddings_of
from ftpatch.process.permitted import require_permitted
from ftpatch.process.planned import Calls, Planned, Signals
from ftpatch.process.process import Process
from ftpatch.process.process_journal import Entry, forget, holding, keep, locked, name_of, recall
from ftpatch.process.rewrite import Pause, rewrite
from ftpatch.process.send import CallFailed
from ftpatch.process.standing import Unwound
from ftpatch.process.take_out import TakenOut, give_back, take_out
from ftpatch.process.walks import lead

__all__ = ["WAIT", "Live", "bring", "called", "detach", "required", "settled"]

WAIT = 5.0
"""Seconds to wait until no thread is in the way."""
TRIES = 3
"""Number of attempts to find room in a process."""


@dataclass(frozen=True, kw_only=True)
class Live:
    """A runtime in a process: what is to be taken out, the ``sites`` that call it, the ``pause``
    of the process."""

    entry: Entry
    sites: int
    pause: Pause


def bring(
    process: Process,
    plan: Callable[[Sequence[Mapping]], Planned],
    loaded: Sequence[Loaded],
    trace: str = "",
    *,
    asked: Callable[[], bool] = lambda: CLEANUP.is_asked,
) -> Live:
    """Bring into a process what is planned for its mappings, and let its code call that, unless
    ftpatch is ``asked`` to end before it begins. ``loaded``: its images; ``trace``: the name of its
    trace file. Raises what planning raises, and InputError; then nothing is left in the process, or
    the journal tells of it."""
    with CLEANUP, locked(process), writable_memory(process) as target:
        if asked():
            raise _interrupted(process)
        if recall(process) is not None:
            hint = f"run `ftpatch undo --pid {process.pid}` first"
            raise UsageError(None, f"{process}: ftpatch is already attached", hint)
        paddings = paddings_of(loaded)
        for tries in range(TRIES):
            planned = plan(read_maps(process))
            require_permitted(
                process,
                planned.arch,
                hooks=planned.hooks,
                traps=planned.signals is not None,
                otherwise=planned.otherwise,
            )
            entry = Entry(
                arch=planned.arch,
                tracer=planned.tracer,
                changes=_none(),
                trace=trace,
                origin=name_of(process),
                runtime=planned.runtime,
                returns=planned.returns,
                callees=planned.callees,
                probes=planned.probes,
                slots=planned.slots,
                asked=planned.asked,
                exports=planned.exports,
            )
            if planned.signals is not None:
                state, release = planned.signals.state, planned.signals.release
                entry = replace(entry, signals=state, release=release)
            try:
                entry = bring_in(target, entry, planned.areas, paddings, planned.start)
                entry = _ready(target, entry, planned)
                lead(target, entry, planned.linker, WAIT)
                if planned.signals is not None:
                    entry = _signals_taken(target, entry, planned.signals, loaded)
                entry, pause = called(target, entry, planned.calls)
                break
            except FtpatchError as error:
                with suppress(FtpatchError):
                    _taken_out(process, recall(process) or entry)
                if not isinstance(error, CallFailed) or tries == TRIES - 1:
                    raise
                # The program may have mapped something just there.
    return Live(entry=entry, sites=len(planned.calls.changes), pause=pause)


def called(target: MemoryTarget, entry: Entry, calls: Calls) -> tuple[Entry, Pause]:
    """Let sites call, after the journal tells of it."""
    new = calls.changes.take(~np.isin(calls.changes.offset, entry.changes.offset))
    entry = replace(entry, changes=Changes.concat([entry.changes, new]))
    keep(target.process, entry)
    pause = rewrite(
        entry.arch,
        target,
        calls.changes,
        wait=WAIT,
        is_nop=calls.nop,
        also=lambda world: give_back(target, entry, world),
    )
    return entry, pause


def _signals_taken(
    target: MemoryTarget, entry: Entry, plan: Signals, loaded: Sequence[Loaded]
) -> Entry:
    """Lead the system calls about signals to the runtime, and take the signal of traps over."""
    led = tuple(plan.changes.offset.tolist())
    entry = replace(entry, led=led)
    entry, _ = called(target, entry, Calls(plan.changes, np.zeros(len(led), bool)))
    take_signal(target, entry, plan, Unwound(Callers(entry.arch, target, loaded)), WAIT)
    return entry


def _interrupted(process: Process) -> InputError:
    return InputError(None, f"{process}: interrupted, nothing was changed")


def settled(process: Process) -> Entry:
    """Recall what the journal tells of a process when no other ftpatch is changing it. Raises
    UsageError if that is nothing, InputError."""
    with locked(process):
        return required(process)


def required(process: Process) -> Entry:
    """Recall what the journal tells of a process. Raises UsageError if that is nothing."""
    entry = recall(process)
    if entry is None and (trace := recorded_by_others(process)) is not None:
        who = "its user" if os.geteuid() == 0 else "root"
        raise UsageError(
            None,
            f"{process}: it is recorded into {trace}, but not by this user",
            f"run `ftpatch undo --pid {process.pid}` as who attached it, such as {who}",
        )
    if entry is None:
        raise UsageError(
            None,
            f"{process}: ftpatch is not attached",
            f"see `ftpatch check --pid {process.pid}` for what differs from its files",
        )
    return entry


def recorded_by_others(process: Process) -> Path | None:
    """The trace file that a runtime in a process writes, which another user has brought there; None
    if there is none."""
    for one in read_maps(process):
        if one.shared and one.writable and (trace := trace_of(Path(os.fsdecode(one.path)))):
            return trace
    return None


def detach(process: Process) -> list[tuple[Process, TakenOut]]:
    """Take a tracer out of a process, and out of the children that it has forked since. Raises
    UsageError if there is none, and InputError; then the journal tells what is left."""
    before = CLEANUP.is_asked  # by whom this is part of ending in order
    with CLEANUP, locked(process):
        if CLEANUP.is_asked and not before:
            raise _interrupted(process)  # whatever is in it now came later
        return _taken_out(process, required(process))


def _taken_out(process: Process, entry: Entry) -> list[tuple[Process, TakenOut]]:
    out, done = [(process, _taken_out_of(process, entry))], {process}
    if out[0][1].left:
        return out  # it may share its memory with a child (vfork)
    # A child that undoes what it inherited leaves its parents alone.
    while waiting := [
        one
        for one in (holding(entry) if entry.origin == name_of(process) else [])
        if one not in done
    ]:
        for one in waiting:
            done.add(one)
            with _unless_ended(one), locked(one):
                keep(one, entry)
                out.append((one, _taken_out_of(one, entry)))
                if not out[-1][1].left:
                    forget(one)
    forget(process)
    return out


def _taken_out_of(one: Process, entry: Entry) -> TakenOut:
    loaded, _ = loaded_images(one)
    with writable_memory(one) as target:
        return replace(take_out(target, entry, loaded, WAIT), probes=len(entry.probes))


@contextmanager
def _unless_ended(one: Process) -> Iterator[None]:
    """Suppress the errors of a child that has ended meanwhile."""
    try:
        yield
    except InputError:
        if one.is_alive:
            raise
        forget(one)


def _ready(target: MemoryTarget, entry: Entry, plan: Planned) -> Entry:
    """Ask the runtime where it records to. Raises InputError if it could not start."""
    layout = structure("process", entry.arch)
    held = target.read(entry.runtime, layout.itemsize)
    state = np.frombuffer(held or bytes(layout.itemsize), layout)[0]
    if plan.records and not (state["ready"] and state["header"]):
        raise InputError(
            None,
            f"{target.name}: it could not create the trace file",
            "it may lack memory, disk space or permission (-o in a directory that it can write to)",
        )
    return replace(entry, header=int(state["header"]))


def _none() -> Changes:
    return replace(Changes.concat([]), space=Space.MEMORY)
