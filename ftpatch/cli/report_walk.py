# SPDX-License-Identifier: MIT
"""Walking through a report on the terminal: when that is done, how it begins and ends."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

from ftpatch.cli.console import note_lines
from ftpatch.cli.signals import handle_signals, interrupted
from ftpatch.errors import UsageError
from ftpatch.io.activity import ACTIVITIES

if TYPE_CHECKING:
    from ftpatch.cli.tui.recorded import Recorded
    from ftpatch.trace import EventSource, Style

__all__ = ["can_walk", "is_walked", "recorded", "walk"]

ROWS = 24
"""Lines of a terminal that does not say how many it has."""


def can_walk(asked: bool | None) -> bool:
    """Return whether the terminal can show it: it reads keys, and does more than print. Raises
    UsageError where it was ``asked`` for, and there is no terminal."""
    if asked is False:
        return False
    # It is standard error that textual draws on.
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        if asked:
            raise UsageError(None, "--tui needs a terminal", "leave it out, or choose a --format")
        return False
    if os.environ.get("TERM", "dumb") != "dumb":
        return True
    if asked:
        note_lines(["the terminal cannot show this (TERM); printing it"])
    return False


def is_walked(events: EventSource, asked: bool | None) -> bool:
    """Return whether events are walked through: calls and profiles. Unless ``asked`` for, a report
    that fits on the screen is printed, as pagers do, and so are hits of probes: what they are for
    is their values, which a tree of calls does not have."""
    from ftpatch.trace.source import Data

    data = events.kind.data
    if data & (Data.CALLS | Data.SUMS):
        return bool(asked) or not _is_short(events)
    if not asked:
        return False
    walked = bool(data & Data.HITS and events.has_returns)
    if not walked:
        note_lines([f"{events.kind.what} cannot be browsed; printing them"])
    return walked


def walk(events: EventSource, style: Style) -> None:
    """Show it until the user has seen enough. Raises UsageError for a filter without a match."""
    from ftpatch.cli.tui.app import Walk

    app = Walk(recorded(events, style))
    gc.enable()  # it runs for more than a second
    with ACTIVITIES.away():
        ended = app.run()
    handle_signals()
    if app.failed is not None:
        raise app.failed
    if ended:
        interrupted(ended, None)


def recorded(events: EventSource, style: Style) -> Recorded:
    """Read the sums of functions, and leave the rest for later. Raises UsageError for a filter
    without a match."""
    from ftpatch.cli.tui.recorded import Recorded, calls_of
    from ftpatch.trace.by_process import whole_totals

    recording = events.recording
    rows = style.progress(calls_of(events), events.steps) if events.steps else calls_of(events)
    totals = whole_totals(events, rows)
    if recording.window.wanted:
        recording.window.require_match(recording.functions)
    return Recorded(events, totals, [style.clean(note) for note in (*style.notes, *events.notes())])


def _is_short(events: EventSource) -> bool:
    """Return whether the printed report has no more lines than the screen."""
    try:
        room = os.get_terminal_size(sys.stdout.fileno()).lines or ROWS
    except OSError:
        room = ROWS
    sums = events.sums()
    if sums is not None:
        return len(sums.function) <= room
    lines = 0
    for rows in events.rows():
        lines += len(rows)
        if lines > room:
            return False
    return True
