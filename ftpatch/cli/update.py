# SPDX-License-Identifier: MIT
"""Common path of enable and disable: verify all, write all, report."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import typer

from ftpatch.api.planner import SitePlanner
from ftpatch.api.writing import write_update
from ftpatch.cli.console import count, error_line, json_line, lines, tell_links, wait_for
from ftpatch.cli.options import Update
from ftpatch.cli.outcome import (
    cleared_line,
    dropped_line,
    outcome_row,
    refused_lines,
    undefined_line,
)
from ftpatch.cli.paint import some
from ftpatch.errors import Exit, UsageError
from ftpatch.names.demangle import demangled_place

if TYPE_CHECKING:
    from ftpatch.update.update import Outcome

__all__ = ["run_update"]


def run_update(update: Update, plan: SitePlanner) -> None:
    """Plan with the image's sites, verify, write. Exits 1 where a site is refused."""
    if update.image.is_dir():
        if update.sign is not None:
            raise UsageError(update.image, "--sign works on a kernel, not on a directory")
        from ftpatch.cli.update_tree import run_tree_update

        run_tree_update(update, plan)
        return
    begun = time.monotonic()
    updated = write_update(update, plan, wait_for)
    tell_links(updated)
    seconds = time.monotonic() - begun
    outcome = updated.prepared.outcome(updated.written, verbose=update.verbose)
    if update.as_json:
        json_line(outcome_row(outcome, seconds))
    else:
        refused_lines(update.image, outcome)
        if not update.quiet:
            _summary(outcome, seconds)
        for at, place in zip(outcome.ip.tolist(), outcome.places, strict=True):
            lines([f"{at:#x} {demangled_place(place)}".rstrip()])
    if outcome.refused:
        if not update.as_json:
            number = count(len(outcome.refused), "site")
            error_line(f"{update.image}: {number} refused; nothing was written")
        raise typer.Exit(Exit.FOUND)


def _summary(outcome: Outcome, seconds: float) -> None:
    refused = len(outcome.refused)
    if outcome.new and outcome.changed:
        lines([f"new code at each site: {outcome.new.hex(' ')}"])
    lines(
        [
            (
                f"{count(outcome.sites, 'site')}, {outcome.selected} selected: {outcome.changed} "
                f"changed, {outcome.unchanged} unchanged, ",
                some(outcome.dropped, "dropped", f"{outcome.dropped} dropped"),
                ", ",
                some(refused, "refused", f"{refused} refused"),
                f", {seconds:.2f} seconds",
            )
        ]
    )
    if refused:
        return
    if outcome.calls:
        also = " as well" * bool(outcome.selected)
        lines([f"{count(outcome.calls, 'imported function')} traced{also}"])
    if outcome.undefined:
        lines([undefined_line(outcome.undefined, outcome.versioned)])
    if outcome.dropped:
        lines([dropped_line(outcome.dropped, outcome.unrecorded)])
    if outcome.cleared:
        lines([cleared_line(outcome.cleared)])
    if outcome.restored:
        lines([f"{count(outcome.restored, 'record')} restored"])
    if outcome.written is None:
        lines(["dry run: nothing was written"])
    else:
        plain = ", an unmodified copy: nothing to change" if outcome.plain else ""
        lines([f"wrote {outcome.written}{plain}"])
