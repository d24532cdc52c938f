"""The formats of a report, one file each: they only render, in parts that are written as they come.

A format takes events, or what they add up to: totals of functions, or a tree of calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ftpatch.errors import UsageError
from ftpatch.trace.formats.chrome import chrome
from ftpatch.trace.formats.flamegraph import flamegraph
from ftpatch.trace.formats.folded import folded
from ftpatch.trace.formats.function import function
from ftpatch.trace.formats.graph import function_graph
from ftpatch.trace.formats.json_lines import json_lines
from ftpatch.trace.formats.ksym import ksym
from ftpatch.trace.formats.ksym_json import ksym_json
from ftpatch.trace.formats.look import Look
from ftpatch.trace.formats.perfetto import perfetto
from ftpatch.trace.formats.probes import probes
from ftpatch.trace.formats.probes_json import probes_chrome, probes_json
from ftpatch.trace.formats.profile import profile, profile_lines
from ftpatch.trace.header import Tracer
from ftpatch.trace.profiles import read_profiles
from ftpatch.trace.reader import Trace
from ftpatch.trace.rows import Rows
from ftpatch.trace.totals import total
from ftpatch.trace.tree import Tree, grow

__all__ = ["FORMATS", "Format", "format_for"]

Parts = Iterator[str] | Iterator[bytes]
Render = Callable[[Trace, Iterable[Rows], Look], Parts]


@dataclass(frozen=True)
class Format:
    """``text``: whether it is for people, and tells what is missing itself; ``binary``: whether its
    parts are bytes; ``returns``: whether it needs to know when functions return; ``sums``: whether
    nothing comes before everything is read."""

    render: Render
    text: bool = False
    binary: bool = False
    returns: bool = False
    sums: bool = False


def _profile(trace: Trace, batches: Iterable[Rows], look: Look) -> Iterator[str]:
    return profile(trace, total(batches, trace.functions, trace.window), look)


def _folded(trace: Trace, batches: Iterable[Rows], look: Look) -> Iterator[str]:
    return folded(trace, _tree(trace, batches), look)


def _flamegraph(trace: Trace, batches: Iterable[Rows], look: Look) -> Iterator[str]:
    return flamegraph(trace, _tree(trace, batches), look)


def _tree(trace: Trace, batches: Iterable[Rows]) -> Tree:
    tree = grow(batches, trace.window)
    if tree.merged:
        trace.remarks.append(
            f"more than {len(tree.parent)} different stacks: calls that make more of them count as "
            "part of their callers"
        )
    return tree


def _sums(trace: Trace, batches: Iterable[Rows], look: Look) -> Iterator[str]:
    del batches
    return profile(trace, read_profiles(trace), look)


def _sums_as_json(trace: Trace, batches: Iterable[Rows], look: Look) -> Iterator[str]:
    del batches, look
    return (json.dumps(row) + "\n" for row in profile_lines(trace, read_profiles(trace)))


FORMATS = {
    "function_graph": Format(function_graph, text=True, returns=True),
    "function": Format(function, text=True),
    "profile": Format(_profile, text=True, sums=True),
    "folded": Format(_folded, returns=True, sums=True),
    "flamegraph": Format(_flamegraph, returns=True, sums=True),
    "chrome": Format(chrome),
    "perfetto": Format(perfetto, binary=True),
    "json": Format(json_lines),
}
"""Of events."""
OF_PROFILES = {
    "profile": Format(_sums, text=True, sums=True),
    "json": Format(_sums_as_json, sums=True),
}
"""Of what function_profile recorded."""
OF_PROBES = {
    "probes": Format(probes, text=True),
    "chrome": Format(probes_chrome),
    "json": Format(probes_json),
}
"""Of what probes recorded."""
OF_WATCHES = {"ksym": Format(ksym, text=True), "json": Format(ksym_json)}
"""Of accesses to variables."""
DEFAULTS = {Tracer.FUNCTION: "function", Tracer.FUNCTION_PROFILE: "profile"}


def format_for(trace: Trace, name: str | None) -> Format:
    """The format of that name, or the trace's own. Raises UsageError for one that needs what the
    trace does not have."""
    own = DEFAULTS.get(trace.tracer, "function_graph")
    path, name = trace.headers[0].path, name or own
    if trace.tracer == Tracer.FUNCTION_PROFILE:
        if name not in OF_PROFILES:
            raise UsageError(
                path, f"function_profile recorded no events, and {name} needs them", "use profile"
            )
        return OF_PROFILES[name]
    if trace.tracer == Tracer.PROBES:
        name = "probes" if name == own else name
        if name not in OF_PROBES:
            raise UsageError(path, f"probes recorded no calls, and {name} needs them", "use json")
        return OF_PROBES[name]
    if trace.tracer == Tracer.WATCH:
        name = "ksym" if name == own else name
        if name not in OF_WATCHES:
            raise UsageError(path, f"watches recorded no calls, and {name} needs them", "use json")
        return OF_WATCHES[name]
    if name not in FORMATS:
        what = "watches" if name in OF_WATCHES else "probes"
        raise UsageError(path, f"these are not events of {what}", f"use {own}")
    found = FORMATS[name]
    if found.returns and not trace.has_returns:
        raise UsageError(
            path,
            f"the function tracer does not record returns, and {name} needs them",
            "trace with function_graph",
        )
    return found
