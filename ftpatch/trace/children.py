# SPDX-License-Identifier: MIT
"""The trace files beside a program's own: of its children, of later runs, and damaged ones.

Names do not tell them from each other, since all follow the same rule (file_path.c of
stubs/runtime): NAME.PID where NAME exists, and so on, and NAME.r1 when NAME is full. The headers
do: a child's parent is a process that ran the same file with the same tracer and was alive when the
child began. If it is not known when that one ended, as of a process that was killed, its number may
have been another process's by then: the load address, random and inherited by fork, has to be the
same.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from ftpatch.errors import InputError
from ftpatch.trace.header import MAGIC, Flag, Header, open_trace
from ftpatch.trace.rotated import is_rotated, run_of

__all__ = ["Beside", "children_of"]

UNNAMED = re.compile(r"ftpatch\.\d+\.trace(\.r?\d+)*")
"""Names of traces where FTPATCH_TRACE is not set."""
NUMBER = re.compile(r"\.r?\d+$")
"""The end of a name that another file of the run has without it."""
NEXT = re.compile(r"\.r\d+$")
"""The end of the name of a file that was begun when another one was full."""
SLACK, DRIFT = 10**9, 200
"""Two clocks may disagree by a second, and by one part in so many."""


def children_of(files: Sequence[Path]) -> list[Path]:
    """Find the traces of the children of the processes that ``files`` are of, as Beside does."""
    return Beside(files).children


class Beside:
    """The traces that lie beside ``files``, by the names that a runtime gives; they are read once,
    when they are first asked for. ``own``: the headers of the files, if they are open."""

    def __init__(self, files: Sequence[Path], own: Sequence[Header] | None = None) -> None:
        self._files = list(files)
        self._opened = own

    @cached_property
    def children(self) -> list[Path]:
        """Traces of the children of the processes that the files are of, and of theirs, by the time
        they began, each once, whatever names it has, and the other files of all of these. Files
        that are no traces have none."""
        parents = list(self._own)
        if not parents:
            return []
        by_parent: dict[int, list[Header]] = defaultdict(list)
        for one in self._others[0]:
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
        found += self._parts([*self._own, *found])
        return [one.path for one in sorted(found, key=lambda one: (one.realtime, one.pid))]

    def _parts(self, held: Sequence[Header]) -> list[Header]:
        """The other files of processes that went on in another when one was full."""
        runs = {run_of(one) for one in held if is_rotated(one)}
        known = {os.path.realpath(one.path) for one in held}
        found = []
        for one in self._others[0]:
            if run_of(one) in runs and os.path.realpath(one.path) not in known:
                known.add(os.path.realpath(one.path))
                found.append(one)
        return found

    @property
    def damaged(self) -> list[InputError]:
        """Files that may be of children, and cannot be read: why not."""
        return [error for path, error in self._others[1] if path.is_file() and _may_be_trace(path)]

    def newer(self, held: Sequence[Path]) -> list[Path]:
        """Traces begun after the first of ``held``, the files and children of them, and named after
        one of these, the latest first."""
        begun = {one.path: one.realtime for one in (*self._own, *self._others[0])}
        first = min((begun.get(path, 0) for path in held), default=0)
        if not first:
            return []
        names, taken = set(held), {os.path.realpath(path) for path in held}
        found = [
            one
            for one in self._others[0]
            if one.realtime > first
            and any(one.path.with_name(stem) in names for stem in _stems(one.path.name))
            and os.path.realpath(one.path) not in taken
        ]
        return [one.path for one in sorted(found, key=lambda one: one.realtime, reverse=True)]

    @cached_property
    def _own(self) -> Sequence[Header]:
        return _read(self._files)[0] if self._opened is None else self._opened

    @cached_property
    def _others(self) -> tuple[list[Header], list[tuple[Path, InputError]]]:
        """Headers of the other files, in the order of their names, and those without."""
        held = {os.path.realpath(path) for path in self._files}
        named = {
            path: None for file in self._files for path in (file, Path(os.path.realpath(file)))
        }
        return _read(path for path in _beside(named) if os.path.realpath(path) not in held)


def _read(paths: Iterable[Path]) -> tuple[list[Header], list[tuple[Path, InputError]]]:
    headers, errors = [], []
    for path in paths:
        try:
            fd, header = open_trace(path)
        except InputError as error:
            errors.append((path, error))
        else:
            os.close(fd)
            headers.append(header)
    return headers, errors


def _may_be_trace(path: Path) -> bool:
    """Test for a trace's magic number; what cannot be read may have it."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return True


def _beside(files: Collection[Path]) -> list[Path]:
    """Files that may be of the same runs, by their names: of each folder one listing."""
    wanted: dict[Path, set[str]] = defaultdict(set)
    unnamed = set[Path]()
    for file in files:
        wanted[file.parent].update((file.name, *_stems(file.name)))
        if UNNAMED.fullmatch(file.name):
            unnamed.add(file.parent)
    found = []
    firsts = {NEXT.sub("", file.name) for file in files if NEXT.search(file.name)}
    for folder, stems in wanted.items():
        try:
            with os.scandir(folder) as entries:
                names = [entry.name for entry in entries]
        except OSError:
            continue
        for name in sorted(names):
            alike = folder in unnamed and UNNAMED.fullmatch(name)
            if alike or name in firsts or not stems.isdisjoint(_stems(name)):
                found.append(folder / name)
    return found


def _stems(name: str) -> Iterator[str]:
    """A name without its last number, without the one before, and so on."""
    while number := NUMBER.search(name):
        name = name[: number.start()]
        yield name


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
