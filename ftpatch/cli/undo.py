# SPDX-License-Identifier: MIT
"""``ftpatch undo``: revert the changes that the journal records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ftpatch.api.writing import Writing, write_undo
from ftpatch.cli.console import count, json_line, lines, tell_links, wait_for
from ftpatch.cli.options import (
    AllowSetuid,
    DryRun,
    Force,
    Format,
    InPlace,
    Json,
    OptionalTree,
    Pid,
    Quiet,
    require_input,
    wants_json,
)
from ftpatch.errors import Exit, UsageError

if TYPE_CHECKING:
    from ftpatch.core.journal import Block
    from ftpatch.write.undo import Undo

__all__ = ["command"]


def command(
    image: OptionalTree = None,
    pid: Pid = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Undo all commands, not just the latest.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Output file [default: IMAGE itself]."),
    ] = None,
    in_place: InPlace = False,
    force: Force = False,
    allow_setuid: AllowSetuid = False,
    dry_run: DryRun = False,
    json: Json = False,
    format_: Format = None,
    quiet: Quiet = False,
) -> None:
    """Undo the latest command that wrote the image.

    The image is restored byte for byte; a running process gets its code back, and ftpatch is
    unmapped from it.

    Example: ftpatch undo vmlinux.ftpatch
    """
    as_json = wants_json(json, format_)
    require_input([] if image is None else [image], [] if pid is None else [pid])
    if image is None:
        from ftpatch.cli.process_update import require_unused, undo_process

        assert pid is not None
        require_unused({"-o": output, "--in-place": in_place, "--dry-run": dry_run})
        if not undo_process(pid, as_json=as_json, quiet=quiet):
            raise typer.Exit(Exit.FOUND)
        return
    if image.is_dir():
        from ftpatch.cli.undo_tree import run_tree_undo

        if output is not None:
            raise UsageError(image, "a tree can only be undone in place", "remove -o")
        run_tree_undo(image, everything=everything, dry_run=dry_run, as_json=as_json, quiet=quiet)
        return
    writing = Writing(
        image=image,
        output=output,
        in_place=in_place,
        force=force,
        allow_setuid=allow_setuid,
        dry_run=dry_run,
    )
    undone = write_undo(writing, everything=everything, wait=wait_for)
    tell_links(undone)
    undo, target = undone.undo, undone.target
    for block in undo.blocks:
        if as_json:
            json_line(
                {
                    "output": None if dry_run else str(target),
                    "changes": len(block.changes),
                    "length": block.length,
                    "identical": undo.identical,
                }
            )
        elif not quiet:
            lines([f"{count(len(block.changes), 'change')} undone{_size(undo, block)}"])
    if not as_json and not quiet:
        if not undo.identical:
            from ftpatch.cli.undo_tree import ANEW

            lines([f"{undone.image.compression}: {ANEW}"])
        lines(["dry run: nothing was written" if dry_run else f"wrote {target}"])


def _size(undo: Undo, block: Block) -> str:
    """The size that the file has again; of a compressed one, that is known of the original only."""
    if not undo.packed:
        return f", {block.length} bytes as before"
    is_original = undo.identical and block is undo.blocks[-1]
    return f", {len(undo.packed)} bytes as before" if is_original else ""
