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
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ftpatch.errors import InputError
from ftpatch.trace.header import MAGIC, Flag, Header, open_trace

__all__ = ["children_of", "damaged_beside"]

UNNAMED = re.compile(r"ftpatch\.\d+\.trace(\.\d+)?")
"""Names of traces where FTPATCH_TRACE is not set."""
NUMBERS = re.compile(r"(\.\d+)+")
"""The end of a name that another file of the run has without it."""
SLACK, DRIFT = 10**9, 200
"""Two clocks may disagree by a second, and by one part in so many."""


def children_of(files: Sequence[Path]) -> list[Path]:
    """Find the traces of the children of the processes that ``files`` are of, and of theirs, by the
    time they began, each once, whatever names it has. Files that are no traces have none."""
    parents = list(_headers(files))
    if not parents:
        return []
    held = {os.path.realpath(path) for path in files}
    named = {path: None for file in files for path in (file, Path(os.path.realpath(file)))}
    beside = {path: None for file in named for path in _beside(file)}
    by_parent: dict[int, list[Header]] = defaultdict(list)
    for one in _headers(path for path in beside if os.path.realpath(path) not in held):
        by_parent[one.ppid].append(one)
    known = {(one.pid, one.ticks) for one in parents}
    found: list[Header] = []
    while parents:
        parent = parents.pop()
        for one in by_parent[parent.pid]:
            if (one.pid, one.ticks) not in known and _is_child(one, parent):
                known.add((one.pid, one.ticks))
                found.append(one)
                parents.append(one)
    return [one.path for one in sorted(found, key=lambda one: (one.realtime, one.pid))]


def damaged_beside(files: Sequence[Path]) -> list[InputError]:
    """Find out about files that may be of children, and cannot be read: why not."""
    held = {os.path.realpath(path) for path in files}
    errors = []
    for path in sorted({path for file in files for path in _beside(file)}):
        if os.path.realpath(path) not in held and path.is_file():
            try:
                fd, _ = open_trace(path)
            except InputError as error:
                if _begins_as_trace(path):
                    errors.append(error)
            else:
                os.close(fd)
    return errors


def _begins_as_trace(path: Path) -> bool:
    """Test for a trace's magic number; what cannot be read may have it."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return True


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
