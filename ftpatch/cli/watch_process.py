# SPDX-License-Identifier: MIT
"""``ftpatch watch --pid``: watch variables of a running process for a while."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ftpatch.api.call_filters import CallFilters
from ftpatch.api.observing import LOOK, recording
from ftpatch.cli.attended import looks, require_time
from ftpatch.cli.console import count, note_lines, warn_line
from ftpatch.cli.process_update import readable_images
from ftpatch.cli.signals import asked_to_end
from ftpatch.cli.trace_reports import Asked, Reports
from ftpatch.errors import UsageError
from ftpatch.inject.runtime import WATCH
from ftpatch.io.activity import doing
from ftpatch.io.temporary import run_folder
from ftpatch.process.process import Process, find_process
from ftpatch.watch import parse_watch
from ftpatch.watch.running import Watching, choose_watches

__all__ = ["Wanted", "watch_process"]

START_STACK = 28
"""Field of /proc/PID/stat (proc_pid_stat(5))."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The options of ``watch --pid``."""

    requests: Sequence[str]
    seconds: float | None
    reports: Sequence[str]
    output: Path | None
    size: int
    force: bool
    format: str | None
    quiet: bool


def watch_process(pid: int, wanted: Wanted) -> None:
    """Watch variables of a process until the time is over, it ends or a signal asks for it, and
    report. Raises UsageError, InputError and OutputError: then nothing is watched."""
    if not wanted.requests:
        raise UsageError(None, "no variable to watch", "specify a watch, such as counter:rw-")
    require_time(wanted.seconds)
    requests = [parse_watch(text) for text in wanted.requests]
    process = find_process(pid)
    asked = Asked(
        format=wanted.format,
        reports=wanted.reports,
        filters=CallFilters(),
        recording=wanted.output,
        open=False,
        verbose=False,
        force=wanted.force,
    )
    chosen = choose_watches(readable_images(process), requests)
    reports = Reports(WATCH, asked, process.place / "exe")
    reports.require_returns(recorded=False, stacks=any(one.stack for one in chosen.watches))
    note_lines(chosen.notes)
    if not wanted.quiet:
        note_lines(chosen.partial)
    with run_folder() as folder:
        trace = (wanted.output or folder / "trace").absolute()
        with (
            asked_to_end() as ending,
            recording(process, chosen, trace, wanted.size) as watching,
        ):
            _tell_begun(process, watching, wanted)
            _look(process, watching, ending, wanted.seconds)
            files = watching.finish()
        if not wanted.quiet:
            note_lines([f"{process}: {_accesses(watching)} recorded"])
        reports.write(files)


def _tell_begun(process: Process, watching: Watching, wanted: Wanted) -> None:
    if not watching.complete:
        warn_line(f"{process}: threads begin so fast that some may not be watched")
    if not wanted.quiet:
        lines = ", ".join(watching.lines)
        note_lines([f"{process}: watching {lines} in {count(watching.threads, 'thread')}"])


def _look(
    process: Process, watching: Watching, ending: threading.Event, seconds: float | None
) -> None:
    """Record until the end, and show how much it is."""
    program, what = _program(process), f"watching {process}"
    with doing(what) as now, contextlib.closing(looks(process, ending, seconds, LOOK)) as each:
        for _ in each:
            watching.look()
            now.what = f"{what}, {_accesses(watching)}; Ctrl-C ends"
            if program and _program(process) not in ((), program):
                warn_line(f"{process}: it runs another program now, which is not watched")
                return


def _accesses(watching: Watching) -> str:
    number = watching.recorded
    return f"{number} access{'es' * (number != 1)}"


def _program(process: Process) -> tuple[int, ...]:
    """The file that a process runs, and where its stack begins: exec() changes one of them. Empty
    where that cannot be told."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        held = (process.place / "exe").stat()
        fields = (process.place / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return held.st_dev, held.st_ino, int(fields[START_STACK - 3])
    return ()
