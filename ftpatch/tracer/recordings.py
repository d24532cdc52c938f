# SPDX-License-Identifier: MIT
"""The trace files of one run of ``ftpatch trace``: owners, sizes and names."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import re
import signal
import stat
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
from ftpatch.tracer.server import Held, Server

__all__ = ["TraceFiles", "settle_ended"]


class TraceFiles:
    """Files called ``trace``, and for other processes ``trace``.PID, of ``program``, a copy of
    ``image``. Existing files with such names are left alone, unless ``overwrite`` says that this
    run takes the place of an earlier one, whose files go when this one has one to name.
    ``image`` is None for a program that is no copy, and whose children alone are traced.
    ``attached``: the folder in /proc of a process that runs ``program`` already, and not a copy.
    Raises OutputError where a file is still written."""

    def __init__(
        self,
        trace: Path,
        program: Path,
        image: Path | None,
        *,
        overwrite: bool = False,
        attached: Path | None = None,
    ) -> None:
        self._trace, self._program, self._image = trace, program, image
        self._is_copy = attached is None
        self._earlier = [*_unwritten(trace)] if overwrite and trace.exists() else []
        self._others = set(self._named())
        self._done: list[Path] = []
        self._first: int | None = None
        self.unkept = ""
        """The error by which a recording was lost; empty if none was."""
        self._server: Server | None = None
        with contextlib.suppress(OSError):
            network = attached and attached / "ns" / "net"
            self._server = Server(trace.parent, program, self._sweep, network)
        if self._server is None:  # the program itself makes the files
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
        # Opening a file for writing breaks the lease that _is_written() holds, and the kernel sends
        # this signal. Unlike SIG_IGN, a handler does not survive exec into the program.
        if signal.getsignal(signal.SIGIO) is signal.SIG_DFL:
            signal.signal(signal.SIGIO, lambda *_: None)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop serving."""
        if self._server:
            for one in self._server.stop():
                os.close(one.fd)

    @property
    def recorded(self) -> int:
        """Bytes recorded so far in the files that were handed out."""
        held = self._server.held if self._server else []
        return sum(read_extent(Path(f"/proc/self/fd/{one.fd}"))[1] for one in held)

    def finish(self) -> list[Path]:
        """Name all files, those of ended processes first. A file still being written keeps its
        size."""
        self._take_over()
        server, self._server = self._server, None
        held = self._sweep(server.stop()) if server else []
        for one in held:
            self._appear(one)
        for path in self._named():
            if path not in self._others and path not in self._done and read_extent(path)[0]:
                self._settle(path)
                self._done.append(path)
        return sorted(self._done)

    def _sweep(self, held: list[Held]) -> list[Held]:
        """Name the files of processes that ended, and return the rest."""
        if self._first is None and held:
            self._first = held[0].fd
        rest = []
        for one in held:
            if _is_written(one.fd, [one.pid]):
                rest.append(one)
            else:
                self._appear(one)
        return rest

    def _appear(self, held: Held) -> None:
        self._take_over()
        source = Path(f"/proc/self/fd/{held.fd}")
        pid, _ = read_extent(source)
        if pid or _is_written(held.fd, [held.pid]):  # its header may not be written yet
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
                written = _is_written(fd, [pid, *pids])
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
        name = re.compile(re.escape(self._trace.name) + r"(\.\d+)*")
        try:
            with os.scandir(self._trace.parent) as entries:
                found = [Path(entry.path) for entry in entries if name.fullmatch(entry.name)]
        except OSError:  # the program may have removed the folder
            return []
        return sorted(filter(_is_own, found))


def settle_ended(trace: Path) -> None:
    """Cut the files of a run, whose processes record no more, to their length."""
    for path in (trace, *children_of([trace])):
        with contextlib.suppress(OSError):
            pid, used = read_extent(path)
            if pid and _is_own(path) and not _is_mapped(path):
                path.chmod(0o600)
                settle(path, used, None)


def _is_mapped(path: Path) -> bool:
    """Test whether a process writes to a trace."""
    try:
        fd, header = open_trace(path)
    except InputError:
        return False
    try:
        return _is_written(fd, [header.pid])
    finally:
        os.close(fd)


def _is_own(path: Path) -> bool:
    """Test whether it is a regular file without another name."""
    try:
        held = path.lstat()
    except OSError:  # gone
        return False
    return stat.S_ISREG(held.st_mode) and held.st_nlink == 1


def _unwritten(trace: Path) -> Iterator[Path]:
    """The files of the run that ``trace`` is of. Raises OutputError for one that is written."""
    for path in (trace, *children_of([trace])):
        if path != trace and not _is_own(path):
            continue
        try:
            fd, header = open_trace(path)
        except InputError:  # it is asked for by its name, whatever it is
            if path == trace:
                yield path
            continue
        written = _is_written(fd, [header.pid])
        os.close(fd)
        if written:
            reason = f"still written by process {header.pid}"
            raise OutputError(path, reason, "wait for its end, or use another name")
        yield path


def _is_written(fd: int, pids: list[int]) -> bool:
    """Test whether any process has a file open for writing, or mapped. ``pids``: the candidates
    where the kernel cannot tell."""
    try:
        # F_RDLCK is granted only if nobody has the file open for writing (fcntl(2), "Leases").
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN or any(map(_runs, pids))
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def _runs(pid: int) -> bool:
    """Test whether a process still runs. Its main thread may have exited before the others: that
    alone is state Z."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return False
    return any(_state(task) not in ("Z", "X", "") for task in tasks)


def _state(task: Path) -> str:
    try:
        text = (task / "stat").read_text(errors="replace")
    except OSError:
        return ""
    return text.rpartition(")")[2].strip()[:1]
