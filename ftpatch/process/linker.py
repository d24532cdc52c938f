# SPDX-License-Identifier: MIT
"""The dynamic linker of a process, hooked: it tells ftpatch each time that it has mapped libraries,
before any of their code runs, and makes the system calls that are needed then.

    _dl_debug_state: jmp | area: connect ... make calls ... close, ret | the linker goes on
                           socket of ftpatch: accept ... calls ... close

Nothing of it needs ptrace(2) once the process has started, or ftpatch to live: if nobody listens,
the linker goes on at once. Children that are forked ask as well.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import Arch, feature
from ftpatch.arch.linker_hook import LinkerHook
from ftpatch.errors import FtpatchError, InputError
from ftpatch.process.areas import find_hole, placed
from ftpatch.process.bring_in import CODE, STACK
from ftpatch.process.held import Held
from ftpatch.process.loaded import Loaded
from ftpatch.process.maps import read_maps
from ftpatch.process.memory_target import MemoryTarget
from ftpatch.process.page_ends import paddings_of
from ftpatch.process.process import Process, find_process, read_status
from ftpatch.process.refusals import own_arch
from ftpatch.process.send import injected_call_of

__all__ = ["Asking", "Listener", "Started", "debug_of", "hook_linker", "hooked_at"]

FUNCTION: Final = "_dl_debug_state"
DEBUG: Final = "_r_debug"
STATE: Final = 24
"""Offset of r_state in struct r_debug of 64-bit machines (<link.h>)."""
CREDENTIALS: Final = struct.Struct("3i")
"""struct ucred: pid, uid, gid."""
CALL: Final = struct.Struct("<8Q")
RESULT: Final = struct.Struct("<q")
WORDS: Final = struct.Struct("<QQ")
"""The words behind a hook's code: see Started."""
ERRORS: Final = -4096
FUNCTION_CALL: Final = -1
"""A number of no system call: the last argument is a function, which takes the first."""
PATIENCE: Final = 30
"""Seconds for a system call of a process on a busy machine."""
REST: Final = 0.01


@dataclass(frozen=True)
class _Code:
    """Code as a part to be placed."""

    data: NDArray[np.uint8]
    address: int = 0
    flags: int = 5  # PF_R | PF_X

    @property
    def size(self) -> int:
        return len(self.data)


@dataclass(frozen=True, kw_only=True)
class Started:
    """The runtime that a hooked process has, by addresses in it: that of its struct stub_config, 0
    if there is none yet, and of what its start takes, 0 for where the stack began."""

    config: int = 0
    argument: int = 0

    def pack(self) -> bytes:
        """The words behind a hook's code."""
        return WORDS.pack(self.config, self.argument)


def hook_linker(
    held: Held,
    target: MemoryTarget,
    loaded: Sequence[Loaded],
    arch: Arch,
    name: bytes,
    started: Started,
) -> None:
    """Let the dynamic linker of a process that is held as it starts a program ask the listener of a
    name. Raises InputError for a linker that cannot be hooked, and what Held.map raises."""
    found: LinkerHook = feature(arch.name, "linker_hook")
    linker, at, debug = _linker(loaded)
    old = target.read(at, max(map(len, found.empty))) or b""
    if not any(old.startswith(one) for one in found.empty):
        raise InputError(linker.path, f"no room for a call in {FUNCTION}")
    filtered = int(read_status(held.process.place).get("Seccomp", "0"))
    code = found.make(debug + STATE, filtered, os.getuid(), name)
    part = _Code(np.frombuffer(code.ljust(_words_at(code), b"\0") + started.pack(), np.uint8))
    low, high = linker.span
    start = find_hole(
        held.process,
        read_maps(held.process),
        [],
        low=low,
        high=high,
        size=placed([part], 0, arch.page, before=CODE, behind=STACK).size,
        reach=injected_call_of(arch.name).reach,
        page=arch.page,
    )
    area = placed([part], start, arch.page, before=CODE, behind=STACK)
    held.map(target, area, paddings_of(loaded))
    target.write(at, found.jump(at, area.shift))


def hooked_at(
    target: MemoryTarget, loaded: Sequence[Loaded], arch: Arch, name: bytes
) -> tuple[int, Started]:
    """Find the Started of a hooked process: its address, and what it says. Raises InputError for a
    process whose linker is not hooked by the listener of that name."""
    found: LinkerHook = feature(arch.name, "linker_hook")
    linker, at, _ = _linker(loaded)
    to = found.target(at, target.read(at, max(map(len, found.empty))) or b"")
    code = found.make(0, 0, 0, name)
    held = (target.read(to, _words_at(code) + WORDS.size) if to is not None else None) or b""
    if to is None or held[: len(code)][-len(name) :] != name:
        raise InputError(linker.path, f"somebody else has changed {FUNCTION}")
    config, argument = WORDS.unpack(held[_words_at(code) :])
    return to + _words_at(code), Started(config=config, argument=argument)


def debug_of(loaded: Sequence[Loaded]) -> int:
    """The address of the linker's struct r_debug. Raises InputError."""
    return _linker(loaded)[2]


def _linker(loaded: Sequence[Loaded]) -> tuple[Loaded, int, int]:
    """The dynamic linker, and the addresses of FUNCTION and DEBUG in it. Raises InputError."""
    for one in loaded[1:]:
        symbols = one.file.dynamic_symbols
        function, debug = symbols.find(FUNCTION), symbols.find(DEBUG)
        if function is not None and debug is not None:
            return one, one.above(function), one.above(debug)
    raise InputError(loaded[0].path, "its dynamic linker tells nobody what it loads")


def _words_at(code: bytes) -> int:
    return -(-len(code) // WORDS.size) * WORDS.size


class Asking:
    """A process whose dynamic linker waits for what it is to do."""

    def __init__(self, process: Process, connection: socket.socket, arch: str) -> None:
        self.process, self._connection, self.arch = process, connection, arch

    def run(self, function: int, argument: int) -> None:
        """Let it call a function. Raises InputError."""
        self.call(FUNCTION_CALL, (argument, 0, 0, 0, 0, function))

    def call(self, number: int, arguments: Sequence[int]) -> int:
        """Let it make a system call; return the result. Raises InputError where that fails."""
        words = [one % (1 << 64) for one in (number, *arguments, *(0,) * 7)][: CALL.size // 8]
        try:
            self._connection.sendall(CALL.pack(*words))
            held = self._connection.recv(RESULT.size, socket.MSG_WAITALL)
        except OSError as error:
            raise InputError(None, f"{self.process}: {error.strerror or 'no answer'}") from None
        if len(held) != RESULT.size:
            raise InputError(None, f"{self.process}: it has ended")
        (result,) = RESULT.unpack(held)
        found = int(result)
        if ERRORS < found < 0:
            raise InputError(
                None, f"{self.process}: system call {number} failed: {os.strerror(-found)}"
            )
        return found


class Listener:
    """Listens for processes that ask. ``answer`` is called for each, in a thread of ours, and the
    linker goes on when it returns; ``tell`` with its errors."""

    def __init__(
        self, answer: Callable[[Asking], None], tell: Callable[[FtpatchError], None]
    ) -> None:
        """Raises InputError if there can be no socket."""
        arch = own_arch()
        self._answer, self._tell, self._arch = answer, tell, arch.name if arch else ""
        self.name = f"ftpatch.{secrets.token_hex(16)}".encode()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._thread = threading.Thread(target=self._serve, name="linker", daemon=True)
        try:
            self._socket.bind(b"\0" + self.name)
            self._socket.listen(socket.SOMAXCONN)
        except OSError as error:
            self._socket.close()
            raise InputError(None, f"cannot listen on a socket: {error.strerror}") from None
        self._thread.start()

    def close(self) -> None:
        """Answer who waits, and no more."""
        self._socket.shutdown(socket.SHUT_RD)
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError as error:
                if error.errno in (errno.EINVAL, errno.EBADF):  # it was shut down
                    return
                time.sleep(REST)  # no descriptor, or no memory, right now
                continue
            with connection, contextlib.suppress(OSError):
                connection.settimeout(PATIENCE)
                raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
                try:
                    process = find_process(CREDENTIALS.unpack(raw)[0])
                    self._answer(Asking(process, connection, self._arch))
                except FtpatchError as error:
                    self._tell(error)
