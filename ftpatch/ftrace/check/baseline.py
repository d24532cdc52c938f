# SPDX-License-Identifier: MIT
"""A file of known findings, so that a gate can begin with what is there today.

    # comment
    {"image": "vmlinux", "invariant": "site-known", "place": "vfs_read"}

One line for each finding, sorted. A finding is known again by the image's name, the invariant and
the function (by its address where no symbol tells), so that it outlives a build in which addresses
move. Two findings of one function need two lines.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ftpatch.errors import InputError, OutputError, UsageError
from ftpatch.ftrace.check.check import IN_CORE, IN_MEMORY, INVARIANTS
from ftpatch.ftrace.check.findings import Check, Finding
from ftpatch.ftrace.filter import STREAMS
from ftpatch.io.cleanup import CLEANUP
from ftpatch.io.temporary import as_created, named, sweep

__all__ = ["Baseline", "Entry", "put", "read_baseline", "write_baseline"]

HEADER = """\
# ftpatch check: known findings, one per line. `ftpatch check --baseline FILE` ignores them.
# `ftpatch check --write-baseline FILE` wrote this; delete lines no longer needed.
"""
MAGIC = HEADER[: HEADER.index(",")]
"""First bytes of such a file."""
MAX_FILE_SIZE = 1 << 28
"""Largest file that is read (bytes); 50,000 findings take 5 MB."""


class Entry(NamedTuple):
    """Key of a finding; ``image`` is the key that its image was checked under."""

    image: str
    invariant: str
    place: str

    @classmethod
    def of(cls, key: str, finding: Finding) -> Entry:
        """The entry for a finding in an image."""
        return cls(key, finding.invariant, finding.function)


class Baseline:
    """Known findings, as a bag: each entry covers one finding."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._left = Counter(entries)
        self._checked: set[str] = set()

    def sift(self, key: str, check: Check) -> Check:
        """The check with its known findings apart."""
        self._checked.add(key)
        known: list[Finding] = []
        fresh: list[Finding] = []
        for finding in check.findings:
            entry = Entry.of(key, finding)
            (known if self._left[entry] > 0 else fresh).append(finding)
            self._left[entry] -= 1
        return replace(check, findings=tuple(fresh), known=tuple(known))

    def stale(self) -> Iterator[Entry]:
        """Entries of images that were checked which cover nothing any more."""
        for entry in sorted(self._left):
            if entry.image in self._checked and self._left[entry] > 0:
                yield from [entry] * self._left[entry]


def read_baseline(path: Path) -> Baseline:
    """Read such a file. Raises InputError, with the number of the line that is none."""
    if path.exists() and not path.is_file() and path.parent not in STREAMS:
        raise InputError(path, "cannot read: not a regular file", "use a baseline")
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_SIZE + 1)
    except OSError as error:
        raise InputError(path, f"cannot read: {error.strerror}") from None
    if len(raw) > MAX_FILE_SIZE:
        raise InputError(path, f"the baseline is larger than {MAX_FILE_SIZE:#x} bytes")
    lines = enumerate(raw.split(b"\n"), 1)
    return Baseline(
        _entry(path, number, line) for number, line in lines if line.strip() and line[:1] != b"#"
    )


def _entry(path: Path, number: int, line: bytes) -> Entry:
    try:
        row = json.loads(line.decode())
    except (ValueError, RecursionError):
        raise InputError(path, f"line {number}: not a JSON object") from None
    if not isinstance(row, dict) or set(row) != set(Entry._fields):
        raise InputError(path, f"line {number}: expected an object with {', '.join(Entry._fields)}")
    if not all(isinstance(value, str) for value in row.values()):
        raise InputError(path, f"line {number}: a value is not a string")
    if row["invariant"] not in INVARIANTS | IN_MEMORY | IN_CORE:
        raise InputError(path, f"line {number}: unknown invariant {row['invariant']}")
    return Entry(**row)


def write_baseline(path: Path, checked: Iterable[tuple[str, Check]]) -> Baseline:
    """Make the findings of (key, Check) the known ones. Replaces a baseline, but no other file.

    Raises UsageError and OutputError.
    """
    entries = sorted(Entry.of(key, f) for key, check in checked for f in check.findings)
    lines = (json.dumps(entry._asdict()) + "\n" for entry in entries)
    put(path, HEADER + "".join(lines), MAGIC, "baseline")
    return Baseline(entries)


def put(path: Path, text: str, magic: str, what: str) -> None:
    """Write beside the file's place, then rename: nobody ever reads a half of it. What is there
    already has to begin with ``magic``, as ``what`` it is. Raises UsageError and OutputError."""
    try:
        _check_target(path, magic, what)
        sweep(path.parent)
        beside, fd = named(path.parent)
        with os.fdopen(fd, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            as_created(fd)
            os.fsync(fd)
            with CLEANUP:
                beside.replace(path)
                CLEANUP.name, CLEANUP.appeared = None, True
    except OSError as error:
        CLEANUP.discard()
        raise OutputError(path, f"cannot write: {error.strerror}") from None


def _check_target(path: Path, magic: str, what: str) -> None:
    if path.is_symlink():
        raise UsageError(path, f"the {what} is a symbolic link", "use its target")
    if not path.exists():
        return
    if not path.is_file():
        raise UsageError(path, f"the {what} is not a regular file")
    with path.open("rb") as file:
        if file.read(len(magic)) != magic.encode():
            raise UsageError(path, f"not a {what}", "use another name, or remove it")
