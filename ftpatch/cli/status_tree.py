"""status on a tree of modules: a line for each that has sites, and all of them together."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from ftpatch.arch import arch_of
from ftpatch.cli.console import count, error_line, json_line, lines, table, watched
from ftpatch.cli.status import status_row
from ftpatch.errors import FtpatchError, NoTable
from ftpatch.image import Image, open_image
from ftpatch.sites import read_sites
from ftpatch.tree import each, module_paths, no_modules

__all__ = ["tree_status"]

COUNTS = ("records", "null", "dropped", "sites")
STATES = ("call", "nop", "unexpected")


def tree_status(root: Path, *, as_json: bool, quiet: bool) -> bool:
    """Show the status of every module below ``root``; whether all could be read."""
    paths, errors = module_paths(root)
    for error in errors or ([] if paths else [no_modules(root)]):
        error_line(str(error))
    bad = len(errors) + (not paths)
    rows, total = [], Counter[str]()
    for path, result in watched(each(_status, paths), len(paths), "modules"):
        if isinstance(result, FtpatchError):
            error_line(str(result))
            bad += 1
        elif as_json:
            json_line(result)
        elif result["sites"] or result["records"]:
            rows.append((path, result))
    if as_json or quiet:
        return not bad
    for _, row in rows:
        total.update({name: row[name] for name in COUNTS} | row["states"])
    if rows:
        table(
            ("module", "sites", *STATES, "null", "dropped"),
            (
                (
                    str(path.relative_to(root)),
                    row["sites"],
                    *(row["states"][state] for state in STATES),
                    row["null"],
                    row["dropped"],
                )
                for path, row in rows
            ),
            numbers=range(1, 7),
        )
    states = ", ".join(f"{total[state]} {state}" for state in STATES)
    lines(
        [
            f"{count(len(paths), 'module')}, {len(rows)} with sites, {bad} bad",
            f"{total['records']} records: {total['null']} null, {total['dropped']} dropped, "
            f"{total['sites']} sites: {states}",
        ]
    )
    return not bad


def _status(path: Path) -> dict[str, Any]:
    """The status of one module; one without a table has no sites."""
    image = open_image(path)
    try:
        return status_row(path, read_sites(image))
    except NoTable:
        return {
            "path": str(path),
            "container": image.container,
            "arch": _arch(image),
            "table": None,
            **dict.fromkeys(COUNTS, 0),
            "states": dict.fromkeys(STATES, 0),
            "targets": {},
        }


def _arch(image: Image) -> str | None:
    arch = arch_of(image.elf.skeleton.machine, image.elf.skeleton.elf_class)
    return arch.name if arch else None
