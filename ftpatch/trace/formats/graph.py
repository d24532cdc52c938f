# SPDX-License-Identifier: MIT
"""Text as ftrace's function_graph has it (kernel/trace/trace_functions_graph.c).

Where ftrace has the CPU there is the thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ftpatch.core.columns import among
from ftpatch.trace.address_names import Places
from ftpatch.trace.hits import Hits
from ftpatch.trace.order import by_time
from ftpatch.trace.render.call_text import CallTexts
from ftpatch.trace.render.cells import lines
from ftpatch.trace.render.instant_texts import InstantTexts
from ftpatch.trace.render.style import (
    Strings,
    Style,
    ThreadTexts,
    called,
    returned,
    strings,
    time_text,
)
from ftpatch.trace.render.values import hit_parts, text_parts
from ftpatch.trace.report import Report
from ftpatch.trace.rows import Kind, Rows
from ftpatch.trace.several_kinds import Together
from ftpatch.trace.source import Data, EventSource, Recording

__all__ = ["REPORT"]

MARKS = ((10**9, "$"), (10**8, "@"), (10**7, "*"), (10**6, "#"), (10**5, "!"), (10**4, "+"))
"""Marks before durations of more nanoseconds than this (trace_find_mark)."""
BLANK = " " * 14 + "|  "
MAX_INDENT = 256
"""Levels to indent; deeper calls stand in the same column."""
KINDS = len(Kind) + 1
CAME_BACK = len(Kind)
"""A RETURN from a frame whose end is told already, where it was left."""


def _function_graph(source: EventSource, style: Style) -> Iterator[str]:
    """Calls by time; what hits of other points saw stands among them, as in ftrace's
    function_graph events of others do."""
    recording = source.recording
    both = isinstance(source, Together)
    hits = None if both else source.hits()
    tell: Callable[[Rows], Strings] = _Calls(recording, style).tell
    if hits is not None:
        tell = _Hits(recording, hits, style).tell
    batches = style.rows(source)
    if both:
        instants = InstantTexts(source, style)
        tell, batches = instants.beside(tell, "/* {} */"), instants.among(batches)
    yield from style.header(tracer="function_graph")
    several = len(recording.headers) > 1

    def names() -> list[str]:
        pairs = [*zip(recording.pids, recording.tids, strict=True)]
        # Before the first thread is there, its number may be the process's.
        pairs = pairs or [(one.pid, one.pid) for one in recording.headers]
        return [f"{pid}/{tid}" if several else str(tid) for pid, tid in pairs]

    def padded() -> list[str]:
        width = max(map(len, names()), default=1)
        return [f" {name:>{width}}) " for name in names()]

    yield _header(names(), several=several)
    thread = ThreadTexts(recording, padded)
    indents = np.array(["  " * level for level in range(MAX_INDENT + 1)], object)
    known = recording.has_clock
    for rows in by_time(batches, leaves=True):
        if not several and len(recording.headers) > 1:  # a child's has come
            several = True
            yield _header(names(), several=several)
        rows = recording.window.within(rows)
        duration = np.where(rows.kind == Kind.UNWOUND, -1, rows.duration)
        columns = (
            thread.of(rows.thread),
            strings(duration, lambda ns: _spent(ns, known)),
            indents[np.minimum(rows.level, MAX_INDENT)],
            tell(rows),
        )
        table = zip(*(column.tolist() for column in columns), strict=True)
        yield "".join([f"{who}{spent}{indent}{call}\n" for who, spent, indent, call in table])


def _header(names: list[str], *, several: bool) -> str:
    column = "PID/TID" if several else "TID"
    pad = " " * max(max(map(len, names), default=1) - len(column) + 2, 0)
    bar = f"# |{' ' * (len(column) + len(pad))}   |   |                     |   |   |   |\n"
    return f"# {column}{pad}  DURATION                  FUNCTION CALLS\n{bar}"


def _spent(ns: int, known: bool) -> str:
    if ns < 0:
        return BLANK
    mark = next((mark for least, mark in MARKS if ns > least), " ") if known else " "
    return f"{mark} {time_text(ns, known)}|  "


def _names(recording: Recording, style: Style) -> tuple[list[str], list[str]]:
    """Names of functions, and comments that tell their sources."""
    functions = recording.functions
    sources = [f" /* {style.clean(one)} */" if one else "" for one in functions.source]
    return style.names(functions), sources


class _Calls:
    """Calls with their arguments and values."""

    def __init__(self, recording: Recording, style: Style) -> None:
        self._recording, self._style = recording, style
        self._calls = CallTexts(recording, style.clean)

    def tell(self, rows: Rows) -> Strings:
        """What stands behind the line and the indentation of each row."""
        names, sources = _names(self._recording, self._style)
        special = np.flatnonzero((rows.args >= 0) | ((rows.flags & Rows.VALUE) > 0))

        def text(kind: int, function: int, call: str = "", value: str = "") -> str:
            name = names[function]
            call = call or called(name, "")
            if kind == Kind.ENTER or kind == Kind.POINT:
                return f"{call} {{{sources[function]}"
            if kind == Kind.LEAF:
                note = f" /* {value} */" if value else ""
                return f"{call};{note}{sources[function]}"
            note = f"/* {name}{' ' * bool(value)}{value}"
            return f"{note} returned, left before */" if kind == CAME_BACK else f"}} {note} */"

        kinds = np.where((rows.kind == Kind.RETURN) & (rows.late >= 0), CAME_BACK, rows.kind)
        code = rows.function.astype(np.int64) * KINDS + kinds
        out = strings(code, lambda code: text(code % KINDS, code // KINDS))
        args, valued = rows.args.tolist(), (rows.flags & Rows.VALUE).tolist()
        for i in special.tolist():
            kind, function = int(kinds[i]), int(rows.function[i])
            call = self._calls.text(rows, i, names[function]) if args[i] >= 0 else ""
            shown = valued[i] and kind not in (Kind.ENTER, Kind.POINT)
            value = f"= {returned(int(rows.value[i]))}" if shown else ""
            out[i] = text(kind, function, call, value)
        return out


class _Hits:
    """Calls that were seen when they returned, with their values, and other hits."""

    def __init__(self, recording: Recording, hits: Hits, style: Style) -> None:
        self._recording, self._hits, self._style = recording, hits, style
        self._places = Places(recording, style.clean, style.shown)

    def tell(self, rows: Rows) -> Strings:
        """What stands behind the line and the indentation of each row."""
        names, sources = _names(self._recording, self._style)
        columns = (rows.kind.tolist(), rows.function.tolist(), self._values(rows))
        out = np.empty(len(rows), object)
        out[:] = [
            _call(kind, names[function], values, sources[function])
            for kind, function, values in zip(*columns, strict=True)
        ]
        return out

    def _values(self, rows: Rows) -> list[str]:
        """What hits had, one for each row: of instants all, of calls that ended values."""
        out = np.full(len(rows), "", object)
        hit = rows.value.astype(np.intp)
        points = rows.kind == Kind.POINT
        ends = among(rows.kind, (Kind.LEAF, Kind.LEAVE, Kind.RETURN))
        for mask, whole in ((points, True), (ends, False)):
            mine = np.flatnonzero(mask)
            number = self._hits.point[hit[mine]]
            for point in np.unique(number).tolist():
                place = mine[number == point]
                event = self._hits.group(point, hit[place])
                parts = hit_parts if whole else text_parts
                made = lines(len(place), parts(event, self._places))
                out[place] = b"\n".join(made).decode().split("\n")
        return list(out.tolist())


def _call(kind: int, name: str, values: str, source: str) -> str:
    if kind == Kind.POINT:
        return f"/* {values} */"
    if kind == Kind.ENTER:
        return f"{called(name, '')} {{{source}"
    if kind == Kind.LEAF:
        return f"{called(name, '')};{f' /*{values} */' if values else ''}{source}"
    return f"}} /* {name}{values} */"


class Graph(Report):
    """ftrace's function_graph."""

    name = "function_graph"
    shows = Data.CALLS | Data.HITS
    follows = Data.CALLS
    text = True
    returns = True
    together = True

    def render(self, source: EventSource, style: Style) -> Iterator[str]:
        return _function_graph(source, style)


REPORT: Report = Graph()
