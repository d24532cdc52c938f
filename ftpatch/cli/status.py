# SPDX-License-Identifier: MIT
"""``ftpatch status``: states and callees of an image's sites."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from ftpatch.cli.console import error_line, json_line, lines, table
from ftpatch.cli.exclude import Exclude, images_below
from ftpatch.cli.options import (
    Core,
    Format,
    Images,
    Json,
    Pids,
    Quiet,
    Verbose,
    require_input,
    require_kernel,
    wants_json,
)
from ftpatch.cli.paint import some
from ftpatch.cli.status_notes import abi_lines, remarks
from ftpatch.cli.status_row import inserted, inserted_words, status_row
from ftpatch.errors import Exit, FtpatchError, NoTable
from ftpatch.names.demangle import demangled

if TYPE_CHECKING:
    from pathlib import Path

    from ftpatch.ftrace.sites import Sites

__all__ = ["command"]


def command(
    images: Images = [],  # noqa: B006 - typer copies it
    pids: Pids = [],  # noqa: B006
    core: Core = None,
    exclude: Exclude = [],  # noqa: B006
    json: Json = False,
    format_: Format = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Count records and sites, with their states and callees.

    With --pid, of each image that the process has loaded, as it is in memory. With --core, of a
    kernel that crashed, or that runs.

    Example: ftpatch status vmlinux
    """
    as_json = wants_json(json, format_)
    if core is not None:
        from ftpatch.cli.status_core import core_status

        kernel = require_kernel(images, pids)
        core_status(kernel, core, as_json=as_json, quiet=quiet, verbose=verbose)
        return
    require_input(images, pids)
    folders = images_below(images, exclude)
    failed = False
    if pids:
        from ftpatch.cli.status_process import process_status

        failed = not process_status(pids, as_json=as_json, quiet=quiet, verbose=verbose)
    for path in images:
        if path in folders:
            from ftpatch.cli.status_tree import tree_status

            failed |= not tree_status(path, *folders[path], as_json=as_json, quiet=quiet)
            continue
        try:
            row, sites = _read(path)
        except FtpatchError as error:
            error_line(str(error))
            failed = True
            continue
        if as_json:
            json_line(row)
        elif not quiet:
            _show(row)
            if sites is not None:
                lines(remarks(sites, row["lost"]))
                if verbose:
                    lines(f"  {text}" for text in abi_lines(sites))
    if failed:
        raise typer.Exit(Exit.ERROR)


def _read(path: Path) -> tuple[dict[str, Any], Sites | None]:
    """The status of a file; a program that has probes or watches may have no sites."""
    from ftpatch.arch import arch_of
    from ftpatch.ftrace.sites import read_sites
    from ftpatch.image import open_image

    image = open_image(path)
    held = inserted(image)
    try:
        sites = read_sites(image)
    except NoTable:
        if not held:
            raise
        arch = arch_of(image.elf.skeleton.machine, image.elf.skeleton.elf_class)
        head = {
            "path": str(path),
            "container": image.container.name,
            "arch": arch.name if arch else "",
        }
        return head | held, None
    return status_row(path, sites) | held, sites


def _show(row: dict[str, Any]) -> None:
    told = inserted_words(row)
    if "records" not in row:
        lines([f"{row['path']}: {row['arch']} {row['container']}{told}"])
        return
    lines(
        [
            f"{row['path']}: {row['arch']} {row['container']}, table {row['table']}" + told,
            (
                f"{row['records']} records: {row['null']} null, ",
                some(row["dropped"], "dropped", f"{row['dropped']} dropped"),
                f", {row['sites']} sites",
            ),
        ]
    )
    states = [(name, number, "") for name, number in row["states"].items() if name != "call"]
    calls = [("call", number, demangled(target)) for target, number in row["targets"].items()]
    shown = [(some(number, name, name), number, target) for name, number, target in calls + states]
    table(("state", "sites", "calls"), shown, numbers=[1])
