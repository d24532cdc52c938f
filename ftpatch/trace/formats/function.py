"""Text as ftrace's function tracer has it (print_func_help_header in kernel/trace/trace.c)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ftpatch.trace.formats.style import Callers, Look
from ftpatch.trace.order import by_time
from ftpatch.trace.reader import Trace
from ftpatch.trace.rows import Kind, Rows

__all__ = ["function"]

HEADER = """\
#           TASK-TID       TIMESTAMP   FUNCTION
#              | |             |          |
"""


def function(trace: Trace, batches: Iterable[Rows], look: Look) -> Iterator[str]:
    """The report, in parts."""
    yield "# tracer: function\n#\n"
    yield from (f"# {note}\n" for note in look.notes)
    yield "#\n" if look.notes else ""
    yield HEADER
    pairs = zip(trace.comms, trace.tids, strict=True)
    tasks = np.array([f"{look.clean(comm):>16}-{tid:<7} " for comm, tid in pairs], object)
    callers = Callers(trace, look.clean)
    stamp = _seconds if trace.has_clock else str
    for rows in by_time(batches):
        rows = rows.take((rows.kind == Kind.ENTER) | (rows.kind == Kind.POINT))
        rows = trace.window.within(rows)
        if not len(rows):
            continue
        names = np.array(look.names(trace.functions), object)
        called = names[rows.function].tolist()
        for i in np.flatnonzero(rows.args >= 0).tolist():
            called[i] += f"({', '.join(map(hex, rows.arguments[rows.args[i]].tolist()))})"
        sources = [f" /* {look.clean(s)} */" if s else "" for s in trace.functions.source]
        place = np.array(sources, object)[rows.function].tolist()
        columns = (tasks[rows.thread].tolist(), rows.time.tolist(), called, callers.of(rows), place)
        yield "".join(
            f"{task}{stamp(time)}: {name}{' <-' * bool(caller)}{caller}{at}\n"
            for task, time, name, caller, at in zip(*columns, strict=True)
        )


def _seconds(ns: int) -> str:
    """Seconds and microseconds, as trace_print_context() has them."""
    return f"{ns // 10**9:5}.{ns // 1000 % 10**6:06}"
