# SPDX-License-Identifier: MIT
"""The status of an image as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ftpatch.cli.console import count

if TYPE_CHECKING:
    from pathlib import Path

    from ftpatch.ftrace.sites import Sites
    from ftpatch.image import Image

__all__ = ["inserted", "inserted_words", "status_row"]


def status_row(path: Path, sites: Sites) -> dict[str, Any]:
    """Count records and sites, their states and their callees."""
    import numpy as np

    from ftpatch.arch import State
    from ftpatch.ftrace.lost_records import find_lost

    counts = np.bincount(sites.state, minlength=len(State)).tolist()
    called = sites.addr[sites.state == State.CALL]
    number = np.bincount(sites.targets.index(called), minlength=len(sites.targets.addr)).tolist()
    targets: dict[str, int] = {}
    for name, calls in zip(sites.targets.name, number, strict=False):
        targets[name] = targets.get(name, 0) + calls
    return {
        "path": str(path),
        "container": sites.image.container.name,
        "arch": sites.arch.name,
        "table": sites.table_name,
        "records": len(sites.table_before.value),
        "null": sites.null,
        "dropped": int(sites.dropped.sum()),
        "sites": len(sites),
        "lost": len(find_lost(sites)),
        "states": {state.name.lower(): counts[state] for state in State},
        "targets": targets,
    }


def inserted(image: Image) -> dict[str, list[str]]:
    """Probes and watches that were inserted into a program."""
    from ftpatch.image.injected import laid_in_by

    by = laid_in_by(image) if image.is_program else None
    if by == "watch":
        from ftpatch.watch.plan import watched_lines

        return {"watches": watched_lines(image)}
    if by == "probe":
        from ftpatch.probe.read_back import injected_probes

        return {"probes": [one.text for one in injected_probes(image) or []]}
    return {}


def inserted_words(row: dict[str, Any]) -> str:
    """The same in words, as the end of a line."""
    told = ""
    for key, verb, what in (("watches", "watches", "variable"), ("probes", "has", "probe")):
        if key in row:
            told += f", {verb} {count(len(row[key]), what)}: {', '.join(row[key])}"
    return told
