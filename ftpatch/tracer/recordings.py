# SPDX-License-Identifier: MIT
"""The trace files of one run of ``ftpatch trace``: owners, sizes and names."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Self

from ftpatch.errors import FtpatchError, InputError, OutputError
from ftpatch.image import open_image
from ftpatch.image.injected import laid_in_id
from ftpatch.trace.children import children_of
from ftpatch.trace.extent import is_of, read_extent, settle
from ftpatch.trace.header import open_trace
from ftpatch.tracer.bring_out import (
    bring_out,
    leave_place,
    make_place,
    note_earlier,
    require_free_name,
)
from ftpatch.tracer.server import Held, Server
from ftpatch.tracer.written import is_own, is_written

__all__ = ["TraceFiles"]


class TraceFiles:
    """Files called ``trace``, and for other processes ``trace``.PID, of ``program``, a copy of
    ``image``. Existing files with such names are left alone, unless ``overwrite`` says that this
    run takes the place of an earlier one, whose files go when this one has one to name.
    ``image`` is None for a program that is no copy, and whose children alone are traced.
    ``named``: processes make them all, by name.
    ``attached``: the folder in /proc of a process that runs ``program`` already, and not a copy:
    its files lie elsewhere until nobody writes to them (place_of()).
    Raises OutputError where a file is still written, or for attached there is one already."""

    def __init__(
        self,
        trace: Path,
        program: Path,
        image: Path | None,
        *,
        overwrite: bool = False,
        named: bool = False,
        attached: Path | None = None,
    ) -> None:
        self._trace, self._program, self._image = trace, program, image
        self._is_copy = attached is None
        if attached:
            require_free_name(trace, overwrite=overwrite)
        self._earlier = [*_unwritten(trace)] if overwrite and trace.exists() else []
        self._name: Path | None = None
        """What ``trace`` is called in the end, if it lies elsewhere until then."""
        if attached:
            self._name, self._trace = trace, make_place(trace)
            note_earlier(trace, self._earlier)
            self._earlier += self._named()
        self._others = set(self._named())
        self._done: list[Path] = []
        self._first: int | None = None
        self.unkept = ""
        """The error by which a recording was lost; empty if none was."""
        self._server: Server | None = None
        with contextlib.suppress(OSError):
            network = attached and attached / "ns" / "net"
            if not named:
                self._server = Server(self._trace.parent, program, self._sweep, network)
        if self._server is None:  # the program itself makes the files
            if attached and attached.stat().st_uid != os.geteuid():  # and not where only we may
                leave_place(trace)
                self._name, self._trace = None, trace
                self._others = set(self._named())
            self._take_over()

    def _take_over(self) -> None:
        """Remove the files of an earlier run: the program has been started."""
        for path in self._earlier:
            with contextlib.suppress(OSError):
                path.unlink()
        self._others.difference_update(self._earlier)
        self._earlier = []

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for the program."""
        asking = self._server.environment if self._server else {}
        return {"FTPATCH_TRACE": str(self._trace), **asking}

    def __enter__(self) -> Self:
        """Start serving files."""
        # Opening a file for writing breaks the lease that is_written() holds, and the kernel sends
        # this signal. Unlike SIG_IGN, a handler does not survive exec into the program.
        if signal.getsignal(signal.SIGIO) is signal.SIG_DFL:
            signal.signal(signal.SIGIO, lambda *_: None)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop serving."""
        if self._server:
            for one in self._server.stop():
                os.close(one.fd)
        if self._name is not None:
            leave_place(self._name)

    @property
    def recorded(self) -> int:
        """Bytes recorded so far in the files that were handed out."""
        held = self._server.held if self._server else []
        return sum(read_extent(Path(f"/proc/self/fd/{one.fd}"))[1] for one in held)

    def finish(self) -> list[Path]:
        """Name all files, those of ended processes first. A file still being written keeps its
        size. Raises OutputError where somebody has taken the name meanwhile."""
        self._take_over()
        server, self._server = self._server, None
        held = self._sweep(server.stop()) if server else []
        for one in held:
            self._appear(one)
        for path in self._named():
            if path not in self._others and path not in self._done and read_extent(path)[0]:
                self._settle(path)
                self._done.append(path)
        named = bring_out(self._name) if self._name is not None else []
        return [one for one in named if read_extent(one)[0]] or sorted(self._done)

    def _sweep(self, held: list[Held]) -> list[Held]:
        """Name the files of processes that ended, and return the rest."""
        if self._first is None and held:
            self._first = held[0].fd
        rest = []
        for one in held:
            if is_written(one.fd, [one.pid]):
                rest.append(one)
            else:
                self._appear(one)
        return rest

    def _appear(self, held: Held) -> None:
        self._take_over()
        source = Path(f"/proc/self/fd/{held.fd}")
        pid, _ = read_extent(source)
        if pid or is_written(held.fd, [held.pid]):  # its header may not be written yet
            first = held.fd == self._first
            self._first = -1 if first else self._first
            self._settle(source, held.pid)
            name = self._linked(source, pid or held.pid, first=first)
            if name and pid:
                self._done.append(name)
        os.close(held.fd)

    def _linked(self, source: Path, pid: int, *, first: bool) -> Path | None:
        """Its name, by the rule of stubs/runtime/file_path.c."""
        numbered = self._trace.with_name(f"{self._trace.name}.{pid}")
        more = (numbered.with_name(f"{numbered.name}.{i}") for i in itertools.count(2))
        try:
            folder = os.open(self._trace.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            self.unkept = error.strerror or str(error)
            return None
        try:
            for name in itertools.chain([self._trace] if first else [], [numbered], more):
                with contextlib.suppress(FileExistsError):
                    # With a directory's descriptor this is linkat(), which can follow a link.
                    os.link(source, name, src_dir_fd=folder, follow_symlinks=True)
                    return name
        except OSError as error:
            self.unkept = error.strerror or str(error)
        finally:
            os.close(folder)
        return None

    @cached_property
    def _owner(self) -> bytes | None:
        """The id in the program's traces; other patched programs that it starts have others."""
        try:
            return laid_in_id(open_image(self._program))
        except FtpatchError:
            return None

    def _settle(self, file: Path, *pids: int) -> None:
        """Set a trace's mode and size; one still being written keeps its size."""
        with contextlib.suppress(OSError):
            pid, used = read_extent(file)
            fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
            try:
                written = is_written(fd, [pid, *pids])
            finally:
                os.close(fd)
            if not written:
                os.chmod(file, 0o600)  # noqa: PTH101 - of a link in /proc, its target
            if pid:
                image = self._image if self._image and is_of(file, self._owner) else None
                comm = image.name if image and self._is_copy else ""
                settle(file, None if written else used, image, comm)
            if written:
                os.chmod(file, 0o400)  # noqa: PTH101

    def _named(self) -> list[Path]:
        """The files that processes may have made themselves, by name: no links."""
        name = re.compile(re.escape(self._trace.name) + r"(\.r?\d+)*")
        try:
            with os.scandir(self._trace.parent) as entries:
                found = [Path(entry.path) for entry in entries if name.fullmatch(entry.name)]
        except OSError:  # the program may have removed the folder
            return []
        return sorted(filter(is_own, found))


def _unwritten(trace: Path) -> Iterator[Path]:
    """The files of the run that ``trace`` is of. Raises OutputError for one that is written."""
    for path in (trace, *children_of([trace])):
        if path != trace and not is_own(path):
            continue
        try:
            fd, header = open_trace(path)
        except InputError:  # it is asked for by its name, whatever it is
            if path == trace:
                yield path
            continue
        written = is_written(fd, [header.pid])
        os.close(fd)
        if written:
            reason = f"still written by process {header.pid}"
            raise OutputError(path, reason, "wait for its end, or use another name")
        yield path
