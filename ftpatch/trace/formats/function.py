# SPDX-License-Identifier: MIT
"""Text as ftrace's function tracer has it (print_func_help_header in kernel/trace/trace.c)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ftpatch.trace.order import by_time
from ftpatch.trace.render.call_text import CallTexts
from ftpatch.trace.render.instant_texts import InstantTexts
from ftpatch.trace.render.style import Callers, Style, ThreadTexts
from ftpatch.trace.report import Report
from ftpatch.trace.rows import Kind
from ftpatch.trace.several_kinds import Together
from ftpatch.trace.source import Data, EventSource

__all__ = ["REPORT"]

HEADER = """\
#           TASK-TID       TIMESTAMP   FUNCTION
#              | |             |          |
"""
PROCESS_HEADER = """\
#           TASK-TID       TGID        TIMESTAMP   FUNCTION
#              | |           |             |          |
"""
"""With the process, as ftrace's option record-tgid adds it (print_func_help_header)."""


def _function(source: EventSource, style: Style) -> Iterator[str]:
    recording = source.recording
    yield from style.header(tracer="function")
    several = len(recording.headers) > 1
    yield PROCESS_HEADER if several else HEADER

    def made() -> list[str]:
        of = zip(recording.comms, recording.tids, recording.pids, strict=True)
        return [_task(style.clean(comm), tid, pid, several) for comm, tid, pid in of]

    tasks = ThreadTexts(recording, made)
    callers = Callers(recording, style.shown)
    calls = CallTexts(recording, style.clean)
    stamp = _seconds if recording.has_clock else str
    instants = InstantTexts(source, style) if isinstance(source, Together) else None
    batches = style.rows(source)
    for rows in by_time(batches if instants is None else instants.among(batches)):
        if not several and len(recording.headers) > 1:  # a child's has come
            several = True
            yield PROCESS_HEADER
        rows = rows.take((rows.kind == Kind.ENTER) | (rows.kind == Kind.POINT))
        rows = recording.window.within(rows)
        if not len(rows):
            continue
        names = np.array([*style.names(recording.functions), ""], object)
        called = names[rows.function].tolist()
        for i in np.flatnonzero(rows.args >= 0).tolist():
            called[i] = calls.text(rows, i, called[i])
        if instants is not None:
            called = instants.put_into(called, rows)
        sources = [f" /* {style.clean(s)} */" if s else "" for s in recording.functions.source]
        place = np.array([*sources, ""], object)[rows.function].tolist()
        columns = (
            tasks.of(rows.thread).tolist(),
            rows.time.tolist(),
            called,
            callers.of(rows),
            place,
        )
        yield "".join(
            f"{task}{stamp(time)}: {name}{' <-' * bool(caller)}{caller}{at}\n"
            for task, time, name, caller, at in zip(*columns, strict=True)
        )


def _task(comm: str, tid: int, pid: int, several: bool) -> str:
    return f"{comm:>16}-{tid:<7} " + (f"({pid:>7}) " if several else "")


def _seconds(ns: int) -> str:
    """Seconds and microseconds, as trace_print_context() has them."""
    return f"{ns // 10**9:5}.{ns // 1000 % 10**6:06}"


class Function(Report):
    """ftrace's function."""

    name = "function"
    shows = Data.CALLS
    follows = Data.CALLS
    text = True
    together = True

    def render(self, source: EventSource, style: Style) -> Iterator[str]:
        return _function(source, style)


REPORT: Report = Function()
