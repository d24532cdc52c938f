# SPDX-License-Identifier: MIT
"""Sources of findings: the files and lines that debug information gives for their addresses."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ftpatch.errors import InputError

if TYPE_CHECKING:
    from ftpatch.ftrace.check.check import Check, Finding

__all__ = ["Place", "source_places"]

Place = tuple[Path, int]
"""A file, relative to the current folder if it is below that, and a line."""
TYPE = slice(16, 18)
RELOCATABLE = {b"\1\0", b"\0\1"}
"""e_type, and ET_REL in either byte order: line tables that only a loader completes."""


def source_places(path: Path, check: Check, findings: Sequence[Finding]) -> list[Place | None]:
    """The source of each of a check's findings, None where nothing tells it. An image whose debug
    information cannot be read has none: its findings matter, and are told nevertheless."""
    from ftpatch.core.columns import addresses
    from ftpatch.debuginfo.lines import Lines

    none: list[Place | None] = [None] * len(findings)
    if all(finding.ip is None for finding in findings):
        return none
    path = check.source or path
    try:
        with path.open("rb") as file:
            if file.read(TYPE.stop)[TYPE] in RELOCATABLE:
                return none
        found = Lines(path, absolute=True).places(addresses(*(one.linked for one in findings)))
    except (InputError, OSError):
        return none
    here = Path.cwd()
    return [
        None if finding.ip is None else _place(text, here)
        for text, finding in zip(found, findings, strict=True)
    ]


def _place(text: str, here: Path) -> Place | None:
    """``/src/file.c:12`` as seen from ``here``."""
    name, _, line = text.rpartition(":")
    if not name or not line.isdecimal() or not int(line):
        return None
    file = Path(os.path.normpath(name))
    return (file.relative_to(here) if file.is_relative_to(here) else file), int(line)
