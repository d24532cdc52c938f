# SPDX-License-Identifier: MIT
"""enable and disable on a tree of modules: every module by itself, and a tree that mirrors it."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import typer

from ftpatch.api.planner import SitePlanner
from ftpatch.api.tree_update import TreeUpdate
from ftpatch.cli.console import (
    Errors,
    count,
    error_line,
    json_line,
    lines,
    table,
    tell_linked,
    watched,
)
from ftpatch.cli.options import Update
from ftpatch.cli.outcome import dropped_line, outcome_row, refused_lines, undefined_line
from ftpatch.cli.paint import some
from ftpatch.errors import Exit, FtpatchError
from ftpatch.update.update import Outcome

__all__ = ["run_tree_update"]


def run_tree_update(update: Update, plan: SitePlanner) -> None:
    """Update every module of the tree ``update.image``, in place or into the tree ``-o``, which
    gets everything else as it is. Exits 1 where a site is refused, 2 where a file is bad; the
    other modules are written nevertheless."""
    begun = time.monotonic()
    errors, code, rows = Errors(), Exit.DONE, list[tuple[Path, Outcome]]()
    made = TreeUpdate(update, plan, errors.tell, watched)
    for path, outcome in made.carry_out(verbose=update.verbose, skip=_skipped):
        if isinstance(outcome, FtpatchError):
            errors.tell(outcome)
            continue
        rows.append((path, outcome))
        if outcome.refused:
            code = max(code, Exit.FOUND)
        if update.as_json:
            json_line({"path": str(path)} | outcome_row(outcome))
        elif outcome.refused:
            refused_lines(path, outcome)
            error_line(f"{path}: {count(len(outcome.refused), 'site')} refused; not written")
    errors.end()
    code = max(code, errors.code)
    tell_linked(update.image, sum(o.written in made.linked for _, o in rows))
    if not update.as_json and not update.quiet:
        _summary(update, rows, len(made.modules), errors.number, time.monotonic() - begun)
    if code:
        raise typer.Exit(code)


def _skipped(path: Path) -> None:
    error_line(f"{path}: skipped: neither a file nor a link")


def _summary(
    update: Update, rows: list[tuple[Path, Outcome]], modules: int, bad: int, seconds: float
) -> None:
    """A line for each module of which something was selected, and all of them together."""
    touched = [(path, outcome) for path, outcome in rows if outcome.selected]
    if touched:
        table(
            ("module", "sites", "selected", "changed", "dropped", "restored", "refused"),
            (
                (
                    str(path.relative_to(update.image)),
                    o.sites,
                    o.selected,
                    o.changed,
                    some(o.dropped, "dropped"),
                    o.restored,
                    some(len(o.refused), "refused"),
                )
                for path, o in touched
            ),
            numbers=range(1, 7),
            spare=("restored", "sites", "selected", "dropped"),
        )
    outcomes = [outcome for _, outcome in rows]
    changed = sum(o.changed for o in outcomes)
    dropped, restored = (sum(getattr(o, n) for o in outcomes) for n in ("dropped", "restored"))
    refused = sum(len(o.refused) for o in outcomes)
    lines(
        [
            (
                f"{count(modules, 'module')}, {len(rows)} with sites, ",
                some(bad, "refused", f"{bad} bad"),
                f": {sum(o.sites for o in outcomes)} sites, {sum(o.selected for o in outcomes)} "
                f"selected: {changed} changed, {sum(o.unchanged for o in outcomes)} unchanged, ",
                some(dropped, "dropped", f"{dropped} dropped"),
                ", ",
                some(refused, "refused", f"{refused} refused"),
                f", {seconds:.2f} seconds",
            )
        ]
    )
    undefined = sorted({(o.undefined, o.versioned) for o in outcomes if o.undefined})
    lines(undefined_line(name, versioned) for name, versioned in undefined)
    lost = Counter[str]()
    for outcome in outcomes:
        lost[outcome.unrecorded] += outcome.dropped
    lines(dropped_line(number, meaning) for meaning, number in lost.items() if number)
    if restored:
        lines([f"{count(restored, 'record')} restored"])
    number = sum(o.written is not None for o in outcomes)
    absent = bad + sum(bool(o.refused) for o in outcomes)
    if absent and update.output and not update.dry_run:
        lines([f"{update.output} lacks {count(absent, 'module')}, listed above"])
    if update.dry_run:
        lines(["dry run: nothing was written"])
    else:
        where = f"into {update.output}" if update.output else "in place"
        lines([f"wrote {count(number, 'module')} {where}"])
