# SPDX-License-Identifier: MIT
"""undo on a tree of modules: every module that has a journal, in place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ftpatch.errors import FtpatchError
from ftpatch.image import open_image
from ftpatch.io.cleanup import CLEANUP
from ftpatch.io.output import Copy
from ftpatch.io.tree import Watching, each, module_paths, no_modules, unwatched
from ftpatch.write.undo import plan_undo, take_back

__all__ = ["UndoneModule", "undo_tree"]


@dataclass(frozen=True)
class UndoneModule:
    """A module's undo: the number of Changes that were taken back, whether that gave the very file
    (else it was compressed anew), and the number of names that the file had."""

    changes: int
    identical: bool
    names: int


@dataclass(frozen=True)
class _Undo:
    """The work of one module; None without a journal."""

    everything: bool
    dry_run: bool

    def __call__(self, path: Path) -> UndoneModule | None:
        image = open_image(path)
        if not image.blocks:
            return None
        undo = plan_undo(image, everything=self.everything)
        target = None if self.dry_run else path
        with Copy(path, target, force=True, allow_setuid=False, in_place=True) as copy:
            if not self.dry_run:
                take_back(copy, image, undo)
        changes = sum(len(block.changes) for block in undo.blocks)
        return UndoneModule(changes, undo.identical, copy.names)


def undo_tree(
    root: Path, *, everything: bool, dry_run: bool, watching: Watching = unwatched
) -> Iterator[tuple[Path, UndoneModule | FtpatchError]]:
    """Take back the latest command, or all, of every module of a tree that has a journal; yield
    what came of it, or the error of a file."""
    CLEANUP.many = not dry_run
    modules, errors = module_paths(root)
    for error in errors or ([] if modules else [no_modules(root)]):
        yield Path(error.path or root), error
    results = each(_Undo(everything, dry_run), modules)
    for path, result in watching(results, len(modules), "modules"):
        if result is not None:
            yield path, result
