# SPDX-License-Identifier: MIT
"""undo on a tree of modules: every module that has a journal, in place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer

from ftpatch.cli.console import count, error_line, json_line, lines, tell_linked, watched
from ftpatch.core.journal import read_blocks
from ftpatch.errors import Exit, FtpatchError
from ftpatch.image import open_image
from ftpatch.io.cleanup import CLEANUP
from ftpatch.io.output import Copy
from ftpatch.io.tree import each, module_paths, no_modules
from ftpatch.write.undo import plan_undo, take_back

__all__ = ["ANEW", "run_tree_undo"]

ANEW = "recompressed: same contents, but the compressed bytes may differ"


@dataclass(frozen=True)
class _Undo:
    """The work of one module: how many Changes were taken back, whether to the very file, and how
    many names it had; None without a journal."""

    everything: bool
    dry_run: bool

    def __call__(self, path: Path) -> tuple[int, bool, int] | None:
        image = open_image(path)
        if not read_blocks(path, image.data[: image.end]):
            return None
        undo = plan_undo(image, everything=self.everything)
        target = None if self.dry_run else path
        with Copy(path, target, force=True, allow_setuid=False, in_place=True) as copy:
            if not self.dry_run:
                take_back(copy, image, undo)
        return sum(len(block.changes) for block in undo.blocks), undo.identical, copy.names


def run_tree_undo(
    root: Path, *, everything: bool, dry_run: bool, as_json: bool, quiet: bool
) -> None:
    """Take back the latest command, or all, of every module of a tree that has a journal."""
    CLEANUP.many = not dry_run
    modules, errors = module_paths(root)
    code = Exit.DONE
    for error in errors or ([] if modules else [no_modules(root)]):
        error_line(str(error))
        code = Exit.ERROR
    done = changes = anew = linked = 0
    results = each(_Undo(everything, dry_run), modules)
    for path, result in watched(results, len(modules), "modules"):
        if isinstance(result, FtpatchError):
            error_line(str(result))
            code = max(code, result.exit)
        elif result is not None:
            number, identical, names = result
            linked += names > 1
            done, changes, anew = done + 1, changes + number, anew + (not identical)
            if as_json:
                output = None if dry_run else str(path)
                json_line({"output": output, "changes": number, "identical": identical})
    tell_linked(root, linked)
    if not done and not code:
        error_line(f"{root}: no module has a journal")
        code = Exit.ERROR
    elif not as_json and not quiet:
        end = "; dry run: nothing was written" if dry_run else ""
        lines([f"{count(anew, 'module')} {ANEW}"] if anew else [])
        lines([f"{count(changes, 'change')} of {count(done, 'module')} undone{end}"])
    if code:
        raise typer.Exit(code)
