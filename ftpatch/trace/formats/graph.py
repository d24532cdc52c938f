"""Text as ftrace's function_graph has it (kernel/trace/trace_functions_graph.c).

Where ftrace has the CPU there is the thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from ftpatch.trace.formats.style import Look, Strings, called, returned, strings
from ftpatch.trace.order import by_time
from ftpatch.trace.reader import Trace
from ftpatch.trace.rows import Kind, Rows

__all__ = ["function_graph", "time_text"]

MARKS = ((10**9, "$"), (10**8, "@"), (10**7, "*"), (10**6, "#"), (10**5, "!"), (10**4, "+"))
"""Marks before durations of more nanoseconds than this (trace_find_mark)."""
BLANK = " " * 14 + "|  "
DEEPEST = 256
"""Levels that are indented."""
KINDS = len(Kind) + 1
CAME_BACK = len(Kind)
"""A RETURN from a frame whose end is told already, where it was left."""
Tell = Callable[[Trace, Rows, Look], Strings]


def function_graph(
    trace: Trace, batches: Iterable[Rows], look: Look, tell: Tell | None = None
) -> Iterator[str]:
    """The report, in parts; ``tell`` gives what stands behind the line and the indentation."""
    tell = tell or _calls
    pids = trace.pids if len(trace.headers) > 1 else None
    names = [f"{pids[i]}/{tid}" if pids else str(tid) for i, tid in enumerate(trace.tids)]
    width = max(map(len, names), default=1)
    yield from _header(look, "PID/TID" if pids else "TID", width)
    thread = np.array([f" {name:>{width}}) " for name in names], object)
    indents = np.array(["  " * level for level in range(DEEPEST + 1)], object)
    known = trace.has_clock
    for rows in by_time(batches, leaves=True):
        rows = trace.window.within(rows)
        duration = np.where(rows.kind == Kind.LEFT, -1, rows.duration)
        columns = (
            thread[rows.thread],
            strings(duration, lambda ns: _spent(ns, known)),
            indents[np.minimum(rows.level, DEEPEST)],
            tell(trace, rows, look),
        )
        table = zip(*(column.tolist() for column in columns), strict=True)
        yield "".join([f"{who}{spent}{indent}{call}\n" for who, spent, indent, call in table])


def time_text(ns: int, known: bool = True) -> str:
    """Microseconds in seven digits, as trace_print_graph_duration() has them; ticks, where the
    clock's rate is not ``known``."""
    if not known:
        return f"{ns} ticks".ljust(11) + " "
    whole = str(ns // 1000)
    if len(whole) < 7:
        whole += f".{ns % 1000:03}"[: 8 - len(whole)]
    return f"{whole} us ".ljust(12)


def _header(look: Look, column: str, width: int) -> Iterator[str]:
    yield "# tracer: function_graph\n#\n"
    yield from (f"# {note}\n" for note in look.notes)
    yield "#\n" if look.notes else ""
    pad = " " * max(width - len(column) + 2, 0)
    yield f"# {column}{pad}  DURATION                  FUNCTION CALLS\n"
    yield f"# |{' ' * (len(column) + len(pad))}   |   |                     |   |   |   |\n"


def _spent(ns: int, known: bool) -> str:
    if ns < 0:
        return BLANK
    mark = next((mark for least, mark in MARKS if ns > least), " ") if known else " "
    return f"{mark} {time_text(ns, known)}|  "


def _calls(trace: Trace, rows: Rows, look: Look) -> Strings:
    """Calls with their arguments and values."""
    names = look.names(trace.functions)
    sources = [f" /* {look.clean(s)} */" if s else "" for s in trace.functions.source]
    special = np.flatnonzero((rows.args >= 0) | ((rows.flags & Rows.VALUE) > 0))

    def text(kind: int, function: int, args: str = "", value: str = "") -> str:
        name = names[function]
        if kind == Kind.ENTER or kind == Kind.POINT:
            return f"{called(name, args)} {{{sources[function]}"
        if kind == Kind.LEAF:
            note = f" /* {value} */" if value else ""
            return f"{called(name, args)};{note}{sources[function]}"
        note = f"/* {name}{' ' * bool(value)}{value}"
        return f"{note} returned, left before */" if kind == CAME_BACK else f"}} {note} */"

    kinds = np.where((rows.kind == Kind.RETURN) & (rows.late >= 0), CAME_BACK, rows.kind)
    code = rows.function.astype(np.int64) * KINDS + kinds
    out = strings(code, lambda code: text(code % KINDS, code // KINDS))
    args, valued = rows.args.tolist(), (rows.flags & Rows.VALUE).tolist()
    for i in special.tolist():
        kind = int(kinds[i])
        arguments = rows.arguments[args[i]].tolist() if args[i] >= 0 else []
        shown = valued[i] and kind not in (Kind.ENTER, Kind.POINT)
        value = f"= {returned(int(rows.value[i]))}" if shown else ""
        out[i] = text(kind, int(rows.function[i]), ", ".join(map(hex, arguments)), value)
    return out
