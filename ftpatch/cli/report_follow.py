# SPDX-License-Identifier: MIT
"""``ftpatch report --follow``: events printed as they are recorded."""

from __future__ import annotations

import errno
import gc
import os
import select
import signal
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from ftpatch.cli.console import clean, note_lines, warn_line
from ftpatch.cli.progress import PROGRESS, is_pipe
from ftpatch.cli.report_output import open_output
from ftpatch.cli.report_task import ROW, allow_descriptors, notes_of, tell_children, tell_newer
from ftpatch.io.cleanup import ending_handled
from ftpatch.tracer.written import is_written

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from ftpatch.cli.report_task import Task
    from ftpatch.trace import EventSource
    from ftpatch.trace.arrivals import Arrivals, Run
    from ftpatch.trace.reader import OpenFile
    from ftpatch.trace.report import Report

__all__ = ["follow_report"]

LOOK, GROWTH, MAX_REST = 0.1, 1.25, 0.5
"""Seconds between two looks at the traces, how much more they get from one to the next while
nothing comes, and how many at most."""
PATIENCE = 0.25
"""Seconds after which it is asked again whether a process writes to a trace."""
MANY = 1 << 10
"""Approximate number of children's traces for which there should be descriptors."""


def follow_report(task: Task, runs: Sequence[Run], name: str | None, seconds: float | None) -> None:
    """Print events of runs as they come, in the format of that ``name``, until no process writes
    to their traces, a signal asks for the end, or ``seconds`` are over; then say on standard error
    what is missing. Raises what opening raises, UsageError for a format that needs all events,
    and InputError for a trace that was truncated."""
    from ftpatch.api.report_sources import follow_events
    from ftpatch.trace.arrivals import Arrivals
    from ftpatch.trace.choose import report_for, require_following
    from ftpatch.trace.header import NOT_ENDED

    allow_descriptors(len(runs) + MANY)
    arrivals = Arrivals(runs, alone=task.alone)
    named = {run.name for run in runs} | {run.place for run in runs}
    with _Attended(arrivals, seconds) as pace:
        events = follow_events(arrivals.first(), task.window, pace)
        try:
            form = report_for(events, name)
            require_following(form, events.kind, events.recording.headers[0].path)
            events.recording.name_by(task.programs.of)
            _print(task, events, form)
            headers = events.recording.headers
            note_lines(notes_of(events.recording, but={NOT_ENDED} if pace.is_over else ()))
            note_lines(events.notes())
        finally:
            events.close()
    paths = [header.path for header in headers]
    tell_children([path for path in paths if path not in named])
    if all(map(os.path.lexists, paths)):
        tell_newer(replace(task, files=paths))


def _print(task: Task, events: EventSource, form: Report) -> None:
    """Print them."""
    from ftpatch.trace import Style
    from ftpatch.trace.by_process import processes_of

    window = task.window
    gc.enable()  # it runs for more than a second
    PROGRESS.end()
    processes = processes_of(events.recording) if form.text else ""
    style = Style(clean, [clean(processes)] if processes else [])
    style.short = form.text and not task.verbose
    is_empty = form.text
    with open_output(None, force=False, form=form, paged=False) as out:
        for part in form.render(events, style):
            out.write(part)
            is_empty = is_empty and not ROW.search(part if isinstance(part, str) else "x")
    if window.wanted:
        window.require_match(events.recording.functions)
    if is_empty and window.options:
        warn_line(f"no event passes {' and '.join(window.options)}")


class _Attended:
    """The Pace of a terminal, or of whoever reads standard output. In its context, signals that
    would end ftpatch ask for the end; a second one does what it did before."""

    def __init__(self, arrivals: Arrivals, seconds: float | None) -> None:
        self._arrivals = arrivals
        self._end = None if seconds is None else time.monotonic() + seconds
        self._asked = threading.Event()
        self._rest = LOOK
        self._written: dict[int, float] = {}
        self._handled = ending_handled(self._on_signal)
        self._reader = select.poll()
        self._has_reader = hasattr(sys.stdout, "buffer") and is_pipe(sys.stdout)
        if self._has_reader:
            self._reader.register(sys.stdout.fileno(), 0)  # for its end alone

    def __enter__(self) -> _Attended:
        self._handled.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._handled.__exit__(None, None, None)

    @property
    def is_over(self) -> bool:
        """True once the end was asked for, or the time is over."""
        return self._asked.is_set() or (self._end is not None and time.monotonic() >= self._end)

    def pause(self, *, idle: bool) -> None:
        """Let what was printed be seen, and wait, the longer the less comes. Raises BrokenPipeError
        if nobody reads it."""
        sys.stdout.flush()
        self._rest = min(self._rest * GROWTH, MAX_REST) if idle else LOOK
        rest = self._rest if self._end is None else min(self._rest, self._end - time.monotonic())
        if self._reader.poll(max(rest, 0) * 1000) and self._has_reader:
            signal.raise_signal(signal.SIGPIPE)
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    def is_written(self, source: OpenFile) -> bool:
        """Test whether a process may still write to a trace."""
        now = time.monotonic()
        if now - self._written.get(source.fd, -PATIENCE) < PATIENCE:
            return True
        if not is_written(source.fd, [source.header.pid]):
            return False
        self._written[source.fd] = now
        return True

    def more(self, held: Sequence[OpenFile], *, last: bool) -> list[OpenFile]:
        """Open the traces of children that have come."""
        return self._arrivals.more(held, last=last)

    def removed(self, source: OpenFile) -> None:
        """Say that a trace has lost its name."""
        warn_line(f"{clean(str(source.header.path))}: removed; following it to its end")

    def _on_signal(self, number: int, frame: FrameType | None, before: object) -> None:
        if number == signal.SIGIO:  # somebody opens a trace to write: see is_written()
            return
        if (number == signal.SIGPIPE or self._asked.is_set()) and callable(before):
            before(number, frame)
        self._asked.set()
