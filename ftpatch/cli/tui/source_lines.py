# SPDX-License-Identifier: MIT
"""The source file of a function, by line information of its program."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ftpatch.cli.console import clean
from ftpatch.debuginfo.lines import Lines
from ftpatch.errors import InputError
from ftpatch.trace.symbolize import Program

__all__ = ["SourceFile", "read_source"]

MAX_SIZE = 1 << 24
"""Maximum size of a source file (bytes)."""
TAB = 8


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """A file's ``lines``, the ``first`` line of the function, counted from 0, and all lines that
    have ``code`` of it. ``newer``: true if it was changed after the program was made."""

    name: str
    lines: list[str]
    first: int
    code: frozenset[int]
    newer: bool


def read_source(program: Program | None, address: int, function: str) -> SourceFile | str:
    """Read the file of the function at a link address; the reason, where that cannot be."""
    image = None if program is None else program.image
    if program is None or image is None:
        return "the program is not known: name it with --image"
    try:
        rows = _lines(image.path).within(address, address + max(program.size(address), 1))
    except (InputError, OSError) as error:
        return clean(str(error))
    places = [(name, int(number)) for name, _, number in (row.rpartition(":") for row in rows)]
    name, first = next(((name, number) for name, number in places if name), ("", 0))
    if not name:
        return f"no line information of {function} in {clean(str(image.path))}"
    path = Path(name)
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode) or about.st_size > MAX_SIZE:
            return f"{clean(name)}:{first}: not a source file"
        text = path.read_bytes().decode("utf-8", "backslashreplace")
        newer = about.st_mtime > image.path.stat().st_mtime
    except OSError as error:
        return f"{clean(name)}:{first}: cannot read: {error.strerror}"
    code = frozenset(number - 1 for where, number in places if where == name)
    return SourceFile(
        name=clean(name),
        lines=[clean(line.rstrip("\r").expandtabs(TAB)) for line in text.split("\n")],
        first=max(first - 1, 0),
        code=code,
        newer=newer,
    )


@lru_cache(maxsize=8)
def _lines(path: Path) -> Lines:
    """Line information, which is read once for all functions of a program."""
    return Lines(path, absolute=True)
