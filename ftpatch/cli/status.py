# SPDX-License-Identifier: MIT
"""``ftpatch status``: states and callees of an image's sites."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from ftpatch.cli.console import count, error_line, json_line, lines, table
from ftpatch.cli.exclude import Exclude, images_below
from ftpatch.cli.options import Format, Images, Json, Quiet, Verbose, wants_json
from ftpatch.cli.paint import some, warn
from ftpatch.cli.status_row import status_row
from ftpatch.errors import Exit, FtpatchError, NoTable
from ftpatch.names.demangle import demangled

if TYPE_CHECKING:
    from pathlib import Path

    from ftpatch.ftrace.sites import Sites
    from ftpatch.image import Image

__all__ = ["command"]

FEW = 5
"""Functions without a record that are named."""


def command(
    images: Images,
    exclude: Exclude = [],  # noqa: B006 - typer copies it
    json: Json = False,
    format_: Format = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Count records and sites, with their states and callees.

    Example: ftpatch status vmlinux
    """
    as_json = wants_json(json, format_)
    failed = False
    folders = images_below(images, exclude)
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
                _notes(sites, row["lost"])
                if verbose:
                    _abi(sites)
    if failed:
        raise typer.Exit(Exit.ERROR)


def _read(path: Path) -> tuple[dict[str, Any], Sites | None]:
    """The status of a file; a program that has probes or watches may have no sites."""
    from ftpatch.arch import arch_of
    from ftpatch.ftrace.sites import read_sites
    from ftpatch.image import open_image

    image = open_image(path)
    held = _held(image)
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


def _held(image: Image) -> dict[str, list[str]]:
    """What else was inserted into a program."""
    from ftpatch.image.injected import laid_in_by

    by = laid_in_by(image) if image.is_program else None
    if by == "watch":
        from ftpatch.watch.plan import watched_lines

        return {"watches": watched_lines(image)}
    if by == "probe":
        from ftpatch.probe.read_back import injected_probes

        return {"probes": [one.text for one in injected_probes(image) or []]}
    return {}


def _notes(sites: Sites, number: int) -> None:
    """What a count does not tell: functions that lost their record, pads that are too short."""
    from ftpatch.ftrace.lost_records import find_lost
    from ftpatch.ftrace.short_pads import too_short

    if number:
        lost = find_lost(sites)
        few = ", ".join(map(demangled, lost.names(sites)[:FEW])) + ", ..." * (len(lost) > FEW)
        have = "1 function has" if len(lost) == 1 else f"{len(lost)} functions have"
        lines([(warn(have), f" {lost.what} but no record: {few}; see `ftpatch check`")])
    if short := too_short(sites):
        lines([short])


def _abi(sites: Sites) -> None:
    """What the image says of its sites."""
    abi = sites.abi
    symbols = sites.image.symbols
    callee = next((n for n in sites.arch.mcount_names if symbols.find(n) == abi.mcount), "")
    callee = f"{callee} at {abi.mcount:#x}".strip()
    said = ["compiled in: a pad" if abi.pad else f"compiled in: a call to {callee}"]
    if abi.prefix:
        said.append(f"records point {abi.prefix} bytes before the function")
    if abi.nop:
        said.append(f"its own NOP: {abi.nop.hex(' ')}")
    if abi.nop_ops:
        said.append(f"CALL_OPS: a literal before each function, ftrace_nop_ops at {abi.nop_ops:#x}")
    if abi.kernel:
        drop = sites.arch.drop(abi)
        said.append(
            "records cannot be dropped" if drop is None else f"a dropped record holds {drop:#x}"
        )
    if sites.unexecuted:
        said.append(f"{sites.unexecuted} pads lie entirely before their function and are no sites")
    lines(f"  {text}" for text in said)


def _show(row: dict[str, Any]) -> None:
    told = ""
    for key, verb, what in (("watches", "watches", "variable"), ("probes", "has", "probe")):
        if key in row:
            told += f", {verb} {count(len(row[key]), what)}: {', '.join(row[key])}"
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
