"""The reports of ``ftpatch trace``: what is wrong with them is said before the program runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ftpatch.cli import report
from ftpatch.cli.report_output import Output
from ftpatch.errors import FtpatchError, OutputError, UsageError
from ftpatch.inject.runtime import tracer_named
from ftpatch.trace import Format
from ftpatch.trace.formats import DEFAULTS, format_named, reports_named
from ftpatch.trace.header import Tracer

__all__ = ["Asked", "Reports"]


@dataclass(frozen=True)
class Asked:
    """Reports asked for on the command line: the format to print, FORMAT[=FILE] of each report, the
    file that is to keep the recording, and whether reports may overwrite files."""

    format: str | None
    reports: Sequence[str]
    recording: Path | None
    force: bool


@dataclass(frozen=True)
class _Report:
    """One report; without a file it is printed."""

    name: str
    form: Format
    file: Path | None

    def open(self, force: bool) -> Output:
        otherwise = f"use --report {self.name}=FILE"
        return Output(self.file, force=force, form=self.form, otherwise=otherwise)


class Reports:
    """The reports of one run."""

    def __init__(self, tracer: str, asked: Asked, program: Path) -> None:
        """Raises UsageError for a format that there is not, or that needs what the tracer does not
        record, and for files that cannot be; OutputError where one cannot be written."""
        self._force = asked.force
        self._reports: list[_Report] = []
        known = tracer_named(tracer)
        if not known.records:
            if asked.format or asked.reports or asked.recording:
                raise UsageError(None, f"the {known.name} tracer records no events")
            return
        kind = Tracer(known.number)
        if asked.recording is not None:
            _check_recording(asked.recording, kind, asked.format)
        words = [*([asked.format] if asked.format else []), *asked.reports] or [DEFAULTS[kind]]
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
            with one.open(self._force):
                pass  # it could be written

    def write(self, traces: Sequence[Path]) -> None:
        """All of them; raises the first error when the others are written."""
        errors = []
        for one in self._reports:
            try:
                report.command([*traces], one.name, output=one.file, force=self._force)
            except FtpatchError as error:
                errors.append(error)
        if errors:
            raise errors[0]


def _parsed(text: str, tracer: Tracer) -> _Report:
    """``FORMAT`` or ``FORMAT=FILE``."""
    name, equals, file = text.partition("=")
    if not name or (equals and not file):
        raise UsageError(None, f"--report {text!r} is not FORMAT or FORMAT=FILE")
    return _Report(name, format_named(tracer, name), Path(file) if equals else None)


def _check_recording(path: Path, tracer: Tracer, format_: str | None) -> None:
    """Return whether a new file can be there, and is not meant to be a report."""
    if os.path.lexists(path):
        raise UsageError(path, "the output exists", "name another file")
    like = reports_named(tracer, path.suffix) if path.suffix else []
    if like:
        hint = f"to write a report, use --report {format_ or like[0]}={path}"
        raise UsageError(path, "-o names the recording, but this is the name of a report", hint)
    if not path.parent.is_dir():
        raise OutputError(path, "cannot write: no such directory")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise OutputError(path, "cannot write: Permission denied")
