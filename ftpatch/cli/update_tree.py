# SPDX-License-Identifier: MIT
"""enable and disable on a tree of modules: every module by itself, and a tree that mirrors it."""

from __future__ import annotations

import stat
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import typer

from ftpatch.api.planner import Planner
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
from ftpatch.cli.rehearse import rehearse
from ftpatch.errors import Exit, FtpatchError, NoTable, UsageError
from ftpatch.io.cleanup import CLEANUP
from ftpatch.io.mirror import Mirror
from ftpatch.io.output import Copy
from ftpatch.io.tree import each, entries, is_module, no_modules
from ftpatch.update.update import Outcome, prepare
from ftpatch.update.update import update as write

__all__ = ["run_tree_update"]


@dataclass(frozen=True)
class _Module:
    """The work of one module, None where it has no sites."""

    update: Update
    plan: Planner
    mirror: Mirror | None

    def __call__(self, path: Path) -> Outcome | None:
        update, mirror = self.update, self.mirror
        target = mirror.of(path) if mirror else path
        try:
            prepared = prepare(
                path,
                lambda sites: self.plan(sites, set()),
                strip_signature=update.strip_signature,
            )
        except NoTable:
            self._keep(path)
            return None
        written = None
        if not prepared.refused and not len(prepared.plan.changes):
            self._keep(path)
        elif not prepared.refused and not update.dry_run:
            with Copy(
                path,
                target,
                force=update.force,
                allow_setuid=update.allow_setuid,
                in_place=update.output is None,
            ) as copy:
                write(copy, prepared)
                written = target
        return prepared.outcome(written, verbose=update.verbose)

    def _keep(self, path: Path) -> None:
        """A module that stays as it is."""
        if self.mirror and not self.update.dry_run:
            self.mirror.file(path)


def run_tree_update(update: Update, plan: Planner) -> None:
    """Update every module of the tree ``update.image``, in place or into the tree ``-o``, which
    gets everything else as it is. Exits 1 where a site is refused, 2 where a file is bad; the
    other modules are written nevertheless."""
    begun = time.monotonic()
    if update.in_place and update.output is not None:
        raise UsageError(update.image, "--in-place and -o are mutually exclusive", "choose one")
    if not (update.in_place or update.output or update.dry_run):
        raise UsageError(update.image, "a tree needs -o DIR or --in-place", "choose one")
    mirror = Mirror(update.image, update.output) if update.output else None
    if mirror:
        mirror.check(force=update.force)
    errors, code, modules, others = Errors(), Exit.DONE, list[Path](), list[tuple[Path, int]]()
    linked = set[Path]()
    for path, held in entries(update.image):
        if isinstance(held, FtpatchError):
            errors.tell(held)
        elif is_module(path, held):
            modules.append(path)
            if held.st_nlink > 1 and mirror is None:
                linked.add(path)
        else:
            others.append((path, held.st_mode))
    if not modules:
        raise no_modules(update.image)
    plan = plan.expanded()
    rehearse(update.image, modules, plan, strip_signature=update.strip_signature)
    CLEANUP.many = not update.dry_run
    if mirror and not update.dry_run:
        mirror.folder(update.image)
        for path, mode in watched(others, len(others), "copying"):
            try:
                _mirror(mirror, path, mode)
            except FtpatchError as error:
                errors.tell(error)
    rows: list[tuple[Path, Outcome]] = []
    results = each(_Module(update, plan, mirror), modules)
    for path, outcome in watched(results, len(modules), "modules"):
        if isinstance(outcome, FtpatchError):
            errors.tell(outcome)
            continue
        if outcome is None:
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
    tell_linked(update.image, sum(o.written in linked for _, o in rows))
    if not update.as_json and not update.quiet:
        _summary(update, rows, len(modules), errors.number, time.monotonic() - begun)
    if code:
        raise typer.Exit(code)


def _mirror(mirror: Mirror, path: Path, mode: int) -> None:
    """What is no module."""
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        error_line(f"{path}: skipped: neither a file nor a link")
    else:
        (mirror.folder if stat.S_ISDIR(mode) else mirror.file)(path)


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
