"""undo on a tree of modules: every module that has a journal, in place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer

from ftpatch.cli.console import count, error_line, json_line, lines, watched
from ftpatch.copy import Copy
from ftpatch.errors import Exit, FtpatchError
from ftpatch.image import open_image
from ftpatch.journal import read_blocks
from ftpatch.tree import each, module_paths, no_modules
from ftpatch.undo import plan_undo
from ftpatch.unfinished import UNFINISHED
from ftpatch.write import write

__all__ = ["run_tree_undo"]


@dataclass(frozen=True)
class _Undo:
    """The work of one module: how many Changes were taken back, None without a journal."""

    everything: bool
    dry_run: bool

    def __call__(self, path: Path) -> int | None:
        image = open_image(path)
        if not read_blocks(path, image.data[: image.end]):
            return None
        undo = plan_undo(image, everything=self.everything)
        target = None if self.dry_run else path
        with Copy(path, target, force=True, allow_setuid=False, in_place=True) as copy:
            if not self.dry_run:
                write(copy, image, undo.changes, journal=False, length=undo.length, tail=undo.tail)
        return sum(len(block.changes) for block in undo.blocks)


def run_tree_undo(
    root: Path, *, everything: bool, dry_run: bool, as_json: bool, quiet: bool
) -> None:
    """Take back the latest command, or all, of every module of a tree that has a journal."""
    UNFINISHED.many = not dry_run
    modules, errors = module_paths(root)
    code = Exit.DONE
    for error in errors or ([] if modules else [no_modules(root)]):
        error_line(str(error))
        code = Exit.ERROR
    done = changes = 0
    results = each(_Undo(everything, dry_run), modules)
    for path, result in watched(results, len(modules), "modules"):
        if isinstance(result, FtpatchError):
            error_line(str(result))
            code = max(code, result.exit)
        elif result is not None:
            done, changes = done + 1, changes + result
            if as_json:
                json_line({"output": None if dry_run else str(path), "changes": result})
    if not done and not code:
        error_line(f"{root}: no module has a journal: no command changed this tree")
        code = Exit.ERROR
    elif not as_json and not quiet:
        end = "; dry run: nothing was written" if dry_run else ""
        lines([f"{count(changes, 'change')} of {count(done, 'module')} taken back{end}"])
    if code:
        raise typer.Exit(code)
