# SPDX-License-Identifier: MIT
"""enable and disable on a tree of modules: every module by itself, and a tree that mirrors it."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ftpatch.api.planner import SitePlanner
from ftpatch.api.tree_rehearsal import rehearse
from ftpatch.api.writing import Writing
from ftpatch.errors import FtpatchError, NoTable, UsageError
from ftpatch.io.cleanup import CLEANUP
from ftpatch.io.mirror import Mirror
from ftpatch.io.output import Copy
from ftpatch.io.tree import Watching, each, entries, is_module, no_modules, unwatched
from ftpatch.update.update import Outcome, prepare
from ftpatch.update.update import update as write

__all__ = ["TreeUpdate"]


@dataclass(frozen=True)
class _Module:
    """The work of one module, None where it has no sites; ``verbose``: with every changed site."""

    writing: Writing
    plan: SitePlanner
    mirror: Mirror | None
    verbose: bool

    def __call__(self, path: Path) -> Outcome | None:
        writing, mirror = self.writing, self.mirror
        target = mirror.of(path) if mirror else path
        try:
            prepared = prepare(
                path,
                lambda sites: self.plan(sites, set()),
                strip_signature=writing.strip_signature,
            )
        except NoTable:
            self._keep(path)
            return None
        written = None
        if not prepared.refused and not len(prepared.plan.changes):
            self._keep(path)
        elif not prepared.refused and not writing.dry_run:
            with Copy(
                path,
                target,
                force=writing.force,
                allow_setuid=writing.allow_setuid,
                in_place=writing.output is None,
            ) as copy:
                write(copy, prepared)
                written = target
        return prepared.outcome(written, verbose=self.verbose)

    def _keep(self, path: Path) -> None:
        """A module that stays as it is."""
        if self.mirror and not self.writing.dry_run:
            self.mirror.file(path)


class TreeUpdate:
    """The update of every module of the tree ``writing.image``, in place or into the folder
    ``writing.output``, which gets everything else as it is. ``linked``: modules that have other
    names, which keep the old contents."""

    def __init__(
        self,
        writing: Writing,
        plan: SitePlanner,
        unread: Callable[[FtpatchError], None],
        watching: Watching = unwatched,
    ) -> None:
        """Plan all of it; ``unread`` takes the error of what cannot be read. Nothing is written.
        Raises UsageError where the command makes no sense for the tree, or would change nothing for
        a reason; InputError for a tree without modules."""
        if writing.in_place and writing.output is not None:
            raise UsageError(
                writing.image, "--in-place and -o are mutually exclusive", "choose one"
            )
        if not (writing.in_place or writing.output or writing.dry_run):
            raise UsageError(writing.image, "a tree needs -o DIR or --in-place", "choose one")
        self._writing, self._watching = writing, watching
        self._mirror = Mirror(writing.image, writing.output) if writing.output else None
        if self._mirror:
            self._mirror.check(force=writing.force)
        self.modules: list[Path] = []
        self.linked: set[Path] = set()
        self._others: list[tuple[Path, int]] = []
        for path, held in entries(writing.image):
            if isinstance(held, FtpatchError):
                unread(held)
            elif is_module(path, held):
                self.modules.append(path)
                if held.st_nlink > 1 and self._mirror is None:
                    self.linked.add(path)
            else:
                self._others.append((path, held.st_mode))
        if not self.modules:
            raise no_modules(writing.image)
        self._plan = plan.expanded()
        rehearse(
            writing.image,
            self.modules,
            self._plan,
            strip_signature=writing.strip_signature,
            watching=watching,
        )

    def carry_out(
        self, *, verbose: bool = False, skip: Callable[[Path], None] = lambda _: None
    ) -> Iterator[tuple[Path, Outcome | FtpatchError]]:
        """Write, and yield what came of each module that has sites, or the error of a file.
        ``skip`` is told what is neither a file nor a link."""
        writing, mirror = self._writing, self._mirror
        CLEANUP.many = not writing.dry_run
        if mirror and not writing.dry_run:
            mirror.folder(writing.image)
            others = iter(self._others)
            for path, mode in self._watching(others, len(self._others), "copying"):
                try:
                    _keep(mirror, path, mode, skip)
                except FtpatchError as error:
                    yield path, error
        results = each(_Module(writing, self._plan, mirror, verbose), self.modules)
        for path, outcome in self._watching(results, len(self.modules), "modules"):
            if outcome is not None:
                yield path, outcome


def _keep(mirror: Mirror, path: Path, mode: int, skip: Callable[[Path], None]) -> None:
    """What is no module."""
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        skip(path)
    else:
        (mirror.folder if stat.S_ISDIR(mode) else mirror.file)(path)
