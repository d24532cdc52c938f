# SPDX-License-Identifier: MIT
"""Choosing a report format: by its name, the kind of data, or a file's name."""

from __future__ import annotations

from pathlib import Path

from ftpatch.errors import UsageError
from ftpatch.names.suggest import any_of, require_known
from ftpatch.trace.formats import reports
from ftpatch.trace.report import Report
from ftpatch.trace.several_kinds import fitted, part_of
from ftpatch.trace.source import Data, EventSource, SourceKind
from ftpatch.trace.window import Window

__all__ = [
    "report_for",
    "report_named",
    "reports_ending",
    "reports_of",
    "require_filters",
    "require_fit",
    "require_following",
]


def report_for(source: EventSource, name: str | None) -> Report:
    """Return the format of that name, or the source's default. Raises UsageError if the source
    lacks what it needs."""
    path = source.recording.headers[0].path
    wanted = reports().get(name or "")
    shown = source if wanted is None or wanted.together else part_of(source, wanted.shows)
    stacks = shown.has_stacks
    found = report_named(shown.kind, name, path, returns=shown.has_returns, stacks=stacks)
    return fitted(found, source)


def report_named(
    kind: SourceKind,
    name: str | None,
    path: Path | None = None,
    *,
    returns: bool | None = None,
    stacks: bool = False,
) -> Report:
    """Return the format of that name, or the kind's default. Raises UsageError, naming the trace
    ``path``, for an unknown format, or one that needs what this kind does not have. ``returns``:
    whether a trace has returns, whatever its kind says; ``stacks``: whether its hits have
    stacks."""
    name = name or kind.default
    require_known("format", name, reports())
    found = reports()[name]
    require_fit(found, kind, path, returns=returns, stacks=stacks)
    return found


def require_fit(
    report: Report,
    kind: SourceKind,
    path: Path | None = None,
    *,
    returns: bool | None = None,
    stacks: bool = False,
) -> None:
    """Raise UsageError, about the trace ``path``, for a report that needs what this kind does not
    have; ``returns``: whether a trace has returns, whatever its kind says; ``stacks``: whether its
    hits have stacks."""
    if not report.shows & kind.data:
        reason = f"{kind.what} cannot be reported as {report.name}"
        fit = (one for one in reports_of(kind).values() if kind.returns or not one.returns)
        raise UsageError(path, reason, f"use {any_of(one.name for one in fit)}")
    ends = kind.returns if returns is None else returns
    if report.returns and not ends and not (report.stacks and stacks):
        others = (name for name, one in reports_of(kind).items() if not one.returns)
        reason = f"{kind.no_returns}, and {report.name} needs them"
        raise UsageError(path, reason, kind.hint or f"use {any_of(others)}")


def require_following(report: Report, kind: SourceKind, path: Path | None = None) -> None:
    """Raise UsageError, about the trace ``path``, for a report that needs all events."""
    if not report.follows & kind.data:
        fit = (one for one in reports_of(kind).values() if kind.returns or not one.returns)
        can = (one.name for one in fit if one.follows & kind.data)
        reason = f"{report.name} needs all events, and --follow shows them as they come"
        raise UsageError(path, reason, f"use {any_of(can)}")


def require_filters(
    window: Window, kind: SourceKind, path: Path | None = None, *, returns: bool | None = None
) -> None:
    """Raise UsageError, about the trace ``path``, for filters of calls where this kind has none;
    ``returns`` as in require_fit."""
    if not window.filters:
        return
    if not kind.data & (Data.CALLS | Data.HITS):
        reason = f"{window.filters[0]} selects single calls, and {kind.what} has none"
        raise UsageError(path, reason)
    ended = {"-F": window.only, "--time-filter": window.least is not None}
    asked = [option for option, given in ended.items() if given]
    if asked and not (kind.returns if returns is None else returns):
        raise UsageError(path, f"{kind.no_returns}, and {asked[0]} needs them", kind.hint)


def reports_of(kind: SourceKind) -> dict[str, Report]:
    """Return the formats that can show a kind of data, the default first."""
    shown = [one for one in reports().values() if one.shows & kind.data]
    return {one.name: one for one in sorted(shown, key=lambda one: one.name != kind.default)}


def reports_ending(kind: SourceKind, ending: str) -> list[str]:
    """Return a kind's formats whose file names end in ``ending``, the default first."""
    return [name for name, one in reports_of(kind).items() if ending in one.ends]
