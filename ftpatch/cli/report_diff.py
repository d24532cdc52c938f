# SPDX-License-Identifier: MIT
"""``report --diff``: two runs beside each other."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from ftpatch.cli.console import clean, note_lines
from ftpatch.cli.report_output import open_output
from ftpatch.cli.report_task import (
    Task,
    allow_descriptors,
    notes_of,
    progress,
    tell_children,
)
from ftpatch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ftpatch.cli.report_folder import FolderOutput
    from ftpatch.cli.report_output import Output
    from ftpatch.trace import EventSource, Style
    from ftpatch.trace.totals import Totals

__all__ = ["compare_runs"]


def compare_runs(runs: Sequence[Task], output: Path | None, force: bool, *, json: bool) -> None:
    """Write what became slower from the first of two runs to the second."""
    from ftpatch.api.report_sources import open_events
    from ftpatch.trace import Style
    from ftpatch.trace.formats import reports

    short = not json and not any(run.verbose for run in runs)

    def styled(events: EventSource) -> Style:
        return Style(clean, notes_of(events.recording), progress, short)

    form = reports()["json" if json else "profile"]
    with contextlib.ExitStack() as opened:
        sources = []
        for run in runs:
            allow_descriptors(len(run.files))
            sources.append(open_events(run.files, run.window, image=run.image, force=force))
            opened.callback(sources[-1].close)
        before, after = sources
        _require_comparable(before, after)
        with open_output(output, force=force, form=form) as out:
            for run, events in zip(runs, sources, strict=True):
                events.recording.name_by(run.programs.of)
            _write_comparison(out, (before, after), styled, json)
            out.appear()
        note_lines(f"before: {note}" for note in before.notes())
        note_lines(f"after: {note}" for note in after.notes())
        for run in runs:
            tell_children(run.children)


def _require_comparable(before: EventSource, after: EventSource) -> None:
    """Raise UsageError for events that are no calls, and for runs with different clocks."""
    from ftpatch.trace.source import Data

    for source in (before, after):
        path = source.recording.headers[0].path
        if not source.kind.data & (Data.CALLS | Data.SUMS | Data.HITS):
            raise UsageError(path, f"{source.kind.what} cannot be compared", "only calls can")
        if source.kind.data & Data.HITS and not source.has_returns:
            reason = f"{source.kind.no_returns}, and --diff needs calls"
            raise UsageError(path, reason, source.kind.hint)
    if before.recording.has_clock != after.recording.has_clock:
        path = (before if after.recording.has_clock else after).recording.headers[0].path
        raise UsageError(path, "clock rate unknown, unlike the other run's")


def _write_comparison(
    out: Output | FolderOutput,
    runs: tuple[EventSource, EventSource],
    styled: Callable[[EventSource], Style],
    json: bool,
) -> None:
    """Write what became slower from the first run to the second. Raises UsageError for a filter
    that matches in neither."""
    from ftpatch.trace.compare import compare
    from ftpatch.trace.render.compared import json_comparison, text_comparison

    sums: list[tuple[Totals, list[str]]] = []
    heads = []
    for source, which in zip(runs, ("before", "after"), strict=True):
        style, recording = styled(source), source.recording
        totals = _totals(source, style)
        sums.append((totals, recording.functions.name))
        files = " ".join(clean(str(header.path)) for header in recording.headers)
        heads += [f"# {which}: {files}\n", *(f"# {which}: {note}\n" for note in style.notes)]
        if json:
            note_lines(f"{which}: {note}" for note in style.notes)
    first, second = (source.recording for source in runs)
    unmatched = first.window.unmatched(first.functions)
    second.window.require_match(second.functions, elsewhere=first.window.wanted - unmatched)
    compared = compare(sums[0], sums[1])
    timed = all(source.has_returns for source in runs)
    if json:
        parts = json_comparison(compared, timed=timed)
    else:
        out.write("".join([*heads, "#\n"]))
        compared = replace(compared, names=[style.shown(name) for name in compared.names])
        parts = text_comparison(compared, timed=timed, clock=first.has_clock)
    for part in parts:
        out.write(part)


def _totals(source: EventSource, style: Style) -> Totals:
    from ftpatch.trace.by_process import whole_totals

    return whole_totals(source, style.rows(source))
