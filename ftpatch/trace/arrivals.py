# SPDX-License-Identifier: MIT
"""The trace files of runs that go on: those that are there, and those that come."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ftpatch.errors import InputError
from ftpatch.trace.children import Beside
from ftpatch.trace.header import open_trace
from ftpatch.trace.reader import OpenFile, open_files
from ftpatch.trace.unnamed import Unnamed

__all__ = ["Arrivals", "Run"]

FRESH = 1.0
"""Seconds after a change of a folder in which what is there is looked at: files that have come may
not be complete."""
COPY = re.compile(r"\.(.+)\.ftpatch\.\d+")
"""The name of a copy that `ftpatch trace` runs, which is that of the program in the end."""
MAX_COMM = 15
"""Bytes of a task's name (TASK_COMM_LEN, less the NUL)."""


@dataclass(frozen=True)
class Run:
    """A trace as it is called by who asks for it, and the path where it is now."""

    name: Path
    place: Path


class Arrivals:
    """The traces of ``runs``, and unless ``alone`` of the children in them."""

    def __init__(self, runs: Sequence[Run], *, alone: bool) -> None:
        self._runs, self._alone = runs, alone
        self._unnamed = [(run, Unnamed(run.name)) for run in runs]
        self._names = [*dict.fromkeys(path for run in runs for path in (run.place, run.name))]
        self._folders = {path.parent for path in self._names}

    def first(self) -> list[OpenFile]:
        """Open the traces of the runs themselves, and of the children that they have had. Raises
        InputError."""
        found: list[OpenFile] = []
        try:
            for run, unnamed in self._unnamed:
                own = self._held(run, unnamed, [])
                for one in own[1:] if self._alone else []:
                    os.close(one.fd)
                found += (own[:1] if self._alone else own) or open_files([run.place])
            return found + self.more(found, last=True)
        except BaseException:
            for one in found:
                os.close(one.fd)
            raise

    def more(self, held: Sequence[OpenFile], *, last: bool) -> list[OpenFile]:
        """Open the traces of children that have come besides those ``held``; ``last``: no others
        will come."""
        found: list[OpenFile] = []
        if self._alone:
            return found
        for run, unnamed in self._unnamed:
            found += self._held(run, unnamed, [*held, *found])
        if last or any(map(_is_fresh, self._folders)):
            paths = [*self._names, *(one.header.path for one in held)]
            for path in Beside(paths, [one.header for one in (*held, *found)]).children:
                with contextlib.suppress(InputError):
                    found.append(OpenFile(*open_trace(path)))
        return found

    def _held(self, run: Run, unnamed: Unnamed, held: Sequence[OpenFile]) -> list[OpenFile]:
        """Open the files of a run that have no name yet, besides those ``held``, as they begin."""
        known = {(one.header.pid, one.header.ticks) for one in held}
        found = []
        for path in unnamed.new():
            try:
                fd, header = open_trace(path)
            except InputError:  # nothing is in it yet, or it is another file
                unnamed.forget()
                continue
            if (header.pid, header.ticks) in known:
                os.close(fd)
                continue
            known.add((header.pid, header.ticks))
            found.append(OpenFile(fd, header))
        found.sort(key=lambda one: one.header.realtime)
        names = [run.name] * (not held)
        names += [run.name.with_name(f"{run.name.name}.{one.header.pid}") for one in found]
        return [_called(one, name) for one, name in zip(found, names, strict=False)]


def _is_fresh(folder: Path) -> bool:
    """Test whether a folder has changed lately."""
    try:
        return time.time() - folder.stat().st_mtime < FRESH
    except OSError:
        return False


def _called(one: OpenFile, name: Path) -> OpenFile:
    """A file as it will be called, and its process."""
    header, comm = one.header, one.header.comm
    copy = COPY.fullmatch(Path(header.image).name)
    if copy and copy[0].startswith(comm):
        comm = os.fsdecode(os.fsencode(copy[1])[:MAX_COMM])
    return OpenFile(one.fd, replace(header, path=name, comm=comm))
