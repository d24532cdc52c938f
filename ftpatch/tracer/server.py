# SPDX-License-Identifier: MIT
"""Unnamed trace files: nobody can truncate one while a program has it mapped, which would kill the
program with SIGBUS, and a process that dropped its privileges can still get one.

A traced process asks for its file by a socket (stubs/runtime/received_file.c), and gets a
descriptor.
"""

from __future__ import annotations

import contextlib
import ctypes
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
LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x4000_0000
WAITING = 1024
"""Backlog of the socket (processes)."""
WAIT = 0.01
"""Seconds."""
MAX_DESCRIPTORS = 1 << 14
"""Descriptors to keep open, unless half of RLIMIT_NOFILE is less."""


@dataclass(frozen=True)
class Held:
    """A file that was handed out: its owner, and a read-only descriptor. We keep none for writing,
    so that the kernel can tell whether anyone else has one."""

    pid: int
    fd: int


class Server:
    """Creates files in ``folder`` for processes that run ``program``. When many are open,
    ``sweep`` is called in the server's thread with all of them, and returns those to keep open."""

    def __init__(
        self,
        folder: Path,
        program: Path,
        sweep: Callable[[list[Held]], list[Held]],
        network: Path | None = None,
    ) -> None:
        """``network``: the network namespace to listen in, as in /proc/PID/ns. Raises OSError if
        the file system has no O_TMPFILE, or no socket can be made."""
        self._folder, self._program, self._sweep = folder, program, sweep
        self.held: list[Held] = []
        os.close(self._unnamed())
        self._name = f"ftpatch.{secrets.token_hex(16)}"
        self._socket = _socket_in(network)
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
        """Environment variables for the program."""
        return {"FTPATCH_TRACE_SOCKET": self._name}

    def stop(self) -> list[Held]:
        """Stop, after serving pending requests, and return the files that were handed out."""
        self._socket.shutdown(socket.SHUT_RD)
        self._thread.join()
        self._socket.close()
        return self.held

    def _serve(self) -> None:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        served, most = False, MAX_DESCRIPTORS
        if limits[1] > 0:
            most = min(limits[1] // 2, most)
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError as error:
                if error.errno in (errno.EINVAL, errno.EBADF):  # it was shut down
                    break
                time.sleep(WAIT)  # no descriptor, or no memory, right now
                continue
            if not served:  # the program runs now, having inherited our limits
                _allow(limits[1], limits)
            with connection, contextlib.suppress(OSError):
                self._serve_one(connection)
            served = True
            if len(self.held) >= most:
                self.held = self._sweep(self.held)
                most = max(most, len(self.held) + MAX_DESCRIPTORS // 16)
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
        """Test whether another user's process runs the program: no stranger may fill the disk."""
        try:
            return Path(f"/proc/{pid}/exe").samefile(self._program)
        except OSError:
            return False

    def _unnamed(self) -> int:
        return os.open(self._folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)


def _allow(descriptors: int, limits: tuple[int, int]) -> None:
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, limits[1]))


def _socket_in(network: Path | None) -> socket.socket:
    """A socket of a network namespace, which names in the abstract namespace belong to. Raises
    OSError for one that we may not enter."""
    own = Path("/proc/self/ns/net")
    if network is None or network.samefile(own):
        return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made: list[socket.socket | OSError] = []

    def enter() -> None:
        try:
            fd = os.open(network, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if LIBC.setns(fd, CLONE_NEWNET):
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number))
            finally:
                os.close(fd)
            made.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        except OSError as error:
            made.append(error)

    # Only the thread that calls setns() is moved.
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]
