# SPDX-License-Identifier: MIT
"""Tracers and probes brought into a running process, to stay there until they are undone."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ftpatch.api.recording_limits import WILDCARD_LIMIT
from ftpatch.errors import OutputError, Refused, UsageError
from ftpatch.ftrace.filter import Selection
from ftpatch.io.cleanup import CLEANUP
from ftpatch.process.attached import Live, detach, settled
from ftpatch.process.loaded import Loaded
from ftpatch.process.maps import read_maps
from ftpatch.process.process import Process
from ftpatch.process.process_journal import Entry, recall
from ftpatch.process.take_out import TakenOut
from ftpatch.tracer.attach import choose
from ftpatch.tracer.bring_out import bring_out, settle_ended
from ftpatch.tracer.live import attach, attach_more, detach_some
from ftpatch.tracer.plan import Tracing
from ftpatch.tracer.recordings import TraceFiles

if TYPE_CHECKING:
    from ftpatch.probe.targets import Target

__all__ = [
    "Attached",
    "Bring",
    "Undone",
    "attached",
    "attached_files",
    "disable_in",
    "enable_in",
    "kept",
    "probe_in",
    "probe_targets",
    "require_free",
    "require_place_for",
    "require_unmapped",
    "undo_in",
    "undone",
]

Bring = Callable[[dict[str, str], str, Callable[[], bool]], Live]
"""Brings a runtime in; takes an environment, the trace's name, and whether to end before that."""


@dataclass(frozen=True, kw_only=True)
class Attached:
    """The outcome of a change to a process: ``changed`` sites or places; ``trace``: the file that
    it records to; the ``pause`` of the process in seconds, and how many ``threads`` it was of;
    ``refused``: the errors of probes that could not be inserted, ``skipped`` those of functions
    that only a wildcard named."""

    changed: int
    trace: Path
    pause: float
    threads: int
    refused: tuple[UsageError, ...] = ()
    skipped: tuple[UsageError, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Undone:
    """The outcome of taking out, of a process and of children that it has forked since: ``changed``
    sites that are as before; the longest ``pause`` in seconds; ``left``: why something stays
    mapped, empty where nothing does; ``foreign``: addresses that somebody else has changed, left
    alone."""

    changed: int
    pause: float
    left: str
    foreign: tuple[int, ...]


def attached(live: Live, refused: Refused | None = None) -> Attached:
    """Tell of a runtime in a process, and of probes that were ``refused``."""
    refused = refused or Refused()
    pause, trace = live.pause, Path(live.entry.trace)
    return Attached(
        changed=live.sites,
        trace=trace,
        pause=pause.pause / 1e9,
        threads=pause.threads,
        refused=tuple(refused.errors),
        skipped=tuple(refused.skipped.values()),
    )


def undone(done: Sequence[tuple[Process, TakenOut]]) -> Undone:
    """Tell of what was taken out."""
    every = [out for _, out in done]
    pauses = [pause.pause for out in every for pause in out.pauses]
    return Undone(
        changed=sum(out.sites for out in every),
        pause=max(pauses, default=0) / 1e9,
        left="; ".join(f"{one}: {out.left}" for one, out in done if out.left),
        foreign=tuple(address for out in every for address in out.foreign),
    )


def attached_files(process: Process, trace: Path, image: Path, *, overwrite: bool) -> TraceFiles:
    """The trace files of a process whose program is ``image``, as it knows it: with another root,
    or a replaced file, there is only what the kernel has."""
    if overwrite:
        require_unmapped(process, trace)
    exe = process.place / "exe"
    with contextlib.suppress(OSError):
        if not image.samefile(exe):
            image = exe
    if not image.exists():
        image = exe
    return TraceFiles(trace, exe, image, overwrite=overwrite, attached=process.place)


def require_place_for(trace: Path, *, overwrite: bool) -> None:
    """Raise OutputError where a trace file cannot be."""
    try:
        is_there, has_place = trace.exists(), trace.absolute().parent.is_dir()
    except OSError as error:
        raise OutputError(trace, f"cannot write: {error.strerror}") from None
    if is_there and not overwrite:
        raise OutputError(trace, "the output exists", "use --force to overwrite it")
    if not has_place:
        raise OutputError(trace, "cannot write: no such directory")


def require_unmapped(process: Process, path: Path) -> None:
    """Raise OutputError for a file that a process has mapped: its program, a library, its data."""
    root = process.place / "root"
    for one in {one.path for one in read_maps(process) if one.inode}:
        with contextlib.suppress(OSError, ValueError):
            if path.samefile(os.fsdecode(bytes(root) + one)):
                reason = "the process has this file mapped"
                raise OutputError(path, f"cannot write: {reason}", "name another file")


def require_free(process: Process) -> None:
    """Raise UsageError for a process that ftpatch is in already."""
    if recall(process) is not None:
        hint = f"run `ftpatch undo --pid {process.pid}` first"
        raise UsageError(None, f"{process}: ftpatch is already attached", hint)


def kept(
    process: Process, image: Path, output: Path | None, bring: Bring, *, overwrite: bool
) -> Live:
    """Bring a runtime into a process that runs ``image``, which records to ``output`` (default:
    ftpatch.PID.trace here) until it is undone. Raises what bringing raises, and OutputError."""
    trace = (output or Path(f"ftpatch.{process.pid}.trace")).absolute()
    require_place_for(trace, overwrite=overwrite)
    with attached_files(process, trace, image, overwrite=overwrite) as made:
        with CLEANUP:
            live = bring(made.environment, str(trace), lambda: CLEANUP.is_asked)
            if CLEANUP.is_asked:
                detach(process)
        made.finish()
    if made.unkept:
        detach(process)
        raise OutputError(trace, f"the recording is lost: {made.unkept}")
    return live


def enable_in(
    process: Process,
    loaded: Sequence[Loaded],
    selection: Selection,
    libraries: Sequence[str],
    tracing: Tracing,
    output: Path | None,
    *,
    named: bool,
    overwrite: bool,
) -> Live:
    """Bring a tracer into a process, or let more sites call the one that is there. ``named``: the
    tracer or the output was asked for, which a process with a tracer has already. Raises what
    choosing and attaching raise, and OutputError."""
    entry = recall(process)
    if entry is not None and named:
        raise UsageError(
            None,
            f"{process}: already has the {entry.tracer} tracer",
            f"remove --tracer and -o, or run `ftpatch undo --pid {process.pid}` first",
        )
    _require_tracer(process, entry)
    chosen = choose(loaded, selection, libraries)
    if entry is not None:
        return attach_more(process, chosen)

    def bring(environment: dict[str, str], trace: str, _: Callable[[], bool]) -> Live:
        return attach(process, loaded, chosen, tracing, environment, trace)

    return kept(process, loaded[0].path, output, bring, overwrite=overwrite)


def disable_in(
    process: Process, loaded: Sequence[Loaded], selection: Selection, libraries: Sequence[str]
) -> Live:
    """Let sites of a process call its tracer no more. Raises what choosing raises."""
    _require_tracer(process, recall(process))
    return detach_some(process, choose(loaded, selection, libraries))


def undo_in(
    process: Process, tell: Callable[[Sequence[tuple[Process, TakenOut]]], None] = lambda _: None
) -> list[tuple[Process, TakenOut]]:
    """Take out of a process, and of children, what ftpatch put into it, ``tell`` of it, and give
    what was recorded its name. Raises UsageError if there is nothing, InputError, and OutputError
    for a name that is taken."""
    entry = settled(process)
    done = detach(process)
    try:
        if entry.trace:
            trace = Path(entry.trace)
            settle_ended(trace)  # where it had its name at once
            bring_out(trace)
    finally:
        tell(done)
    return done


def probe_targets(
    loaded: Sequence[Loaded],
    probes: Sequence[str],
    refused: Refused,
    *,
    optimize: bool,
    keep_going: bool,
    regex: bool = False,
    limit: int = WILDCARD_LIMIT,
) -> Sequence[Target]:
    """Find where probes are to go, by jumps where they can be if they ``optimize``; wildcards are a
    ``regex`` or globs, and match at most ``limit`` functions. Raises UsageError; ``refused`` has
    what was refused before."""
    from ftpatch.api.probing import parsed_probes, pattern_of
    from ftpatch.probe.targets import find_targets
    from ftpatch.probe.wildcards import Wildcards

    definitions = parsed_probes(loaded[0].file, probes, refused, pattern=pattern_of(regex))
    wildcards = Wildcards(regex=regex, limit=limit)
    targets = find_targets(loaded, definitions, refused, optimize=optimize, wildcards=wildcards)
    if refused.errors and not keep_going:
        raise refused.errors.pop()
    return targets


def probe_in(
    process: Process,
    loaded: Sequence[Loaded],
    targets: Sequence[Target],
    *,
    depth: int,
    size: int,
    ring: bool = False,
    off: bool = False,
) -> Bring:
    """Return what lays probes in. ``ring``: the latest hits are kept when the file is full;
    ``off``: none until recording is switched on."""
    from ftpatch.inject.runtime import Keeping
    from ftpatch.probe.in_process import Limits, lay_into

    limits = Limits(depth=depth, size=size, keeping=Keeping(ring=ring, off=off))

    def bring(environment: dict[str, str], trace: str, asked: Callable[[], bool]) -> Live:
        return lay_into(process, loaded, targets, limits, environment, trace, asked=asked)

    return bring


def _require_tracer(process: Process, entry: Entry | None) -> None:
    """Raise UsageError for a process that has probes."""
    if entry is not None and entry.probes:
        hint = f"run `ftpatch undo --pid {process.pid}` first"
        raise UsageError(None, f"{process}: it has probes, and no tracer", hint)
