# SPDX-License-Identifier: MIT
"""status of a kernel in a core: which sites were enabled, and whom they called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ftpatch.cli.console import count, json_line, lines, table
from ftpatch.cli.paint import some, warn
from ftpatch.cli.status_notes import abi_lines
from ftpatch.cli.status_row import status_row
from ftpatch.kcore.in_core import InCore, open_in_core
from ftpatch.kcore.lists import Memory
from ftpatch.kcore.ops import Callees, read_callees

__all__ = ["core_status"]


def core_status(path: Path, core: Path, *, as_json: bool, quiet: bool, verbose: bool) -> None:
    """Show the status of a kernel in a core. Raises InputError."""
    kernel = open_in_core(path, core)
    callees = read_callees(Memory(kernel))
    sites = callees.named(kernel)
    row = status_row(path, sites) | {
        "core": str(core),
        "release": kernel.release,
        "moved": hex(kernel.bias),
        "absent": len(kernel.sites_of_file) - len(sites),
        "missing": kernel.missing,
        "ops": [one.name for one in callees.ops],
    }
    if as_json:
        json_line(row)
    elif not quiet:
        _show(kernel, callees, row)
        if verbose:
            lines(f"  {text}" for text in abi_lines(sites))


def _show(kernel: InCore, callees: Callees, row: dict[str, Any]) -> None:
    head = f"{kernel.core.path}: {row['arch']} kernel {kernel.release}"
    lines(
        [
            f"{head}, moved by {row['moved']}" if kernel.bias else f"{head}, not moved",
            f"{row['records']} records: {row['null']} null, {row['sites']} sites in its text, "
            f"{row['absent']} not there any more",
        ]
    )
    if row["missing"]:
        lines([warn(f"{count(row['missing'], 'byte')} of its text are not in the core")])
    calls = [("call", number, target) for target, number in row["targets"].items() if number]
    states = [(name, number, "") for name, number in row["states"].items() if name != "call"]
    shown = [(some(number, name, name), number, target) for name, number, target in calls + states]
    table(("state", "sites", "calls"), shown, numbers=[1])
    if callees.ops:
        told = ", ".join(f"{one.name} ({_traced(one.traced)})" for one in callees.ops)
        lines([f"ftrace_ops: {told}"])


def _traced(functions: object) -> str:
    number = len(functions)  # type: ignore[arg-type]
    return count(number, "function") if number else "all functions"
