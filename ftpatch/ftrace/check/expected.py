# SPDX-License-Identifier: MIT
"""A file of functions that must have a record, so that a gate finds those that a build lost.

    # comment
    {"image": "vmlinux", "function": "vfs_read"}

One line for each record, sorted, so that git shows what a build won and lost. An image is known by
its name, as in a baseline, a function by its name (by its address where no symbol tells); a name
that several functions share has as many lines. What has a record and no line is no finding.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from ftpatch.core.columns import addresses
from ftpatch.errors import InputError
from ftpatch.ftrace.check.baseline import put
from ftpatch.ftrace.check.findings import Check, Finding
from ftpatch.image import Image, open_image

__all__ = ["Expected", "read_expected", "write_expected"]

HEADER = """\
# ftpatch check: functions that must have a record, one per line.
# `ftpatch check --expected FILE` fails for those that have none.
# `ftpatch check --write-expected FILE` wrote this; delete lines not needed.
"""
MAGIC = HEADER[: HEADER.index(",")]
MAX_FILE_SIZE = 1 << 28
"""Largest file that is read (bytes); a kernel and its 4,000 modules take 16 MB."""
KEYS = ("image", "function")
INVARIANT = "record-expected"
ADDRESS = re.compile(r"0x[0-9a-f]{1,16}")
"""Placeholder for a function without a name."""


class Expected:
    """Functions that must have a record: by image, a bag of functions."""

    def __init__(self, path: Path, rows: Iterable[tuple[str, str]]) -> None:
        self.path = path
        self._images: dict[str, Counter[str]] = defaultdict(Counter)
        for image, function in rows:
            self._images[image][function] += 1
        self._checked: set[str] = set()
        self._fresh: list[tuple[str, str]] = []

    def sift(self, path: Path, key: str, check: Check) -> Check:
        """The check of the image at ``path`` with a finding for each record that is missing."""
        self._checked.add(key)
        wanted, held = self._images.get(key, Counter[str]()), Counter(check.recorded)
        self._fresh += [(key, name) for name in sorted((held - wanted).elements())]
        missing = sorted((wanted - held).elements())
        if not missing:
            return check
        found = tuple(_findings(open_image(path), missing, set(held), self.path.name))
        return replace(check, findings=(*check.findings, *found))

    def remarks(self, verbose: bool) -> Iterator[str]:
        """Yield remarks that are no findings: functions without a line, images that were not looked
        at."""
        fresh: dict[str, list[str]] = defaultdict(list)
        for image, name in self._fresh:
            fresh[image].append(name)
        for image, names in fresh.items():
            told = f": {', '.join(names)}" if verbose else ""
            yield f"{self.path}: {image}: {len(names)} with a record not listed{told}"
        for image in sorted(set(self._images) - self._checked):
            yield f"{self.path}: {image}: not checked; {self._images[image].total()} expected"


def _findings(image: Image, missing: list[str], held: set[str], source: str) -> Iterator[Finding]:
    """A finding for each function, unless it has its record under another of its names."""
    symbols, kallsyms = image.symbols, image.kallsyms
    for name in missing:
        at: int | None = None
        rows = symbols.rows_named(name)
        if len(rows):
            at = int(symbols.value[rows[0]])
            group = kallsyms.groups_of(addresses(at))[0]
            if name not in held and held.intersection(
                symbols.names(kallsyms.row[kallsyms.group == group])
            ):
                continue
            symbol, words = f"{name}+0x0", f"{source} expects a record of this function"
        elif ADDRESS.fullmatch(name):
            at, symbol, words = int(name, 16), "", f"{source} expects a record here"
        else:
            symbol, words = name, f"{source} expects a record, but no such function exists"
        yield Finding(invariant=INVARIANT, ip=at, symbol=symbol, message=words)


def read_expected(path: Path) -> Expected:
    """Read such a file. Raises InputError, with the number of the line that is none."""
    lines = enumerate(_held(path).split(b"\n"), 1)
    return Expected(
        path,
        [_row(path, number, line) for number, line in lines if line.strip() and line[:1] != b"#"],
    )


def _held(path: Path) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise InputError(
                    path, "not a regular file", "use a file that --write-expected wrote"
                )
            raw = file.read(MAX_FILE_SIZE + 1)
    except OSError as error:
        raise InputError(path, f"cannot read: {error.strerror}") from None
    if len(raw) > MAX_FILE_SIZE:
        raise InputError(path, f"the list is larger than {MAX_FILE_SIZE:#x} bytes")
    return raw


def _row(path: Path, number: int, line: bytes) -> tuple[str, str]:
    try:
        row = json.loads(line.decode())
    except (ValueError, RecursionError):
        raise InputError(path, f"line {number}: not a JSON object") from None
    if not isinstance(row, dict) or set(row) != set(KEYS):
        raise InputError(path, f"line {number}: expected an object with {', '.join(KEYS)}")
    if not all(isinstance(value, str) for value in row.values()):
        raise InputError(path, f"line {number}: a value is not a string")
    return row["image"], row["function"]


def write_expected(path: Path, checked: Iterable[tuple[str, Check]]) -> int:
    """Expect from now on what (key, Check) have a record of; how many. Replaces such a file, but no
    other. Raises UsageError and OutputError."""
    rows = sorted((key, name) for key, check in checked for name in check.recorded)
    lines = (json.dumps(dict(zip(KEYS, row, strict=True))) + "\n" for row in rows)
    put(path, HEADER + "".join(lines), MAGIC, "list of expected functions")
    return len(rows)
