# SPDX-License-Identifier: MIT
"""status on a tree: a line for each image that has sites, and all of them together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ftpatch.cli.console import count, error_line, json_line, lines, table, watched
from ftpatch.cli.paint import joined, some, warn
from ftpatch.cli.status_row import status_row
from ftpatch.errors import FtpatchError
from ftpatch.ftrace.sites import read_sites
from ftpatch.image import open_image
from ftpatch.io.tree import MODULE, each

__all__ = ["tree_status"]

COUNTS = ("records", "null", "dropped", "sites", "lost")
STATES = ("call", "nop", "unexpected")


def tree_status(
    root: Path,
    paths: Sequence[Path],
    errors: Sequence[FtpatchError],
    *,
    as_json: bool,
    quiet: bool,
) -> bool:
    """Show the status of these images below ``root``; whether all could be read, as ``errors`` were
    not."""
    what = "module" if all(MODULE.fullmatch(path.name) for path in paths) else "image"
    for error in errors:
        error_line(str(error))
    bad = len(errors)
    rows, total = [], Counter[str]()
    for path, result in watched(each(_status, paths), len(paths), f"{what}s"):
        if isinstance(result, FtpatchError):
            error_line(str(result))
            bad += 1
        elif as_json:
            json_line(result)
        elif result["sites"] or result["records"]:
            rows.append((path, result))
    if as_json or quiet or not paths:
        return not bad
    for _, row in rows:
        total.update({name: row[name] for name in COUNTS} | row["states"])
    if rows:
        table(
            (what, "sites", *STATES, "null", "dropped"),
            (
                (
                    str(path.relative_to(root)),
                    row["sites"],
                    *(some(row["states"][state], state) for state in STATES),
                    row["null"],
                    some(row["dropped"], "dropped"),
                )
                for path, row in rows
            ),
            numbers=range(1, 7),
            spare=("null", "dropped", "unexpected"),
        )
    states = [some(total[state], state, f"{total[state]} {state}") for state in STATES]
    lines(
        [
            (
                f"{count(len(paths), what)}, {len(rows)} with sites, ",
                some(bad, "refused", f"{bad} bad"),
            ),
            (
                f"{total['records']} records: {total['null']} null, ",
                some(total["dropped"], "dropped", f"{total['dropped']} dropped"),
                f", {total['sites']} sites: ",
                *joined(states, ", "),
                *("; ", warn(f"{total['lost']} lost")) * bool(total["lost"]),
            ),
        ]
    )
    return not bad


def _status(path: Path) -> dict[str, Any]:
    """The status of one image; one without a table has no sites."""
    sites = read_sites(open_image(path), bare=True)
    row = status_row(path, sites)
    return row if sites.table_name else row | {"table": None}
