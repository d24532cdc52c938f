# SPDX-License-Identifier: MIT
"""Trace files reported on together: written as a report, or walked through on the terminal."""

from __future__ import annotations

import contextlib
import os
import re
import resource
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ftpatch.cli.browser import open_in_browser, require_browser
from ftpatch.cli.console import clean, count, note_lines, warn_line
from ftpatch.cli.held_back import HeldBack
from ftpatch.cli.report_output import open_output
from ftpatch.cli.report_walk import is_walked, walk
from ftpatch.io.activity import doing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from ftpatch.api.report_programs import Programs
    from ftpatch.cli.report_folder import FolderOutput
    from ftpatch.cli.report_output import Output
    from ftpatch.trace import EventSource, Recording, Report
    from ftpatch.trace.children import Beside
    from ftpatch.trace.header import Header
    from ftpatch.trace.lost_events import Reason
    from ftpatch.trace.rows import Rows
    from ftpatch.trace.window import Window

    Choose = Callable[[EventSource], Report]

__all__ = [
    "ROW",
    "Task",
    "allow_descriptors",
    "headers_of",
    "notes_of",
    "progress",
    "report_accesses",
    "tell_children",
    "tell_lost",
    "tell_newer",
    "walked",
    "write_report",
]

OTHERS = 64
"""Approximate number of open descriptors that are not traces."""
ROW = re.compile("^[^#\n]", re.MULTILINE)
"""The beginning of what is not a heading in a text report."""
NEXT = re.compile(r"\.r\d+$")
"""The end of the name of a file that a process begins when one is full."""
SHOWN = 3
"""Maximum number of files to name."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """The trace files to report on together; ``children`` are those of them that nobody named, of
    what lies ``beside`` the others; ``alone``: no such files are wanted;
    ``verbose``: names in full, in text too; ``told``: notes that standard error has already."""

    files: Sequence[Path]
    window: Window
    programs: Programs
    image: Path | None = None
    children: Sequence[Path] = ()
    beside: Beside | None = None
    alone: bool = False
    verbose: bool = False
    told: Collection[str] = ()


def walked(task: Task, tui: bool | None, *, force: bool) -> bool:
    """Let the user walk through the calls, if that is what they want of this recording; return
    whether it was."""
    from ftpatch.api.report_sources import open_events
    from ftpatch.trace import Style
    from ftpatch.trace.several_kinds import part_of
    from ftpatch.trace.source import Data

    allow_descriptors(len(task.files))
    events = open_events(task.files, task.window, image=task.image, force=force)
    try:
        events.recording.name_by(task.programs.of)
        calls = part_of(events, Data.CALLS)
        if not is_walked(calls, tui):
            return False
        walk(calls, Style(clean, notes_of(events.recording), progress))
        note_lines(events.notes())
    finally:
        events.close()
    tell_children(task.children)
    tell_newer(task)
    return True


def write_report(
    task: Task,
    choose: Choose,
    output: Path | None,
    *,
    force: bool,
    paged: bool = True,
    browse: bool = False,
) -> None:
    """Write one report, on a terminal ``paged``, and say on standard error what is missing;
    ``browse``: open it. Nothing is printed before all filters have matched."""
    pages: list[tuple[Report, Path]] = []

    def opened(form: Report) -> Output | FolderOutput:
        pages[:] = require_browser([(form, output)], "use --format html -o FILE") if browse else []
        return open_output(output, force=force, form=form, paged=paged)

    try:
        holds = output is None and bool(task.window.wanted)
        if not _written(task, choose, opened, force=force, holds=holds):
            anew = replace(task, window=replace(task.window))  # it knows functions by their numbers
            _written(anew, choose, opened, force=force, holds=False)
        tell_children(task.children)
    finally:
        tell_newer(task)
    for _, page in pages:
        open_in_browser(page)


def _written(
    task: Task,
    choose: Choose,
    opened: Callable[[Report], Output | FolderOutput],
    *,
    force: bool,
    holds: bool,
) -> bool:
    """Write one report; with ``holds`` nothing before all filters have matched. False: nothing was
    written, too much had to be held back, and all filters match."""
    from ftpatch.api.report_sources import open_events
    from ftpatch.trace import Style
    from ftpatch.trace.by_process import processes_of

    window = task.window
    allow_descriptors(len(task.files))
    events = open_events(task.files, window, image=task.image, force=force)
    try:
        form = choose(events)
        with opened(form) as out:
            events.recording.name_by(task.programs.of)
            missing = notes_of(events.recording)
            processes = processes_of(events.recording) if form.text else ""
            style = Style(clean, [clean(processes), *missing] if processes else missing)
            style.short = form.text and not task.verbose
            if form.sums or not out.is_terminal:  # a bar would stand among the lines
                style.progress = progress
            held, is_empty = HeldBack(window, events.recording.functions), form.text
            parts = form.render(events, style)
            for part in held.parts(parts) if holds else parts:
                out.write(part)
                is_empty = is_empty and isinstance(part, str) and not ROW.search(part)
                if out.is_left:
                    break
            if held.dropped:
                return False
            if window.wanted and not out.is_left:
                window.require_match(events.recording.functions)
            out.appear()
        if is_empty and not out.is_left and window.options:
            warn_line(f"no event passes {' and '.join(window.options)}")
        if not form.text:
            note_lines(notes_of(events.recording, but=task.told))
        note_lines(events.notes())
    finally:
        events.close()
    return True


def report_accesses(events: EventSource, form: Report, output: Path | None, *, force: bool) -> None:
    """Write a report of accesses that are in memory."""
    from ftpatch.trace import Style

    with open_output(output, force=force, form=form) as out:
        style = Style(clean, notes_of(events.recording))
        style.short = form.text
        for part in form.render(events, style):
            out.write(part)
        out.appear()
    note_lines(events.notes())


def allow_descriptors(files: int) -> None:
    """Raise the limit of open descriptors that we began with, for a program with many children."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < files + OTHERS:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def tell_children(children: Sequence[Path]) -> None:
    """Name the files of children that a report takes in."""
    if children:
        number = f"{count(len(children), 'file')} of the program's children"
        if any(NEXT.search(child.name) for child in children):
            number = f"{count(len(children), 'other file')} of this run"
        note_lines([f"with {number}: {_some(children)}; use --no-children for FILE alone"])


def tell_newer(task: Task) -> None:
    """Name the newer files that a report does not take in, and what is damaged.

    Of a name that exists the runtime makes NAME.PID, and so do children."""
    from ftpatch.trace.children import Beside

    beside = task.beside or Beside(task.files)
    for error in [] if task.alone else beside.damaged[:SHOWN]:
        warn_line(f"{error}; left out")
    unwanted = beside.children if task.alone else []
    found = [path for path in beside.newer(task.files) if path not in unwanted]
    if found:
        warn_line(f"newer files, not part of this report: {_some(found)}")


def _some(files: Sequence[Path]) -> str:
    names = ", ".join(clean(str(one)) for one in files[:SHOWN])
    return names + (f" and {len(files) - SHOWN} more" if len(files) > SHOWN else "")


def progress(rows: Iterator[Rows], steps: int) -> Iterator[Rows]:
    """Show on standard error how much of the recording has been read; a single batch has no
    parts to tell."""
    with doing("reading the recording", steps if steps > 1 else 0) as now:
        for batch in rows:
            now.done += 1
            yield batch


def notes_of(recording: Recording, *, but: Collection[str] = ()) -> list[str]:
    """Say what is missing, and of which file, if there are several; ``but``: notes to leave out."""
    several = len(recording.headers) > 1
    return [
        (f"{clean(str(header.path))}: " if several else "") + note
        for header in recording.headers
        for note in header.notes
        if note not in but
    ]


def headers_of(files: Sequence[Path]) -> list[Header]:
    """The headers of trace files. Raises InputError."""
    from ftpatch.trace.header import open_trace

    headers = []
    for file in files:
        fd, header = open_trace(file)
        os.close(fd)
        headers.append(header)
    return headers


def tell_lost(headers: Sequence[Header]) -> set[str]:
    """Say on standard error how many events were lost in recording these files, and what to do
    about that. Returns their notes that say so."""
    from ftpatch.trace.header import Tracer
    from ftpatch.trace.lost_events import lost_advice, lost_text

    lost: Counter[Reason] = Counter()
    for header in headers:
        lost.update(header.lost_events)
    if lost:
        functions = any(one.tracer not in (Tracer.PROBES, Tracer.WATCH) for one in headers)
        advice = lost_advice(lost, functions=functions)
        warn_line(": ".join(filter(None, (lost_text(lost, options=False), advice))))
    return {header.lost_note for header in headers if header.lost_note}
