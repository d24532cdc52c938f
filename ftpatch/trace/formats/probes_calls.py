"""Events of r probes as the calls of a tracer: in graphs, stacks and flame graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.columns import addresses, among
from ftpatch.probe.address_names import Places
from ftpatch.probe.fetched import seen
from ftpatch.probe.hit_calls import calls, limit_depth
from ftpatch.probe.hits import Hits, read_hits
from ftpatch.trace.formats.cells import lines
from ftpatch.trace.formats.graph import function_graph
from ftpatch.trace.formats.probes import event_parts, value_parts
from ftpatch.trace.formats.style import Look, Strings, called
from ftpatch.trace.reader import Trace
from ftpatch.trace.rows import Kind, Rows

__all__ = ["name_functions", "of_calls", "probes_graph"]

Render = Callable[[Trace, Iterable[Rows], Look], Iterator[str]]


def of_calls(render: Render) -> Callable[..., Iterator[str]]:
    """A tracers' format, for what r probes saw."""

    def rendered(trace: Trace, batches: Iterable[Rows], look: Look) -> Iterator[str]:
        del batches
        hits = read_hits(trace)
        limit_depth(hits)
        return render(trace, calls(hits, name_functions(hits)), look)

    return rendered


def probes_graph(trace: Trace, batches: Iterable[Rows], look: Look) -> Iterator[str]:
    """The report, in parts: calls of functions with r probes, and among them, as ftrace's
    function_graph has events of others, what p probes saw."""
    del batches
    hits, places = read_hits(trace), Places(trace, look.clean)
    limit_depth(hits)
    functions = name_functions(hits)

    def tell(trace: Trace, rows: Rows, look: Look) -> Strings:
        names = look.names(trace.functions)
        sources = [f" /* {look.clean(one)} */" if one else "" for one in trace.functions.source]
        columns = (rows.kind.tolist(), rows.function.tolist(), _seen(hits, places, look, rows))
        out = np.empty(len(rows), object)
        out[:] = [
            _call(kind, names[function], values, sources[function])
            for kind, function, values in zip(*columns, strict=True)
        ]
        return out

    return function_graph(trace, calls(hits, functions), look, tell)


def name_functions(hits: Hits) -> NDArray[np.int32]:
    """The number of each probe's function, int32[p]; they become those of the trace."""
    trace, places = hits.trace, Places(hits.trace, str)
    functions = trace.functions
    known: dict[tuple[int, str, int], int] = {}
    out = []
    for file, probe in zip(hits.files, hits.probes, strict=True):
        program = trace.program[file]
        name, start = places.function(file, probe)
        number = known.setdefault((program, name, start), len(known))
        out.append(number)
        if number == len(functions):
            lines_ = functions.programs[program].lines
            functions.name.append(name)
            functions.symbol.append(functions.programs[program].symbols.get(name, name))
            functions.address.append(start)
            (source,) = lines_.places(addresses(start)) if lines_ else ("",)
            functions.source.append(source)
            functions.library.append("")
    return np.array(out, np.int32)


def _seen(hits: Hits, places: Places, look: Look, rows: Rows) -> list[str]:
    """What the events of rows had, one for each row: of points all, of calls that ended values."""
    out = np.full(len(rows), "", object)
    hit = rows.value.astype(np.intp)
    points = rows.kind == Kind.POINT
    ends = among(rows.kind, (Kind.LEAF, Kind.LEAVE, Kind.RETURN))
    for mask, whole in ((points, True), (ends, False)):
        mine = np.flatnonzero(mask)
        number = hits.probe[hit[mine]]
        for probe in np.unique(number).tolist():
            place = mine[number == probe]
            event = seen(hits, probe, hit[place])
            told = event_parts(event, places, look, duration=False) if whole else ()
            parts = told or value_parts(event, places)
            out[place] = b"\n".join(lines(len(place), parts)).decode().split("\n")
    return list(out.tolist())


def _call(kind: int, name: str, values: str, source: str) -> str:
    if kind == Kind.POINT:
        return f"/* {values} */"
    if kind == Kind.ENTER:
        return f"{called(name, '')} {{{source}"
    if kind == Kind.LEAF:
        return f"{called(name, '')};{f' /*{values} */' if values else ''}{source}"
    return f"}} /* {name}{values} */"
