# SPDX-License-Identifier: MIT
"""Trace files without a name: nobody can cut one off while a program has it mapped, which would end
the program by SIGBUS, and a process that gave up its privileges needs none to get one.

A traced process asks for its file by a socket (stubs/runtime/handed.c), and gets a descriptor.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Held", "Server"]

CREDENTIALS = struct.Struct("3i")
"""struct ucred: pid, uid, gid."""
WAITING = 1024
"""Processes that ask at once."""
WAIT = 0.01
"""Seconds."""
MOST = 1 << 14
"""Descriptors that are kept, at most; half of what we may have."""


@dataclass(frozen=True)
class Held:
    """A file that was handed out: to whom, and a descriptor to read it by. We have none to write
    by, so the kernel can tell whether anybody else has."""

    pid: int
    fd: int


class Server:
    """Makes files in ``folder`` for processes that run ``program``. ``sweep`` is called when there
    are many, in its thread, with those that are handed out, and gives back those it keeps."""

    def __init__(
        self, folder: Path, program: Path, sweep: Callable[[list[Held]], list[Held]]
    ) -> None:
        """Raises OSError where the file system has no files without names, or there is no
        socket."""
        self._folder, self._program, self._sweep = folder, program, sweep
        self.held: list[Held] = []
        os.close(self._unnamed())
        self._name = f"ftpatch.{secrets.token_hex(16)}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        try:
            self._socket.bind(f"\0{self._name}")
            self._socket.listen(WAITING)
        except OSError:
            self._socket.close()
            raise
        self._thread.start()

    @property
    def environment(self) -> dict[str, str]:
        """Variables for the program."""
        return {"FTPATCH_TRACE_SOCKET": self._name}

    def stop(self) -> list[Held]:
        """Stop, and return the files that were handed out. Whoever asked before has got one."""
        self._socket.shutdown(socket.SHUT_RD)
        self._thread.join()
        self._socket.close()
        return self.held

    def _serve(self) -> None:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        served, most = False, min(limits[1] // 2, MOST) if limits[1] > 0 else MOST
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError as error:
                if error.errno in (errno.EINVAL, errno.EBADF):  # it was shut down
                    break
                time.sleep(WAIT)  # no descriptor, or no memory, right now
                continue
            if not served:  # from here on the program, which has its limits from us, runs
                _allow(limits[1], limits)
            with connection, contextlib.suppress(OSError):
                self._serve_one(connection)
            served = True
            if len(self.held) >= most:
                self.held = self._sweep(self.held)
                most = max(most, len(self.held) + MOST // 16)
        _allow(limits[0], limits)

    def _serve_one(self, connection: socket.socket) -> None:
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        pid, uid, _ = CREDENTIALS.unpack(raw)
        if uid != os.getuid() and not self._runs_it(pid):
            return
        fd = self._unnamed()
        try:
            self.held.append(Held(pid, os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)))
            socket.send_fds(connection, [b"."], [fd])
        finally:
            os.close(fd)

    def _runs_it(self, pid: int) -> bool:
        """Return whether a process of another user is one of the program's: no stranger fills the
        disk."""
        try:
            return Path(f"/proc/{pid}/exe").samefile(self._program)
        except OSError:
            return False

    def _unnamed(self) -> int:
        return os.open(self._folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)


def _allow(descriptors: int, limits: tuple[int, int]) -> None:
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, limits[1]))
