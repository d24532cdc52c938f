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

MAX_SHOWN = 8
"""Maximum number of probes, or watches, that a line names."""


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
    """Probes and watches that were inserted into a program or a library."""
    if not (image.is_program or image.is_library):
        return {}
    from ftpatch.image.injected import laid_in_at

    if laid_in_at(image) is None:
        return {}
    from ftpatch.probe.read_back import injected_probes
    from ftpatch.watch.plan import watched_lines

    watches = watched_lines(image)
    probes = [one.text for one in injected_probes(image) or []]
    return {key: held for key, held in (("watches", watches), ("probes", probes)) if held}


def inserted_words(row: dict[str, Any]) -> str:
    """The same in words, as the end of a line."""
    told = ""
    for key, verb, what in (("watches", "watches", "variable"), ("probes", "has", "probe")):
        if key in row:
            shown, more = row[key][:MAX_SHOWN], len(row[key]) - MAX_SHOWN
            told += f", {verb} {count(len(row[key]), what)}: {', '.join(shown)}"
            told += f" and {more} more" if more > 0 else ""
    return told
