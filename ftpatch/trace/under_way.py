# SPDX-License-Identifier: MIT
"""The place of what a running process records, until it gets the name that was asked for:

    x.trace      .x.trace.recording/x.trace         of the process
    x.trace.17   .x.trace.recording/x.trace.17      of its child 17

The process has these files mapped: whoever truncated one would end it by SIGBUS. Nobody who means
x.trace meets them in a folder of the user's own.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["place_of"]


def place_of(trace: Path) -> Path:
    """Name the place of a trace while it is written."""
    if not trace.name:  # of a folder
        return trace
    return trace.with_name(f".{trace.name}.recording") / trace.name
