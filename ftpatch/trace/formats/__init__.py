"""The formats of a report, one file each: they only render, in parts that are written as they come.

A format takes events, or what they add up to: totals of functions, or a tree of calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ftpatch.errors import UsageError
from ftpatch.names.suggest import meant, near
from ftpatch.probe.trace_probes import read_probes
from ftpatch.trace.formats.chrome import chrome
from ftpatch.trace.formats.flamegraph import flamegraph
from ftpatch.trace.formats.folded import folded
from ftpatch.trace.formats.function import function
from ftpatch.trace.formats.graph import function_graph
from ftpatch.trace.formats.json_lines import json_lines
from ftpatch.trace.formats.ksym import ksym
from ftpatch.trace.formats.ksym_json import ksym_json
from ftpatch.trace.formats.perfetto import perfetto
from ftpatch.trace.formats.probes import probes
from ftpatch.trace.formats.probes_calls import of_calls, probes_graph
from ftpatch.trace.formats.probes_chrome import probes_chrome
from ftpatch.trace.formats.probes_json import probes_json
from ftpatch.trace.formats.probes_perfetto import probes_perfetto
from ftpatch.trace.formats.probes_profile import probes_profile
from ftpatch.trace.formats.profile import profile, profile_lines
from ftpatch.trace.formats.style import Look
from ftpatch.trace.header import Tracer
from ftpatch.trace.profiles import read_profiles
from ftpatch.trace.reader import Trace
from ftpatch.trace.rows import Rows
from ftpatch.trace.totals import total
from ftpatch.trace.tree import Tree, grow

__all__ = [
    "DEFAULTS",
    "FORMATS",
    "Format",
    "format_for",
    "format_named",
    "reports_named",
    "require_known",
]

Parts = Iterator[str] | Iterator[bytes] | Iterator[str | bytes]
Render = Callable[[Trace, Iterable[Rows], Look], Parts]


@dataclass(frozen=True)
class Format:
    """``text``: whether it is for people, and tells what is missing itself; ``binary``: whether its
    parts are bytes; ``returns``: whether it needs to know when functions return; ``sums``: whether
    nothing comes before everything is read; ``page``: whether it is for a browser; ``ends``: how
    names of such files end."""

    render: Render
    text: bool = False
    binary: bool = False
    returns: bool = False
    sums: bool = False
    page: bool = False
    ends: tuple[str, ...] = (".txt",)

    @property
    def for_terminal(self) -> bool:
        """True if a terminal has any use for it."""
        return not (self.binary or self.page)


HTML = (".html", ".htm")
PERFETTO = (".perfetto", ".perfetto-trace", ".pftrace")
JSON = (".json", ".jsonl")


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
            f"more than {len(tree.parent)} different stacks: calls on further stacks count as "
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
    "folded": Format(_folded, returns=True, sums=True, ends=(".folded",)),
    "flamegraph": Format(_flamegraph, returns=True, sums=True, page=True, ends=HTML),
    "chrome": Format(chrome, ends=JSON),
    "perfetto": Format(perfetto, binary=True, ends=PERFETTO),
    "json": Format(json_lines, ends=JSON),
}
"""Of events."""
OF_PROFILES = {
    "profile": Format(_sums, text=True, sums=True),
    "json": Format(_sums_as_json, sums=True, ends=JSON),
}
"""Of what function_profile recorded."""
OF_PROBES = {
    "probes": Format(probes, text=True),
    "profile": Format(probes_profile, text=True, sums=True),
    "function_graph": Format(probes_graph, text=True, returns=True),
    "folded": Format(of_calls(_folded), returns=True, sums=True, ends=(".folded",)),
    "flamegraph": Format(of_calls(_flamegraph), returns=True, sums=True, page=True, ends=HTML),
    "chrome": Format(probes_chrome, ends=JSON),
    "perfetto": Format(probes_perfetto, binary=True, ends=PERFETTO),
    "json": Format(probes_json, ends=JSON),
}
"""Of probe events."""
OF_WATCHES = {"ksym": Format(ksym, text=True), "json": Format(ksym_json, ends=JSON)}
"""Of accesses to variables."""
ALL = (FORMATS, OF_PROFILES, OF_PROBES, OF_WATCHES)
OTHERS = {
    Tracer.FUNCTION_PROFILE: (
        "function_profile recorded no events: no {}",
        OF_PROFILES,
    ),
    Tracer.PROBES: ("probe events cannot be reported as {}", OF_PROBES),
    Tracer.WATCH: ("variable accesses cannot be reported as {}", OF_WATCHES),
}
"""Traces that are not of calls: what is said to other formats, and theirs."""
DEFAULTS = dict.fromkeys(Tracer, "function_graph") | {
    Tracer.FUNCTION: "function",
    Tracer.FUNCTION_PROFILE: "profile",
    Tracer.PROBES: "probes",
    Tracer.WATCH: "ksym",
}


def format_for(trace: Trace, name: str | None) -> Format:
    """The format of that name, or the trace's own. Raises UsageError for one that needs what the
    trace does not have."""
    path = trace.headers[0].path
    found = format_named(trace.tracer, name, path, returns=trace.has_returns)
    if found.returns and trace.tracer == Tracer.PROBES and not _any_r_probe(trace):
        raise UsageError(
            path,
            f"{name} needs returns, and there is no r probe",
            f"use {_names(OF_PROBES, returns=False)}",
        )
    return found


def format_named(
    tracer: Tracer, name: str | None, path: Path | None = None, *, returns: bool | None = None
) -> Format:
    """The format of that name, or the tracer's own. Raises UsageError, about the trace ``path``,
    for one that there is not, or that needs what the tracer does not record; ``returns``: whether
    a trace has returns, whatever this tracer records."""
    own = DEFAULTS[tracer]
    name = name or own
    require_known(name)
    what, formats = OTHERS.get(tracer, ("", FORMATS))
    found = formats.get(name)
    if found is None and what:
        raise UsageError(path, what.format(name), f"use {_names(formats)}")
    if found is None:
        other = "watches" if name in OF_WATCHES else "probes"
        raise UsageError(path, f"these are not events of {other}", f"use {own}")
    if found.returns and not (tracer != Tracer.FUNCTION if returns is None else returns):
        raise UsageError(
            path,
            f"the function tracer does not record returns, and {name} needs them",
            "trace with function_graph",
        )
    return found


def require_known(name: str) -> None:
    """Raise UsageError for a format that there is not."""
    known = [*dict.fromkeys(name for formats in ALL for name in formats)]
    if name not in known:
        hint = meant(near(name, known), f"use {', '.join(known)}")
        raise UsageError(None, f"unknown format {name!r}", hint)


def reports_named(tracer: Tracer, ending: str) -> list[str]:
    """The formats of a tracer whose files have names that end in ``ending``, its own first."""
    own = DEFAULTS[tracer]
    _, formats = OTHERS.get(tracer, ("", FORMATS))
    found = [name for name, one in formats.items() if ending in one.ends]
    return sorted(found, key=lambda name: name != own)


def _any_r_probe(trace: Trace) -> bool:
    probes = (read_probes(source.fd, source.header) for source in trace.sources)
    return any(probe.returns for those in probes for probe in those)


def _names(formats: Mapping[str, Format], *, returns: bool = True) -> str:
    """``a, b or c``."""
    names = [name for name, one in formats.items() if returns or not one.returns]
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
