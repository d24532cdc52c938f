# SPDX-License-Identifier: MIT
"""The trace files of a program's children, beside its own.

Names do not tell them from files of other runs, which follow the same rule (file_path.c of
stubs/runtime). The headers do: a child's parent is a process that ran the same file with the same
tracer and was alive when the child began. If it is not known when that one ended, as of a process
that was killed, its number may have been another process's by then: the load address, random and
inherited by fork, has to be the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ftpatch.errors import InputError
from ftpatch.trace.header import Flag, Header, open_trace

__all__ = ["children_of"]

UNNAMED = re.compile(r"ftpatch\.\d+\.trace(\.\d+)?")
"""Names of traces where FTPATCH_TRACE is not set."""
NUMBERS = re.compile(r"(\.\d+)+")
"""The end of a name that another file of the run has without it."""
SLACK, DRIFT = 10**9, 200
"""Two clocks may disagree by a second, and by one part in so many."""


def children_of(files: Sequence[Path]) -> list[Path]:
    """Find the traces of the children of the processes that ``files`` are of, and of theirs, by the
    time they began. Files that are no traces have none."""
    parents = list(_headers(files))
    if not parents:
        return []
    held = {os.path.realpath(path) for path in files}
    beside = {path: None for file in files for path in _beside(file)}
    left = list(_headers(path for path in beside if os.path.realpath(path) not in held))
    found: list[Header] = []
    while parents:
        own = [one for one in left if any(_is_child(one, parent) for parent in parents)]
        left = [one for one in left if one not in own]
        found += own
        parents = own
    return [one.path for one in sorted(found, key=lambda one: (one.realtime, one.pid))]


def _headers(paths: Iterable[Path]) -> Iterator[Header]:
    for path in paths:
        try:
            fd, header = open_trace(path)
        except InputError:
            continue
        os.close(fd)
        yield header


def _beside(file: Path) -> list[Path]:
    """Files that may be of the same run, by their names."""
    if UNNAMED.fullmatch(file.name):
        name = UNNAMED
    else:
        stems = {file.name}
        if numbers := re.search(rf"{NUMBERS.pattern}$", file.name):
            stems.add(file.name[: numbers.start()])
        name = re.compile(f"({'|'.join(map(re.escape, stems))}){NUMBERS.pattern}")
    try:
        with os.scandir(file.parent) as entries:
            return [file.with_name(e.name) for e in entries if name.fullmatch(e.name)]
    except OSError:
        return []


def _is_child(child: Header, parent: Header) -> bool:
    same = child.image_id == parent.image_id and child.tracer == parent.tracer
    if (
        not same
        or not any(child.image_id)
        or child.ppid != parent.pid
        or child.pid == parent.pid
        or not parent.pid
    ):
        return False
    ticks, passed = child.ticks - parent.ticks, child.realtime - parent.realtime
    if ticks < 0 or passed < 0:
        return False
    if parent.hz and abs(ticks * 10**9 // parent.hz - passed) > SLACK + passed // DRIFT:
        return False  # the machine was started again
    if parent.flags & Flag.ENDED and parent.hz:
        return child.ticks <= parent.ended_ticks
    return bool(child.bias) and child.bias == parent.bias
