# SPDX-License-Identifier: MIT
"""``ftpatch report``: a report of recorded events."""

from __future__ import annotations

import contextlib
import resource
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ftpatch.cli.browser import open_in_browser, require_browser
from ftpatch.cli.call_filters import (
    CallFilters,
    Levels,
    MaxCalls,
    Only,
    TimeFilter,
    Trigger,
    require_calls,
)
from ftpatch.cli.completion import report_formats, traces
from ftpatch.cli.console import clean, error_line, note_lines, warn_line, watched
from ftpatch.cli.options import Json
from ftpatch.cli.report_output import open_output
from ftpatch.cli.report_walk import can_walk, is_walked, walk
from ftpatch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ftpatch.api.report_programs import Programs
    from ftpatch.trace import EventSource, Recording, Report, Style
    from ftpatch.trace.rows import Rows
    from ftpatch.trace.window import Window

    Choose = Callable[[EventSource], Report]

__all__ = ["Task", "command", "require_format", "write_report"]

OTHERS = 64
"""Approximate number of open descriptors that are not traces."""
SHOWN = 3
"""Maximum number of newer traces to name."""

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE",
        readable=False,
        autocompletion=traces,
        help="Trace files of a program and its children.",
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
    time: Time = None,
    tid: Tid = [],  # noqa: B006 - typer copies it
    filter_: Functions = [],  # noqa: B006
    only: Only = [],  # noqa: B006
    depth: Levels = None,
    time_filter: TimeFilter = None,
    max_calls: MaxCalls = None,
    trigger: Trigger = [],  # noqa: B006
    no_demangle: NoDemangle = False,
    source: WithSource = False,
    graph: Graph = None,
    diff: Diff = [],  # noqa: B006
    diff_image: DiffImage = None,
    tui: Tui = None,
    output: To = None,
    open_: Open = False,
    force: Anyway = False,
) -> None:
    """Report recorded events in ftrace's formats or for other tools.

    On a terminal, calls can be browsed: functions, callers and callees, call tree, time line and
    source.

    Example: ftpatch report shop.trace --format profile
    """
    require_format(format_, json)
    if output is not None and any(_same(output, file) for file in [*files, *diff]):
        raise UsageError(output, "the output is one of the input traces", "name another file")
    from ftpatch.api.report_programs import Programs
    from ftpatch.trace.choose import report_for
    from ftpatch.trace.window import ALWAYS, parse_span

    span = ALWAYS if time is None else parse_span(time)
    filters = CallFilters(
        only=tuple(only),
        depth=depth,
        least=time_filter,
        calls=max_calls,
        triggers=tuple(trigger),
    )
    window = filters.window(span=span, tids=frozenset(tid), globs=tuple(filter_))
    named = partial(Programs, force=force, plain=no_demangle, tell=error_line)
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
        for paths, program in ((diff, diff_image), (files, image)):
            own = filters.window(span=span, globs=tuple(filter_))
            runs.append(_Run(paths, program, own, named(program, source=False)))
        _compare(runs, output, force, json=json or format_ == "json")
        return
    if graph is not None:
        _require_none({"--json": json, f"--format {format_}": format_}, "--graph")
    if diff_image is not None:
        raise UsageError(diff_image, "--diff-image needs --diff")
    if graph is not None:
        choose: Choose = partial(_graph_of, graph)
    else:
        choose = partial(report_for, name="json" if json else format_)
    task = Task(files=files, window=window, programs=named(image, source=source), image=image)
    if not (walks and _walked(task, tui, force=force)):
        write_report(task, choose, output, force=force, browse=open_)


@dataclass(frozen=True, kw_only=True)
class Task:
    """The trace files to report on together."""

    files: Sequence[Path]
    window: Window
    programs: Programs
    image: Path | None = None


def _walked(task: Task, tui: bool | None, *, force: bool) -> bool:
    """Let the user walk through the calls, if that is what they want of this recording; whether
    it was."""
    from ftpatch.api.report_sources import open_events
    from ftpatch.trace import Style

    _allow_descriptors(len(task.files))
    events = open_events(task.files, task.window, image=task.image, force=force)
    try:
        require_calls(events)
        events.recording.name_by(task.programs.of)
        if not is_walked(events, tui):
            return False
        walk(events, Style(clean, _notes(events.recording), _progress))
        note_lines(events.notes())
    finally:
        events.close()
    _tell_newer(task.files)
    return True


def write_report(
    task: Task,
    choose: Choose,
    output: Path | None,
    *,
    force: bool,
    paged: bool = True,
    browse: bool = False,
) -> None:
    """Write one report, on a terminal ``paged``, and say on standard error what is missing;
    ``browse``: open it."""
    from ftpatch.api.report_sources import open_events
    from ftpatch.trace import Style
    from ftpatch.trace.by_process import processes_of

    window = task.window
    _allow_descriptors(len(task.files))
    events = open_events(task.files, window, image=task.image, force=force)
    try:
        require_calls(events)
        form = choose(events)
        pages = require_browser([(form, output)], "use --format html -o FILE") if browse else []
        with open_output(output, force=force, form=form, paged=paged) as out:
            events.recording.name_by(task.programs.of)
            missing = _notes(events.recording)
            processes = processes_of(events.recording) if form.text else ""
            style = Style(clean, [clean(processes), *missing] if processes else missing)
            if form.sums or not out.is_terminal:  # a bar would stand among the lines
                style.progress = _progress
            for part in form.render(events, style):
                out.write(part)
                if out.is_left:
                    break
            if window.wanted and not out.is_left:
                window.require_match(events.recording.functions)
            out.appear()
        if not form.text:
            note_lines(missing)
        note_lines(events.notes())
    finally:
        events.close()
        _tell_newer(task.files)
    for _, page in pages:
        open_in_browser(page)


@dataclass(frozen=True)
class _Run:
    """One of two runs to compare."""

    files: list[Path]
    image: Path | None
    window: Window
    programs: Programs


def _compare(runs: list[_Run], output: Path | None, force: bool, *, json: bool) -> None:
    from ftpatch.api.report_sources import open_events
    from ftpatch.cli.report_diff import require_comparable, write_comparison
    from ftpatch.trace import Style
    from ftpatch.trace.formats import reports

    def styled(events: EventSource) -> Style:
        return Style(clean, _notes(events.recording), _progress)

    form = reports()["json" if json else "profile"]
    with contextlib.ExitStack() as opened:
        sources = []
        for run in runs:
            _allow_descriptors(len(run.files))
            sources.append(open_events(run.files, run.window, image=run.image, force=force))
            opened.callback(sources[-1].close)
            require_calls(sources[-1])
        before, after = sources
        require_comparable(before, after)
        with open_output(output, force=force, form=form) as out:
            for run, events in zip(runs, sources, strict=True):
                events.recording.name_by(run.programs.of)
            write_comparison(out, (before, after), styled, json)
            out.appear()
        note_lines(f"before: {note}" for note in before.notes())
        note_lines(f"after: {note}" for note in after.notes())


def _graph_of(function: str, events: EventSource) -> Report:
    """The report of one function. Raises UsageError for events without calls that end."""
    from ftpatch.trace.choose import require_fit
    from ftpatch.trace.render.function_around import FunctionAround

    form = FunctionAround(function)
    path = events.recording.headers[0].path
    require_fit(form, events.kind, path, returns=events.has_returns)
    return form


def _require_none(options: dict[str, object], other: str) -> None:
    for option, given in options.items():
        if given:
            raise UsageError(None, f"{option} and {other} conflict")


def require_format(format_: str | None, json: bool) -> None:
    """Raise UsageError for a format that there is not, and for two."""
    from ftpatch.trace.choose import require_known

    if format_ is not None:
        require_known(format_)
    if json and format_ not in (None, "json"):
        raise UsageError(None, f"--json and --format {format_} conflict", "choose one")


def _allow_descriptors(files: int) -> None:
    """For a program with many children, where the limit that we began with can be raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < files + OTHERS:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _same(output: Path, file: Path) -> bool:
    try:
        return output.samefile(file)
    except OSError:
        return False


def _tell_newer(files: Sequence[Path]) -> None:
    """Of a name that exists the runtime makes NAME.PID, and so do children."""
    from ftpatch.trace.newer import newer

    found = newer([*files])
    if found:
        names = ", ".join(str(one) for one in found[:SHOWN])
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        warn_line(f"newer files, not part of this report: {names}{more}")


def _progress(rows: Iterator[Rows], steps: int) -> Iterator[Rows]:
    return watched(rows, steps, "batches")


def _notes(recording: Recording) -> list[str]:
    """What is missing; of which file, if there are several."""
    several = len(recording.headers) > 1
    return [
        (f"{clean(str(header.path))}: " if several else "") + note
        for header in recording.headers
        for note in header.notes
    ]
