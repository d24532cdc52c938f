# SPDX-License-Identifier: MIT
"""``ftpatch report``: a report of recorded events."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ftpatch.cli.call_filters import (
    MaxCalls,
    MaxDepth,
    Only,
    TimeFilter,
    Trigger,
    call_filters,
)
from ftpatch.cli.completion import report_formats, traces
from ftpatch.cli.console import error_line, lines, warn_line
from ftpatch.cli.options import FullNames, Json, format_of
from ftpatch.cli.report_task import Task, walked, write_report
from ftpatch.cli.report_walk import can_walk
from ftpatch.errors import UsageError
from ftpatch.io.temporary import require_place

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftpatch.trace import EventSource, Report

    Choose = Callable[[EventSource], Report]

__all__ = ["command"]

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE",
        readable=False,
        autocompletion=traces,
        help="Trace files of a program; those of its children beside them are included.",
    ),
]
ReportFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        autocompletion=report_formats,
        help="Report format: function_graph, function, profile, histogram, probes, ksym, folded, "
        "flamegraph, html, chrome, perfetto, pprof, uftrace, trace-dat or json "
        "[default: the tracer's own].",
    ),
]
Of = Annotated[
    Path | None,
    typer.Option("--image", metavar="IMAGE", help="Path of the patched program, if it has moved."),
]
NoChildren = Annotated[
    bool,
    typer.Option(
        "--no-children",
        help="Leave out the traces of the program's children that lie beside FILE.",
    ),
]
Time = Annotated[
    str | None,
    typer.Option(
        "--time",
        metavar="FROM-TO",
        help="Time range in seconds since the start; either end is optional.",
    ),
]
Tid = Annotated[
    list[int], typer.Option("--tid", metavar="TID", help="Threads to show. Repeatable.")
]
Functions = Annotated[
    list[str],
    typer.Option(
        "-f",
        "--filter",
        metavar="GLOB",
        help="Functions to show: * ? [] match, !GLOB removes. Repeatable.",
    ),
]
NoDemangle = Annotated[
    bool, typer.Option("--no-demangle", help="Print C++, Rust and D names as in the symbol table.")
]
WithSource = Annotated[
    bool,
    typer.Option("--source", help="Print file and line of each function, from debug information."),
]
Graph = Annotated[
    str | None,
    typer.Option(
        "--graph",
        metavar="FUNCTION",
        help="Show the callers and callees of this function, with calls and total time.",
    ),
]
Diff = Annotated[
    list[Path],
    typer.Option(
        "--diff",
        metavar="BEFORE",
        help="Compare with this earlier run: which functions became slower. Repeatable, for the "
        "traces of its children.",
    ),
]
DiffImage = Annotated[
    Path | None,
    typer.Option(
        "--diff-image", metavar="IMAGE", help="Path of the earlier run's program, if it has moved."
    ),
]
Tui = Annotated[
    bool | None,
    typer.Option(
        "--tui/--no-tui",
        show_default=False,
        help="Browse calls on the terminal, or print them [default: browse, unless they fit on the "
        "screen or another option chooses the report].",
    ),
]
To = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Output file, or folder of a uftrace report [default: standard output].",
    ),
]
Open = Annotated[
    bool,
    typer.Option("--open", help="Open the file that -o names, HTML or JSON, in a web browser."),
]
Follow = Annotated[
    bool,
    typer.Option(
        "--follow",
        help="Print events as they are recorded, until the program has ended. For function, "
        "function_graph, probes, ksym and json.",
    ),
]
Seconds = Annotated[
    float | None,
    typer.Option("--seconds", metavar="N", help="With --follow: end after N seconds."),
]
Anyway = Annotated[
    bool,
    typer.Option(
        "--force", help="Overwrite an existing output file; accept a trace of another image."
    ),
]


def command(
    files: Files,
    format_: ReportFormat = None,
    json: Json = False,
    image: Of = None,
    no_children: NoChildren = False,
    time: Time = None,
    tid: Tid = [],  # noqa: B006 - typer copies it
    filter_: Functions = [],  # noqa: B006
    only: Only = [],  # noqa: B006
    max_depth: MaxDepth = None,
    time_filter: TimeFilter = None,
    max_calls: MaxCalls = None,
    trigger: Trigger = [],  # noqa: B006
    no_demangle: NoDemangle = False,
    source: WithSource = False,
    graph: Graph = None,
    diff: Diff = [],  # noqa: B006
    diff_image: DiffImage = None,
    follow: Follow = False,
    seconds: Seconds = None,
    tui: Tui = None,
    output: To = None,
    open_: Open = False,
    verbose: FullNames = False,
    force: Anyway = False,
) -> None:
    """Report recorded events in ftrace's formats or for other tools.

    On a terminal, calls can be browsed: functions, callers and callees, call tree, time line and
    source.

    Example: ftpatch report shop.trace --format profile
    """
    from ftpatch.trace.formats import reports

    name = format_of(json, format_, reports())
    from ftpatch.api.report_programs import Programs
    from ftpatch.trace.children import Beside, children_of
    from ftpatch.trace.window import ALWAYS, parse_span
    from ftpatch.tracer.bring_out import recorded

    span = ALWAYS if time is None else parse_span(time)
    filters = call_filters(only, max_depth, time_filter, max_calls, trigger)
    named = partial(Programs, force=force, plain=no_demangle, tell=error_line)
    window = filters.window(span=span, tids=frozenset(tid), globs=tuple(filter_))
    if seconds is not None and not follow:
        raise UsageError(None, "--seconds needs --follow", "add it, or remove --seconds")
    if follow:
        others: dict[str, object] = {"--output": output, "--open": open_, "--graph": graph}
        others |= {"--tui": tui, "--diff": diff, "--diff-image": diff_image}
        _require_none(others, "--follow")
        task = Task(
            files=[],
            window=window,
            programs=named(image, source=source),
            alone=no_children,
            verbose=verbose,
        )
        _follow(task, files, image, name, seconds)
        return
    distinct: dict[str, Path] = {}
    diff = [*map(recorded, diff)]
    for file in map(recorded, files):
        distinct.setdefault(os.path.realpath(file), file)
    files = _begun([*distinct.values()])
    beside = Beside(files)
    children = [] if no_children else beside.children
    earlier = [] if no_children else children_of(diff)
    inputs = [*files, *children, *diff, *earlier]
    if output is not None and any(_same(output, file) for file in inputs):
        raise UsageError(output, "the output is one of the input traces", "name another file")
    if output is not None and not os.path.lexists(output):
        require_place(output)
    from ftpatch.cli.report_diff import compare_runs
    from ftpatch.trace.choose import report_for

    ways: dict[str, object] = {
        "--json": json,
        f"--format {format_}": format_,
        "--output": output,
        "--graph": graph,
        "--diff": diff,
    }
    if tui:
        _require_none(ways, "--tui")
    walks = not any(ways.values()) and can_walk(tui)
    if diff:
        clashes = {
            "--open": open_,
            f"--format {format_}": format_ not in (None, "json"),
            "--tid": tid,
            "--graph": graph,
        }
        _require_none(clashes | {"--source": source}, "--diff")
        runs = []
        sides = (
            (diff, earlier, diff_image, "--diff-image"),
            (files, children, image, "--image"),
        )
        for paths, more, program, option in sides:
            own = filters.window(span=span, globs=tuple(filter_))
            names = named(program, source=False, option=option)
            task = Task(
                files=[*paths, *more],
                window=own,
                programs=names,
                image=program,
                children=more,
                verbose=verbose,
            )
            runs.append(task)
        compare_runs(runs, output, force, json=name == "json")
        _tell_written(output)
        return
    if graph is not None:
        _require_none({"--json": json, f"--format {format_}": format_}, "--graph")
    if diff_image is not None:
        raise UsageError(diff_image, "--diff-image needs --diff")
    if graph is not None:
        choose: Choose = partial(_graph_of, graph)
    else:
        choose = partial(report_for, name=name)
    task = Task(
        files=[*files, *children],
        window=window,
        programs=named(image, source=source),
        image=image,
        children=children,
        beside=beside,
        alone=no_children,
        verbose=verbose,
    )
    if not (walks and walked(task, tui, force=force)):
        write_report(task, choose, output, force=force, browse=open_)
        _tell_written(output)


def _begun(files: list[Path]) -> list[Path]:
    """Leave out files whose process was killed just after it had made them, if there are others."""
    from ftpatch.trace.header import is_unbegun

    unbegun = [file for file in files if is_unbegun(file)]
    if len(unbegun) == len(files):
        return files
    for file in unbegun:
        warn_line(f"{file}: it has no header yet, and so nothing that was recorded; left out")
    return [file for file in files if file not in unbegun]


def _follow(
    task: Task, files: list[Path], image: Path | None, name: str | None, seconds: float | None
) -> None:
    """Follow traces; those that have ended get their names before. Raises UsageError for a boot
    tracer's stream."""
    from ftpatch.boot import is_stream
    from ftpatch.cli.attended import require_time
    from ftpatch.cli.report_follow import follow_report
    from ftpatch.trace.arrivals import Run
    from ftpatch.tracer.bring_out import recorded

    require_time(seconds)
    for file in files if image is not None else []:
        if file.is_file() and is_stream(file):
            reason = "the stream of a boot tracer cannot be followed"
            raise UsageError(file, reason, "report it when the kernel has stopped")
    distinct: dict[str, Run] = {}
    for file in files:
        distinct.setdefault(os.path.realpath(file), Run(file, recorded(file)))
    follow_report(task, [*distinct.values()], name, seconds)


def _tell_written(output: Path | None) -> None:
    if output is not None:
        lines([f"wrote {output}"])


def _graph_of(function: str, events: EventSource) -> Report:
    """The report of one function. Raises UsageError for events without calls that end."""
    from ftpatch.trace.choose import require_fit
    from ftpatch.trace.render.function_around import FunctionAround
    from ftpatch.trace.several_kinds import fitted

    form = FunctionAround(function)
    path = events.recording.headers[0].path
    require_fit(form, events.kind, path, returns=events.has_returns)
    return fitted(form, events)


def _require_none(options: dict[str, object], other: str) -> None:
    for option, given in options.items():
        if given:
            raise UsageError(None, f"{option} and {other} conflict")


def _same(output: Path, file: Path) -> bool:
    try:
        return output.samefile(file)
    except OSError:
        return False
