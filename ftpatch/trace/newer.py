# SPDX-License-Identifier: MIT
"""Newer trace files of the same name: of a later run, and of children."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from ftpatch.errors import InputError
from ftpatch.trace.header import open_trace

__all__ = ["newer"]


def newer(files: Sequence[Path]) -> list[Path]:
    """Find the traces NAME.PID, NAME.PID.PID and so on beside ``files`` that were begun after the
    first of them, the latest first. The runtime uses such names if NAME exists, and for forked
    children."""
    begun = [_begun(path) for path in files]
    if not begun or not all(begun):
        return []
    held = {os.path.realpath(path) for path in files}
    found = {}
    for path in files:
        for other in _beside(path):
            when = _begun(other) if os.path.realpath(other) not in held else 0
            if when > min(begun):
                found[other] = when
    return sorted(found, key=found.__getitem__, reverse=True)


def _beside(path: Path) -> list[Path]:
    name = re.compile(re.escape(path.name) + r"(\.\d+)+")
    try:
        with os.scandir(path.parent) as entries:
            return [path.with_name(e.name) for e in entries if name.fullmatch(e.name)]
    except OSError:
        return []


def _begun(path: Path) -> int:
    """Return when a trace was begun, in nanoseconds since 1970; 0 if unknown."""
    try:
        fd, header = open_trace(path)
    except InputError:
        return 0
    os.close(fd)
    return header.realtime
