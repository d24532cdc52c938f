# SPDX-License-Identifier: MIT
"""list of a running process: the sites of each image that it has loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ftpatch.api.processes import Process
from ftpatch.cli.console import error_line, json_line, table
from ftpatch.cli.paint import of_state
from ftpatch.ftrace.filter import Selection
from ftpatch.names.demangle import demangled

__all__ = ["list_process"]


def list_process(pid: int, selection: Selection, lib: Sequence[str], *, as_json: bool) -> bool:
    """List the selected sites, as they stand in memory; whether all images could be read."""
    process = Process(pid)
    try:
        found = process.select(
            selection.filters, notrace=selection.notrace, regex=selection.regex, lib=lib
        )
    finally:
        for error in process.errors:
            error_line(str(error))
    if as_json:
        for image, sites in found:
            about = {"pid": pid, "path": str(image.path)}
            for site, differs in zip(sites, sites.differing.tolist(), strict=True):
                json_line(about | site._asdict() | {"ip": hex(site.ip), "differing": differs})
        return not process.errors
    own = found[0][0]._loaded.own.jumps  # of the process: that of each of its images
    shared = Counter(image.path.name for image, _ in found)
    table(
        ("image", "ip", "symbol", "state", "calls", "record", "file"),
        (
            (
                image.path.name if shared[image.path.name] == 1 else str(image.path),
                hex(site.ip),
                f"{demangled(site.symbol)}+{site.symbol_offset:#x}" if site.symbol else "",
                of_state(site.state),
                f"ftpatch ({own[site.ip]})" if site.ip in own else demangled(site.target),
                of_state("dropped") if site.dropped else "",
                of_state("dropped", "differs") if differs else "",
            )
            for image, sites in found
            for site, differs in zip(sites, sites.differing.tolist(), strict=True)
        ),
        spare=("record", "calls", "file"),
    )
    return not process.errors
