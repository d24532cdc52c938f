# SPDX-License-Identifier: MIT
"""``ftpatch trace``: run a program under a tracer and report its calls."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ftpatch.api.call_filters import CallFilters
from ftpatch.cli.browser import open_in_browser, require_browser
from ftpatch.cli.call_filters import MaxCalls, MaxDepth, Only, TimeFilter, Trigger
from ftpatch.cli.completion import report_formats, tracers
from ftpatch.cli.console import clean, error_line
from ftpatch.cli.options import Args, Filter, LibCalls, MaxStack, Notrace, Regex, bytes_of
from ftpatch.cli.signals import interrupted
from ftpatch.errors import Exit, FtpatchError, OutputError, UsageError
from ftpatch.io.cleanup import CLEANUP

if TYPE_CHECKING:
    from ftpatch.cli.report_folder import FolderOutput
    from ftpatch.cli.report_output import Output
    from ftpatch.trace import EventSource, Report
    from ftpatch.trace.header import Tracer
    from ftpatch.tracer.run import Request, Run

__all__ = ["command"]


def command(
    program: Annotated[
        list[str],
        typer.Argument(metavar="[--] PROG [ARG]", help="Program and arguments."),
    ],
    filter_: Filter = [],  # noqa: B006 - typer copies it
    notrace: Notrace = [],  # noqa: B006
    regex: Regex = False,
    lib: Annotated[
        list[str],
        typer.Option(
            "--lib",
            metavar="GLOB",
            help="Shared libraries to trace as well, by name (* ? []); -f and -n apply to their "
            "functions, too. Repeatable.",
        ),
    ] = [],  # noqa: B006
    libcalls: LibCalls = False,
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
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            autocompletion=report_formats,
            help="Format of the printed report; see `ftpatch report --help`.",
        ),
    ] = None,
    reports: Annotated[
        list[str],
        typer.Option(
            "--report",
            metavar="FORMAT[=FILE]",
            autocompletion=report_formats,
            help="Report to write to FILE; then prints none unless --format is given. Repeatable.",
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
) -> None:
    """Run a program under a tracer and report its calls.

    The tracer is inserted into a temporary copy. The exit code is the program's own, 128 + N if
    signal N killed it, and 125 if ftpatch itself failed.

    Example: ftpatch trace -f 'parse_*' -- ./shop --verbose
    """
    CLEANUP.failure = int(Exit.OWN)
    try:
        from ftpatch.ftrace.filter import Selection
        from ftpatch.tracer.plan import Tracing
        from ftpatch.tracer.run import Request

        request = Request(
            words=program,
            tracing=Tracing(tracer=tracer, depth=max_stack, size=bytes_of(size), arguments=args),
            selection=Selection(filter_, notrace, regex),
            libraries=lib,
            calls=libcalls,
            recording=output,
            overwrite=force,
        )
        filters = CallFilters(
            only=tuple(only),
            depth=max_depth,
            least=time_filter,
            calls=max_calls,
            triggers=tuple(trigger),
        )
        asked = Asked(
            format=format_,
            reports=reports,
            filters=filters,
            recording=output,
            open=open_,
            force=force,
        )
        code = _trace(request, asked)
    except FtpatchError as error:
        error_line(str(error))
        raise typer.Exit(int(Exit.OWN)) from None
    raise typer.Exit(code)


def _trace(request: Request, asked: Asked) -> int:
    """Run the program and report; its exit code."""
    from ftpatch.cli.outcome import cleared_line
    from ftpatch.tracer.run import find_program, run_traced

    path = find_program(request.words[0])
    reports = Reports(request.tracing.tracer, asked, path)
    signal.signal(signal.SIGPIPE, interrupted)

    def on_cleared(image: Path, name: str) -> None:
        error_line(f"{image}: in the running copy, {cleared_line(name)}")

    with run_traced(path, request, on_cleared) as run:
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
        error_line(f"{path}: no trace was written: privileged program or no disk space")
    for library, reason in run.untraced:
        error_line(f"{library}: not traced: {reason}")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The options of reports: the format to print, FORMAT[=FILE] of each report, the calls to show,
    the file that is to keep the recording, and whether reports are opened and may overwrite
    files."""

    format: str | None
    reports: Sequence[str]
    filters: CallFilters
    recording: Path | None
    open: bool
    force: bool


@dataclass(frozen=True)
class _Report:
    """One report; without a file it is printed."""

    name: str
    form: Report
    file: Path | None

    def open(self, force: bool) -> Output | FolderOutput:
        """Open its file, or standard output."""
        from ftpatch.cli.report_output import open_output

        otherwise = f"use --report {self.name}=FILE"
        return open_output(self.file, force=force, form=self.form, otherwise=otherwise)


class Reports:
    """The reports of one run: what is wrong with them is said before the program runs."""

    def __init__(self, tracer: str, asked: Asked, program: Path) -> None:
        """Raises UsageError for a format that there is not, or that needs what the tracer does not
        record, and for files that cannot be; OutputError where one cannot be written."""
        from ftpatch.api.report_sources import default_report, kind_of
        from ftpatch.inject.runtime import tracer_named
        from ftpatch.trace.header import Tracer

        self._asked = asked
        self._reports: list[_Report] = []
        self._opened: list[tuple[Report, Path]] = []
        known = tracer_named(tracer)
        if not known.records:
            narrowed = asked.filters.window().filters
            if asked.format or asked.reports or asked.recording or asked.open or narrowed:
                raise UsageError(None, f"the {known.name} tracer records no events")
            return
        kind = Tracer(known.number)
        asked.filters.require_fit(kind_of(kind))
        if asked.recording is not None:
            _check_recording(asked.recording, kind, asked, program)
        words = [*([asked.format] if asked.format else []), *asked.reports]
        self._brief = not words and sys.stdout.isatty()
        words = words or [default_report(kind)]
        self._reports = [_parsed(word, kind) for word in words]
        printed = [one.name for one in self._reports if one.file is None]
        if len(printed) > 1:
            hint = f"write one of them to a file: --report {printed[1]}=FILE"
            raise UsageError(None, f"{' and '.join(printed)}: only one report can be printed", hint)
        taken = [os.path.realpath(path) for path in (program, asked.recording) if path]
        for one in self._reports:
            if one.file is not None:
                if os.path.realpath(one.file) in taken:
                    reason = "would overwrite another file of this run"
                    raise UsageError(one.file, reason, "name another file")
                taken.append(os.path.realpath(one.file))
            with one.open(asked.force):
                pass  # it could be written
        if asked.open:
            files = [(one.form, one.file) for one in self._reports]
            self._opened = require_browser(files, "use --report html=FILE")

    def write(self, traces: Sequence[Path]) -> None:
        """Write and open them; raises the first error when the others are written."""
        from ftpatch.api.report_programs import Programs
        from ftpatch.cli.report_task import Task, write_report
        from ftpatch.trace.choose import report_for

        errors = []
        for one in self._reports:
            task = Task(
                files=traces,
                window=self._asked.filters.window(),
                programs=Programs(None, force=self._asked.force, tell=error_line),
            )
            choose = self._choose_brief if self._brief else partial(report_for, name=one.name)
            try:
                write_report(task, choose, one.file, force=self._asked.force, paged=not self._brief)
            except FtpatchError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        for _, page in self._opened:
            open_in_browser(page)

    def _choose_brief(self, events: EventSource) -> Report:
        """The usual report, or a summary of one that is too long."""
        from ftpatch.trace.render.brief import Brief, Screen

        (usual,) = self._reports
        kept, size = self._asked.recording, shutil.get_terminal_size()
        if kept is None:
            more = f"Recording not kept: use -o FILE; for every call, --format {usual.name}"
        else:
            files = f"{kept}*" if len(events.recording.headers) > 1 else f"{kept}"
            more = f"Every call: ftpatch report {clean(files)} --format {usual.name}"
        return Brief(usual.form, Screen(size.columns, size.lines), more)


def _parsed(text: str, tracer: Tracer) -> _Report:
    """``FORMAT`` or ``FORMAT=FILE``."""
    from ftpatch.api.report_sources import report_named

    name, equals, file = text.partition("=")
    if not name or (equals and not file):
        raise UsageError(None, f"--report {text!r} is not FORMAT or FORMAT=FILE")
    return _Report(name, report_named(tracer, name), Path(file) if equals else None)


def _check_recording(path: Path, tracer: Tracer, asked: Asked, program: Path) -> None:
    """Require that a new file can be there, and is not meant to be a report."""
    from ftpatch.api.report_sources import reports_ending

    if path.is_symlink():
        raise UsageError(path, "the output is a symbolic link", "use its target")
    if path.exists() and not path.is_file():
        raise UsageError(path, "the output is not a regular file")
    if path.exists() and not asked.force:
        raise UsageError(path, "the output exists", "use --force to overwrite it")
    if os.path.realpath(path) == os.path.realpath(program):
        raise UsageError(path, "would overwrite another file of this run", "name another file")
    like = reports_ending(tracer, path.suffix) if path.suffix else []
    if like:
        hint = f"to write a report, use --report {asked.format or like[0]}={path}"
        raise UsageError(path, "-o names the recording, but this is the name of a report", hint)
    if not path.parent.is_dir():
        raise OutputError(path, "cannot write: no such directory")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise OutputError(path, "cannot write: Permission denied")
