# SPDX-License-Identifier: MIT
"""``ftpatch trace``: run a program under a tracer and report its calls."""

from __future__ import annotations

import signal
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
from ftpatch.cli.completion import pids, report_formats, tracers
from ftpatch.cli.console import error_line, warn_line
from ftpatch.cli.options import (
    Args,
    Filter,
    FullNames,
    Json,
    LibCalls,
    MaxStack,
    Notrace,
    Off,
    Regex,
    Ring,
    Rotate,
    Signal,
    bytes_of,
    format_of,
    require_pid,
)
from ftpatch.cli.signals import interrupted
from ftpatch.cli.trace_reports import Asked, Reports
from ftpatch.errors import Exit, UsageError

if TYPE_CHECKING:
    from ftpatch.tracer.run import Request, Run

__all__ = ["command"]

TracedPid = Annotated[
    int | None,
    typer.Option(
        "-p",
        "--pid",
        metavar="PID",
        autocompletion=pids,
        help="Running process to trace, instead of PROG.",
    ),
]
Seconds = Annotated[
    float | None,
    typer.Option(
        "--seconds",
        metavar="N",
        help="With --pid: time to trace for, such as 10 or 500ms [default: until Ctrl-C, or its "
        "end].",
    ),
]


def command(
    program: Annotated[
        list[str],
        typer.Argument(metavar="[--] PROG [ARG]", help="Program and its arguments."),
    ] = [],  # noqa: B006 - typer copies it
    pid: TracedPid = None,
    seconds: Seconds = None,
    filter_: Filter = [],  # noqa: B006 - typer copies it
    notrace: Notrace = [],  # noqa: B006
    regex: Regex = False,
    lib: Annotated[
        list[str],
        typer.Option(
            "--lib",
            metavar="GLOB",
            help="Shared libraries to trace as well, by name (* ? []); -f and -n apply to their "
            "functions, too; also those that it opens later. Repeatable.",
        ),
    ] = [],  # noqa: B006
    libcalls: LibCalls = False,
    follow_exec: Annotated[
        bool,
        typer.Option(
            "--follow-exec",
            help="Trace the programs that PROG and its children start, too.",
        ),
    ] = False,
    tracer: Annotated[
        str,
        typer.Option(
            "--tracer",
            metavar="NAME",
            autocompletion=tracers,
            help="Tracer: function, function_graph or function_profile.",
        ),
    ] = "function_graph",
    args: Args = False,
    max_stack: MaxStack = 1024,
    size: Annotated[str, typer.Option("--size", metavar="SIZE", help="Trace file size.")] = "256M",
    ring: Ring = False,
    rotate: Rotate = 0,
    off: Off = False,
    switch: Signal = "",
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            autocompletion=report_formats,
            help="Format of the printed report; see `ftpatch report --help`.",
        ),
    ] = None,
    json: Json = False,
    reports: Annotated[
        list[str],
        typer.Option(
            "--report",
            metavar="FORMAT[=FILE]",
            autocompletion=report_formats,
            help="Report to print, or to write to FILE; no other is printed, unless --format asks "
            "for one. Repeatable.",
        ),
    ] = [],  # noqa: B006
    only: Only = [],  # noqa: B006
    max_depth: MaxDepth = None,
    time_filter: TimeFilter = None,
    max_calls: MaxCalls = None,
    trigger: Trigger = [],  # noqa: B006
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Trace file to keep for `ftpatch report`; children's are FILE.PID.",
        ),
    ] = None,
    open_: Annotated[
        bool,
        typer.Option("--open", help="Open the HTML file of --report, or JSON, in a web browser."),
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Overwrite the trace files of -o and the files that --report names."
        ),
    ] = False,
    verbose: FullNames = False,
) -> None:
    """Run a program under a tracer and report its calls.

    Options go before PROG; what follows it is the program's own.

    The tracer is inserted into a temporary copy. The exit code is the program's own, 128 + N if
    signal N killed it, and 125 if ftpatch itself failed.

    Example: ftpatch trace -f 'parse_*' -- ./shop --verbose
    """
    from ftpatch.ftrace.filter import Selection
    from ftpatch.inject.runtime import Keeping
    from ftpatch.inject.switch_signal import switch_signal
    from ftpatch.trace.formats import reports as formats
    from ftpatch.tracer.plan import Tracing
    from ftpatch.tracer.run import Request

    request = Request(
        words=program,
        tracing=Tracing(
            tracer=tracer,
            depth=max_stack,
            size=bytes_of(size),
            arguments=args,
            keeping=Keeping(ring=ring, off=off, rotate=rotate, signal=switch_signal(switch or 0)),
        ),
        selection=Selection(filter_, notrace, regex),
        libraries=lib,
        calls=libcalls,
        recording=output,
        overwrite=force,
        follow=follow_exec,
    )
    filters = call_filters(only, max_depth, time_filter, max_calls, trigger)
    asked = Asked(
        format=format_of(json, format_, formats()),
        reports=reports,
        filters=filters,
        recording=output,
        open=open_,
        force=force,
        verbose=verbose,
    )
    if pid is None:
        code = _trace(request, asked, seconds)
    else:
        code = _trace_process(pid, request, asked, seconds)
    raise typer.Exit(code)


def _trace_process(pid: int, request: Request, asked: Asked, seconds: float | None) -> int:
    """Trace a running process and report."""
    from ftpatch.api.attaching import require_free
    from ftpatch.cli.trace_process import trace_process
    from ftpatch.inject.runtime import tracer_named
    from ftpatch.process.process import find_process

    if request.words:
        raise UsageError(None, "a program and --pid are mutually exclusive", "name one of them")
    if request.calls:
        hint = f"use `ftpatch probe --pid {pid} 'p LIB:FUNC'` for one function of a library"
        raise UsageError(None, "--libcalls works on programs that ftpatch starts", hint)
    for option in ("rotate", "signal"):
        if getattr(request.tracing.keeping, option):
            reason = f"--{option} works on programs that ftpatch starts or patches"
            raise UsageError(None, reason, "remove it")
    if request.follow:
        raise UsageError(None, "--follow-exec works on programs that ftpatch starts", "remove it")
    process = find_process(pid)
    require_free(process)
    idle = (
        f"{process}: no selected function was called while it was traced, and calls that had begun "
        "before are not recorded: trace for longer, or select what they call"
    )
    reports = Reports(tracer_named(request.tracing.tracer), asked, process.place / "exe", idle)
    trace_process(process, request, reports.write, seconds)
    return int(Exit.DONE)


def _trace(request: Request, asked: Asked, seconds: float | None) -> int:
    """Run the program and report; its exit code."""
    from ftpatch.cli.outcome import cleared_line
    from ftpatch.inject.runtime import tracer_named
    from ftpatch.tracer.run import find_program, run_traced

    if not request.words:
        raise UsageError(None, "no PROG and no --pid", "name a program, or a running process")
    require_pid({"--seconds": seconds is not None})
    path = find_program(request.words[0])
    idle = f"{path}: no selected function was called"
    reports = Reports(tracer_named(request.tracing.tracer), asked, path, idle)
    signal.signal(signal.SIGPIPE, interrupted)

    def on_cleared(image: Path, name: str) -> None:
        error_line(f"{image}: in the running copy, {cleared_line(name)}")

    with run_traced(path, request, on_cleared, reports.require_functions) as run:
        _tell(path, run, request)
        if run.files:
            reports.write(run.files)
    return run.status


def _tell(path: Path, run: Run, request: Request) -> None:
    """Say what the report will lack. Raises OutputError for a recording that is lost."""
    from ftpatch.inject.runtime import RECORDING

    for image in run.foreign:
        error_line(f"{image}: recorded by another tracer; use -o FILE to keep it")
    if run.lost is not None:
        raise run.lost
    if not run.files and request.tracing.tracer in RECORDING:
        reason = "privileged program or no disk space"
        if request.follow:
            reason = "no program that it started has a site that was selected, or no disk space"
        error_line(f"{path}: no trace was written: {reason}")
    for untraced, reason in run.untraced:
        error_line(f"{untraced}: not traced: {reason}")
    for text in run.unmatched:
        warn_line(text)
