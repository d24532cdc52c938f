# SPDX-License-Identifier: MIT
"""Histograms as the kernel's hist triggers print them (hist_trigger_entry_print of
kernel/trace/trace_events_hist.c), with the average, the least and the greatest of each value:

    # event histogram: sold
    { size: ~ 16-31 } hitcount:         12  size:        280 (avg 23, min 16, max 31)

A key that is a stack takes a line for each call, as the kernel's does:

    { stack:
             sell+0x11/0x20
             main+0x2f/0x51
    } hitcount:          1
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from ftpatch.trace.address_names import Places
from ftpatch.trace.call_frames import Stack
from ftpatch.trace.hits import HistKey, HistRow, HistTable, Show
from ftpatch.trace.render.style import Style
from ftpatch.trace.render.values import escaped

__all__ = ["hist_lines", "hist_objects"]

LATENCY = "latency"
CALL = " " * 9
"""Before each call of a stack."""
LINE_END = "\n"


def hist_lines(
    tables: Sequence[HistTable], places: Places, style: Style, *, known: bool
) -> Iterator[str]:
    """The lines of all tables. ``known``: the clock's rate is."""
    for table in tables:
        timed = LATENCY in (*table.names, *table.sums)
        unit = f" ({LATENCY} in {'ns' if known else 'ticks'})" if timed else ""
        yield f"#\n# event histogram: {style.clean(table.point.name)}{unit}\n#\n"
        texts = [_key_text(table, row, places) for row in table.rows]
        width = max((len(text) for text in texts if "\n" not in text), default=0)
        for text, row in zip(texts, table.rows, strict=True):
            line = f"{text:{width}} hitcount: {row.hits:10}"
            for name, one in zip(table.sums, row.sums, strict=True):
                line += f"  {style.clean(name)}: {one.total!s:>10} "
                line += f"(avg {_average(one.total, row.hits)}, min {one.least}, max {one.most})"
            yield line + "\n"
        yield f"# Totals: hits {table.hits}, entries {len(table.rows)}, "
        yield f"dropped {table.point.missed}\n"


def hist_objects(
    tables: Sequence[HistTable], places: Places, pids: list[int]
) -> Iterator[dict[str, object]]:
    """An object for each entry."""
    for table in tables:
        for row in table.rows:
            pairs = zip(table.names, enumerate(row.key), strict=True)
            key = {name: _json(table, number, one, places) for name, (number, one) in pairs}
            sums = {
                name: {"sum": _number(one.total)}
                | {"min": _number(one.least), "max": _number(one.most)}
                for name, one in zip(table.sums, row.sums, strict=True)
            }
            yield {
                "pid": pids[table.header],
                "probe": table.point.name,
                "key": key,
                "hits": row.hits,
                "sums": sums,
            }


def _average(total: int | float, hits: int) -> int | float:
    if not hits:
        return 0
    return total // hits if isinstance(total, int) else total / hits


def _number(value: int | float) -> int | float | str:
    """For JSON, which has no infinities and no NaN."""
    return value if math.isfinite(value) else str(value)


def _key_text(table: HistTable, row: HistRow, places: Places) -> str:
    parts = []
    for number, (name, one) in enumerate(zip(table.names, row.key, strict=True)):
        text = _text(table, number, one, places)
        parts.append(f"{places.shown(name)}:{'' if text.startswith(LINE_END) else ' '}{text}")
    if not parts:
        return "{}"
    return f"{{ {', '.join(parts)}{'' if parts[-1].endswith(LINE_END) else ' '}}}"


def _text(table: HistTable, number: int, one: HistKey, places: Places) -> str:
    if isinstance(one.low, bytes):
        return f'"{escaped(one.low)}"'
    if isinstance(one.low, tuple):
        calls = map(places.shown, _calls(table, one.low))
        return "".join(f"\n{CALL}{name}" for name in calls) + LINE_END
    if isinstance(one.low, float):
        return str(one.low)
    if one.high is not None:
        return f"~ {one.low}-{one.high}" if one.high > one.low else str(one.low)
    named = _named(table, number, one.low, places)
    if named:
        return named
    return f"{one.low:#x}" if table.shows[number] is Show.HEX else str(one.low)


def _json(table: HistTable, number: int, one: HistKey, places: Places) -> object:
    if isinstance(one.low, bytes):
        return one.low.decode("utf-8", "backslashreplace")
    if isinstance(one.low, tuple):
        return _calls(table, one.low)
    if isinstance(one.low, float):
        return _number(one.low)
    if one.high is not None:
        return [one.low, one.high]
    named = _named(table, number, one.low, places)
    return named or (hex(one.low) if table.shows[number] is Show.HEX else one.low)


def _calls(table: HistTable, addresses: tuple[int, ...]) -> list[str]:
    """The names of a stack's calls, the innermost first."""
    assert table.stacks is not None  # who reads stacks names them
    return [one.text for one in table.stacks.frames(Stack(table.header, addresses, cut=False))]


def _named(table: HistTable, number: int, address: int, places: Places) -> str:
    """The name of an address; empty for other values."""
    if table.shows[number] is not Show.SYMBOL:
        return ""
    look = places.callers if table.callers[number] else places.symbols
    (name,) = look(table.header, np.array([address], np.uint64))
    return name
