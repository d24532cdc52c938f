"""enable and disable on a tree of modules: every module by itself, and a tree that mirrors it."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import typer

from ftpatch.cli.console import count, error_line, json_line, lines, table, watched
from ftpatch.cli.update import (
    Planner,
    Update,
    dropped_line,
    outcome_row,
    refused_lines,
    undefined_line,
)
from ftpatch.copy import Copy
from ftpatch.errors import Exit, FtpatchError, NoTable, OutputError, UsageError
from ftpatch.tree import each, entries, is_module, no_modules
from ftpatch.unfinished import UNFINISHED
from ftpatch.update import Outcome, prepare
from ftpatch.update import update as write

__all__ = ["run_tree_update"]

SHOWN = 10
"""Errors of one kind that are told one by one."""


@dataclass(frozen=True)
class _Module:
    """The work of one module: where it goes, and which filters matched nothing in it."""

    update: Update
    plan: Planner

    def __call__(self, path: Path) -> tuple[Outcome | None, frozenset[str] | None]:
        update, missing = self.update, set[str]()
        target = path
        if update.output is not None:
            target = update.output / path.relative_to(update.image)
        try:
            prepared = prepare(
                path,
                lambda sites: self.plan(sites, missing),
                strip_signature=update.strip_signature,
            )
        except NoTable:
            self._keep(path, target)
            return None, None
        written = None
        if not prepared.refused and not len(prepared.plan.changes):
            self._keep(path, target)
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
        return prepared.outcome(written, verbose=update.verbose), frozenset(missing)

    def _keep(self, path: Path, target: Path) -> None:
        """A module that stays as it is."""
        if self.update.output is not None and not self.update.dry_run:
            _copy(path, target)


def run_tree_update(update: Update, plan: Planner) -> None:
    """Update every module of the tree ``update.image``, in place or into the tree ``-o``, which
    gets everything else as it is. Exits 1 where a site is refused, 2 where a file is bad; the
    other modules are written nevertheless."""
    begun = time.monotonic()
    _check(update)
    UNFINISHED.many = not update.dry_run
    code, modules = Exit.DONE, []
    for path, held in entries(update.image):
        if isinstance(held, FtpatchError):
            error_line(str(held))
            code = Exit.ERROR
        elif is_module(path, held):
            modules.append(path)
            _place(update, path.parent, is_folder=True)
        elif not _place(update, path, is_folder=stat.S_ISDIR(held.st_mode)):
            error_line(f"{path}: left out: neither a file nor a link")
    rows: list[tuple[Path, Outcome]] = []
    missing: set[str] | None = None
    reasons: Counter[str] = Counter()
    results = each(_Module(update, plan.expanded()), modules)
    for path, result in watched(results, len(modules), "modules"):
        if isinstance(result, FtpatchError):
            code = max(code, result.exit)
            reasons[result.reason] += 1
            if reasons[result.reason] <= SHOWN:
                error_line(str(result))
            continue
        outcome, absent = result
        if outcome is None or absent is None:
            continue
        missing = set(absent) if missing is None else missing & absent
        rows.append((path, outcome))
        if outcome.refused:
            code = max(code, Exit.FOUND)
        if update.as_json:
            json_line({"path": str(path)} | outcome_row(outcome))
        elif outcome.refused:
            refused_lines(path, outcome)
            error_line(f"{path}: {count(len(outcome.refused), 'site')} refused; not written")
    for reason, number in reasons.items():
        if number > SHOWN:
            error_line(f"... and {number - SHOWN} more modules: {reason}")
    if not update.as_json and not update.quiet:
        _summary(update, rows, len(modules), sum(reasons.values()), time.monotonic() - begun)
    if missing and not reasons:  # else it may match one that could not be looked at
        error_line(f"{update.image}: filter {min(missing)!r} matches no site of any module")
        code = Exit.ERROR
    if not modules:
        error_line(str(no_modules(update.image)))
        code = Exit.ERROR
    if code:
        raise typer.Exit(code)


def _check(update: Update) -> None:
    """Raise UsageError for a tree that cannot be written where it should."""
    source, output = update.image, update.output
    if update.in_place == (output is not None):
        raise UsageError(source, "a tree needs -o FOLDER or --in-place", "choose one")
    if output is None:
        return
    if output.is_symlink() or (output.exists() and not output.is_dir()):
        raise UsageError(output, "the output of a tree must be a folder")
    ours, theirs = output.resolve(), source.resolve()
    if ours == theirs or theirs in ours.parents or ours in theirs.parents:
        raise UsageError(output, "output and tree overlap", "name a folder beside it")
    if output.is_dir() and any(output.iterdir()) and not update.force:
        raise UsageError(output, "the output is not empty", "use --force to overwrite in it")


def _place(update: Update, path: Path, *, is_folder: bool) -> bool:
    """Put what is no module into the output's tree; False for what cannot be put anywhere."""
    if update.output is None or update.dry_run:
        return True
    target = update.output / path.relative_to(update.image)
    if is_folder and target.is_symlink():
        raise OutputError(target, "a link stands where a folder must be", "take it away")
    if target.is_dir() and not target.is_symlink() and not is_folder:
        raise OutputError(target, "a folder stands where a file must be", "take it away")
    try:
        if is_folder:
            target.mkdir(parents=True, exist_ok=True)
        elif path.is_symlink():
            if target.is_symlink():
                target.unlink()
            target.symlink_to(path.readlink())
        elif path.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy(path, target)
        else:
            return False
    except OSError as error:
        raise OutputError(target, f"cannot write: {error.strerror}") from None
    return True


def _copy(path: Path, target: Path) -> None:
    """A file as it is, whole or not at all; owner and permission bits, but neither setuid, setgid
    nor capabilities. Raises OutputError."""
    if target.is_dir() and not target.is_symlink():
        raise OutputError(target, "a folder stands where a file must be", "take it away")
    try:
        held = path.stat()
        fd, name = tempfile.mkstemp(dir=target.parent, prefix=".ftpatch.")
        UNFINISHED.name = Path(name)
        with os.fdopen(fd, "wb") as out, path.open("rb") as file:
            shutil.copyfileobj(file, out, 1 << 20)
            with contextlib.suppress(OSError):  # only root may give files away
                os.fchown(fd, held.st_uid, held.st_gid)
            os.fchmod(fd, held.st_mode & 0o777)
        os.utime(name, ns=(held.st_atime_ns, held.st_mtime_ns))
        UNFINISHED.name.replace(target)
    except OSError as error:
        raise OutputError(target, f"cannot copy {path}: {error.strerror}") from None
    finally:
        UNFINISHED.discard()
        UNFINISHED.name = None


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
                    o.dropped,
                    o.restored,
                    len(o.refused),
                )
                for path, o in touched
            ),
            numbers=range(1, 7),
        )
    outcomes = [outcome for _, outcome in rows]
    changed = sum(o.changed for o in outcomes)
    dropped, restored = (sum(getattr(o, n) for o in outcomes) for n in ("dropped", "restored"))
    lines(
        [
            f"{count(modules, 'module')}, {len(rows)} with sites, {bad} bad: "
            f"{sum(o.sites for o in outcomes)} sites, {sum(o.selected for o in outcomes)} "
            f"selected: {changed} changed, {sum(o.unchanged for o in outcomes)} unchanged, "
            f"{dropped} dropped, {sum(len(o.refused) for o in outcomes)} refused, "
            f"{seconds:.2f} seconds"
        ]
    )
    undefined = sorted({(o.undefined, o.versioned) for o in outcomes if o.undefined})
    lines(undefined_line(name, versioned) for name, versioned in undefined)
    if dropped:
        lines([dropped_line(dropped)])
    if restored:
        lines([f"{count(restored, 'record')} restored"])
    number = sum(o.written is not None for o in outcomes)
    if update.dry_run:
        lines(["dry run: nothing was written"])
    else:
        where = f"into {update.output}" if update.output else "in place"
        lines([f"wrote {count(number, 'module')} {where}"])
