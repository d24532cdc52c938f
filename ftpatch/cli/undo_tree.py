# SPDX-License-Identifier: MIT
"""undo on a tree of modules: every module that has a journal, in place."""

from __future__ import annotations

from pathlib import Path

import typer

from ftpatch.api.tree_undo import undo_tree
from ftpatch.cli.console import count, error_line, json_line, lines, tell_linked, watched
from ftpatch.errors import Exit, FtpatchError

__all__ = ["ANEW", "run_tree_undo"]

ANEW = "recompressed: same contents, but the compressed bytes may differ"


def run_tree_undo(
    root: Path, *, everything: bool, dry_run: bool, as_json: bool, quiet: bool
) -> None:
    """Take back the latest command, or all, of every module of a tree that has a journal."""
    code = Exit.DONE
    done = changes = anew = linked = 0
    undone = undo_tree(root, everything=everything, dry_run=dry_run, watching=watched)
    for path, result in undone:
        if isinstance(result, FtpatchError):
            error_line(str(result))
            code = max(code, result.exit)
            continue
        linked += result.names > 1
        done, changes = done + 1, changes + result.changes
        anew += not result.identical
        if as_json:
            output = None if dry_run else str(path)
            row = {"output": output, "changes": result.changes, "identical": result.identical}
            json_line(row)
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
