# SPDX-License-Identifier: MIT
"""The place of what a running process records, until it gets the name that was asked for:

    x.trace      .x.trace.recording/x.trace         of the process
    x.trace.17   .x.trace.recording/x.trace.17      of its child 17

The process has these files mapped: whoever truncated one would end it by SIGBUS. Nobody who means
x.trace meets them in a folder of the user's own.
"""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["place_of", "trace_of"]

_FOLDER = re.compile(r"\.(.+)\.recording")


def place_of(trace: Path) -> Path:
    """Name the place of a trace while it is written."""
    if not trace.name:  # of a folder
        return trace
    return trace.with_name(f".{trace.name}.recording") / trace.name


def trace_of(place: Path) -> Path | None:
    """Name the trace of a process, given the place of it or of a child's; None for any other
    file."""
    found = _FOLDER.fullmatch(place.parent.name)
    return place.parent.with_name(found[1]) if found else None
