"""Totals of functions, in the words of ftrace's trace_stat/function."""

from __future__ import annotations

from collections.abc import Iterator

from ftpatch.trace.formats.graph import time_text
from ftpatch.trace.formats.style import Look
from ftpatch.trace.reader import Trace
from ftpatch.trace.totals import Totals

__all__ = ["profile", "profile_lines"]

HEADER = """\
       Hit    Time            Avg             Self            Function
       ---    ----            ---             ----            --------
"""


def profile(trace: Trace, totals: Totals, look: Look) -> Iterator[str]:
    """The report, in parts. Names stand last, since those of C++ have any length."""
    yield "# tracer: function_profile\n#\n" if look.notes else ""
    yield from (f"# {note}\n" for note in look.notes)
    yield "#\n" if look.notes else ""
    yield HEADER
    names, sources = look.names(trace.functions), trace.functions.source
    timed, known = trace.has_returns, trace.has_clock
    for function, hits, time, own in _rows(totals):
        source = f" ({look.clean(sources[function])})" if sources[function] else ""
        spent = (time, time // max(hits, 1), own)
        cells = [time_text(max(ns, 0), known) if timed else "-" for ns in spent]
        line = "".join(f"{cell:<16}" for cell in cells)
        yield f"{hits:>10}    {line}{names[function]}{source}\n"


def profile_lines(trace: Trace, totals: Totals) -> Iterator[dict[str, object]]:
    """The same as objects, with times in nanoseconds."""
    functions = trace.functions
    for function, hits, time, own in _rows(totals):
        row: dict[str, object] = {
            "function": functions.name[function],
            "address": hex(functions.address[function]),
            "hits": hits,
        }
        if trace.has_returns:
            row |= {"total": time, "avg": time // max(hits, 1), "self": own}
        if functions.library[function]:
            row["library"] = functions.library[function]
        if functions.source[function]:
            row["source"] = functions.source[function]
        yield row


def _rows(totals: Totals) -> Iterator[tuple[int, int, int, int]]:
    columns = (totals.function, totals.hits, totals.time, totals.own)
    yield from zip(*(column.tolist() for column in columns), strict=True)
