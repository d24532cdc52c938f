# SPDX-License-Identifier: MIT
"""The reports of ``ftpatch trace``: looked at before the program runs, written after it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ftpatch.cli.browser import open_in_browser, require_browser
from ftpatch.cli.console import clean, error_line, lines, warn_line
from ftpatch.cli.recording_file import require_recording
from ftpatch.errors import FtpatchError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftpatch.api.call_filters import CallFilters
    from ftpatch.cli.report_folder import FolderOutput
    from ftpatch.cli.report_output import Output
    from ftpatch.inject.runtime import Tracer as Recorder
    from ftpatch.trace import EventSource, Report
    from ftpatch.trace.header import Tracer
    from ftpatch.tracer.foreseen import Foreseen

    Choose = Callable[[EventSource], Report]

__all__ = ["Asked", "Reports"]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The options of reports: the format to print, FORMAT[=FILE] of each report, the calls to show,
    the file that is to keep the recording, and whether reports are opened, may overwrite
    files and print full names."""

    format: str | None
    reports: Sequence[str]
    filters: CallFilters
    recording: Path | None
    open: bool
    force: bool
    verbose: bool


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
    """The reports of one run: what is wrong with them is said before the program runs. ``idle``:
    what to say instead of printing a report of a recording without a call."""

    def __init__(self, known: Recorder, asked: Asked, program: Path, idle: str = "") -> None:
        """Raises UsageError for a format that there is not, or that needs what the tracer does not
        record, and for files that cannot be; OutputError where one cannot be written."""
        from ftpatch.api.report_sources import default_report, kind_of
        from ftpatch.trace import Data
        from ftpatch.trace.header import Tracer

        self._asked, self._program, self._idle = asked, program, idle
        self._reports: list[_Report] = []
        self._opened: list[tuple[Report, Path]] = []
        if not known.records:
            narrowed = asked.filters.window().filters
            if asked.format or asked.reports or asked.recording or asked.open or narrowed:
                raise UsageError(None, f"the {known.name} tracer records no events")
            self._brief = self._sums_hits = False
            self._idle = ""
            return
        self._kind = kind = Tracer(known.number)
        if asked.recording is not None:
            require_recording(asked.recording, kind, program, asked.format, force=asked.force)
        words = [*([asked.format] if asked.format else []), *asked.reports]
        summed = not kind_of(kind).data & (Data.ACCESSES | Data.HITS)
        self._brief = not words and summed and sys.stdout.isatty()
        kept = asked.recording is not None
        self._sums_hits = not words and kept and bool(kind_of(kind).data & Data.HITS)
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
        asked.filters.require_fit(kind_of(kind))
        if asked.open:
            files = [(one.form, one.file) for one in self._reports]
            self._opened = require_browser(files, "use --report html=FILE")

    def require_functions(self, foreseen: Foreseen) -> None:
        """Raise UsageError for a filter that matches nothing that will be traced; where the program
        may start another traced one, only say so."""
        window = self._asked.filters.window()
        if not window.wanted:
            return
        try:
            window.require_match(foreseen.functions(), where="that is traced")
        except UsageError as error:
            if foreseen.is_all(self._program):
                hint = error.hint or "see `ftpatch list`"
                raise UsageError(self._program, error.reason, hint) from None
            warn_line(f"{self._program}: {error}")

    def require_returns(self, *, recorded: bool, stacks: bool) -> None:
        """Raise UsageError for a report that needs returns, if none will be ``recorded``, nor
        ``stacks`` that it could take instead."""
        from ftpatch.api.report_sources import kind_of
        from ftpatch.trace.choose import require_fit

        for one in self._reports:
            require_fit(one.form, kind_of(self._kind), returns=recorded, stacks=stacks)

    def write(self, traces: Sequence[Path]) -> None:
        """Write and open them; raises the first error when the others are written."""
        from ftpatch.api.report_programs import Programs
        from ftpatch.cli.report_task import Task, headers_of, tell_lost, write_report
        from ftpatch.trace.choose import report_for

        headers = headers_of(traces)
        told = tell_lost(headers)
        is_idle = bool(self._idle) and not told and not any(one.taken for one in headers)
        if is_idle and all(one.off for one in headers):
            switch = "`ftpatch enable --pid PID --recording` switches it on"
            warn_line(f"{self._program}: recording was off; {switch}")
        elif is_idle:
            warn_line(self._idle)
        errors = []
        for one in self._reports:
            if is_idle and one.file is None and one.form.text:
                continue
            task = Task(
                files=traces,
                window=self._asked.filters.window(),
                programs=Programs(None, force=self._asked.force, tell=error_line),
                verbose=self._asked.verbose,
                told=told,
            )
            choose: Choose = partial(report_for, name=one.name)
            if self._brief or self._sums_hits:
                choose = self._choose_brief if self._brief else _choose_sums
            try:
                write_report(task, choose, one.file, force=self._asked.force, paged=not self._brief)
            except FtpatchError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        if self._sums_hits:
            lines([f"wrote {self._asked.recording}"])
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


def _choose_sums(_: EventSource) -> Report:
    """The sums of what is kept for a report."""
    from ftpatch.trace.render.hit_sums import HitSums

    return HitSums()


def _parsed(text: str, tracer: Tracer) -> _Report:
    """``FORMAT`` or ``FORMAT=FILE``."""
    from ftpatch.api.report_sources import kind_of, report_named
    from ftpatch.trace.choose import reports_ending
    from ftpatch.trace.formats import reports

    name, equals, file = text.partition("=")
    if not name or (equals and not file):
        raise UsageError(None, f"--report {text!r} is not FORMAT or FORMAT=FILE")
    if not equals and name not in reports():
        ending = Path(name).suffix
        fit = reports_ending(kind_of(tracer), ending) if ending else []
        if fit:
            fit = [ending[1:]] if ending[1:] in fit else fit
            raise UsageError(
                None, f"--report {name!r} is no format", f"use --report {fit[0]}={name}"
            )
    return _Report(name, report_named(tracer, name), Path(file) if equals else None)
