# SPDX-License-Identifier: MIT
"""list of a kernel in a core: its sites, and who traces them."""

from __future__ import annotations

from pathlib import Path

from ftpatch.api.site_columns import Sites
from ftpatch.cli.console import json_line, table
from ftpatch.cli.paint import of_state
from ftpatch.ftrace.filter import Selection
from ftpatch.kcore.in_core import open_in_core
from ftpatch.kcore.lists import Memory
from ftpatch.kcore.ops import read_callees
from ftpatch.names.demangle import demangled

__all__ = ["list_core"]


def list_core(path: Path, core: Path, selection: Selection, *, as_json: bool) -> None:
    """List the selected sites, as they stood in memory. Raises InputError and UsageError."""
    kernel = open_in_core(path, core)
    mask = kernel.select(selection)
    callees = read_callees(Memory(kernel))
    read = callees.named(kernel)
    sites = Sites(read)[mask]
    handlers = callees.handlers(read.ip[mask])
    rows = [
        (site, kernel.above(site.ip), who if site.state == "call" else ())
        for site, who in zip(sites, handlers, strict=True)
    ]
    if as_json:
        for site, ip, who in rows:
            about = {"path": str(path), "core": str(core)}
            json_line(about | site._asdict() | {"ip": hex(ip), "ops": list(who)})
        return
    table(
        ("ip", "symbol", "state", "calls", "record", "ops"),
        (
            (
                hex(ip),
                f"{demangled(site.symbol)}+{site.symbol_offset:#x}" if site.symbol else "",
                of_state(site.state),
                demangled(site.target),
                of_state("dropped") if site.dropped else "",
                ", ".join(who),
            )
            for site, ip, who in rows
        ),
        spare=("record", "calls", "ops"),
    )
