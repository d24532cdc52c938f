# SPDX-License-Identifier: MIT
"""ptrace(2), as little of it as is needed: seize, interrupt, registers, detach.

A thin layer of ours: python-ptrace wraps each call in objects, waits for all children of the
caller, and knows PTRACE_ATTACH only, whose SIGSTOP a program can see.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import Final

from ftpatch.process.process import read_status

__all__ = [
    "Ended",
    "Option",
    "Request",
    "Stop",
    "WALL",
    "detach",
    "block_signals",
    "get_filter",
    "get_mask",
    "get_registers",
    "go_on",
    "interrupt",
    "listen",
    "next_stop",
    "ptrace",
    "reap",
    "seize",
    "set_mask",
    "set_registers",
    "signal_thread",
]

NT_PRSTATUS: Final = 1
"""General registers, among the sets that a processor has (include/uapi/linux/elf.h)."""
MASK_SIZE: Final = 8
"""Bytes of the kernel's sigset_t."""
WALL: Final = 0x4000_0000
"""__WALL: wait for threads as well."""
FILTER_SIZE: Final = 8
"""Bytes of struct sock_filter."""


class Request(IntEnum):
    """Requests (include/uapi/linux/ptrace.h)."""

    CONT = 7
    DETACH = 17
    GETEVENTMSG = 0x4201
    GETREGSET = 0x4204
    SETREGSET = 0x4205
    SEIZE = 0x4206
    INTERRUPT = 0x4207
    LISTEN = 0x4208
    GETSIGMASK = 0x420A
    SETSIGMASK = 0x420B
    SECCOMP_GET_FILTER = 0x420C


class Stop(IntEnum):
    """Reasons of a stop (PTRACE_EVENT_*, in bits 16 to 23 of its status)."""

    SIGNAL = 0
    """A signal is about to be delivered."""
    EXEC = 4
    """Another program is loaded, and nothing of it has run."""
    STOP = 128
    """PTRACE_INTERRUPT, or a stop of the whole process (SIGSTOP)."""


class Option(IntFlag):
    """Further reasons for a seized thread to stop (PTRACE_O_*). A thread or process that it
    makes is then seized as well, with the same options, before it runs."""

    FORK = 0x2
    VFORK = 0x4
    CLONE = 0x8
    EXEC = 0x10


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_PTRACE: Final = _LIBC.ptrace
_PTRACE.restype = ctypes.c_long
_PTRACE.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)


def ptrace(request: Request, tid: int, address: int = 0, data: int = 0) -> int:
    """Make a request, in the thread of ours that traces this one. Raises OSError;
    ProcessLookupError for a thread that is gone, or that is not stopped where it has to be."""
    ctypes.set_errno(0)
    found: int = _PTRACE(request, tid, address, data)
    if found == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return found


def get_registers(tid: int, size: int, note: int = NT_PRSTATUS) -> bytes:
    """Read up to ``size`` bytes of a set of a stopped thread's registers, of the general ones
    without ``note``: a struct user_regs_struct. Raises OSError: EINVAL where there is no such
    set."""
    room = ctypes.create_string_buffer(size)
    vector = _Vector(ctypes.addressof(room), size)
    ptrace(Request.GETREGSET, tid, note, ctypes.addressof(vector))
    return room.raw[: vector.length]


def set_registers(tid: int, held: bytes, note: int = NT_PRSTATUS) -> None:
    """Write them. Raises OSError."""
    room = ctypes.create_string_buffer(held, len(held))
    vector = _Vector(ctypes.addressof(room), len(held))
    ptrace(Request.SETREGSET, tid, note, ctypes.addressof(vector))


def get_mask(tid: int) -> int:
    """The signals that a stopped thread blocks, one bit each; in a call with a mask of its own,
    those before. Raises OSError."""
    room = ctypes.create_string_buffer(MASK_SIZE)
    ptrace(Request.GETSIGMASK, tid, MASK_SIZE, ctypes.addressof(room))
    return int.from_bytes(room.raw[:MASK_SIZE], "little")


def set_mask(tid: int, mask: int) -> None:
    """Let a stopped thread block these signals, and no others. Raises OSError."""
    room = ctypes.create_string_buffer(mask.to_bytes(MASK_SIZE, "little"), MASK_SIZE)
    ptrace(Request.SETSIGMASK, tid, MASK_SIZE, ctypes.addressof(room))


def signal_thread(pid: int, tid: int, number: int) -> None:
    """Send a signal to one thread of a process (tgkill(2)). Raises OSError."""
    if _LIBC.tgkill(pid, tid, number):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def block_signals(tid: int) -> None:
    """Let a stopped thread block all signals. Raises OSError."""
    set_mask(tid, (1 << 8 * MASK_SIZE) - 1)


def get_filter(tid: int, index: int) -> bytes:
    """Read one of a stopped thread's seccomp filters, in struct sock_filter. Raises OSError: EACCES
    for who may not, ENOENT where there is no such."""
    count = ptrace(Request.SECCOMP_GET_FILTER, tid, index)
    room = ctypes.create_string_buffer(count * FILTER_SIZE)
    ptrace(Request.SECCOMP_GET_FILTER, tid, index, ctypes.addressof(room))
    return room.raw


class Ended(Exception):
    """The thread is gone."""


def seize(tid: int, options: int = 0) -> None:
    """Begin to trace a thread, which runs on, with ``options`` (Option). It waits while the process
    starts another program. Raises Ended, and PermissionError for one that may not be traced, or is
    already."""
    try:
        ptrace(Request.SEIZE, tid, 0, options)
    except ProcessLookupError:
        raise Ended from None


def interrupt(tid: int) -> None:
    """Ask a seized thread to stop. Raises Ended."""
    try:
        ptrace(Request.INTERRUPT, tid)
    except (ProcessLookupError, OSError) as error:
        if isinstance(error, ProcessLookupError) or error.errno == errno.EIO:
            raise Ended from None
        raise


def next_stop(tid: int) -> tuple[int, int] | None:
    """The stop that a thread has come to, as Stop and signal; None while it runs. An exit status is
    left for the program's parent. Raises Ended."""
    try:
        found = os.waitid(os.P_PID, tid, os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT | WALL)
    except ChildProcessError:
        raise Ended from None
    if found is None:
        return None
    if found.si_code != os.CLD_TRAPPED:
        raise Ended
    return found.si_status >> 8, found.si_status & 0x7F


def go_on(tid: int, number: int = 0) -> None:
    """Let a stopped thread run, still traced, and deliver a signal to it. Raises Ended."""
    try:
        ptrace(Request.CONT, tid, 0, number)
    except ProcessLookupError:
        raise Ended from None


def listen(tid: int) -> None:
    """Leave a thread in the stop of its whole process, still traced: it comes to another Stop.STOP
    when the process goes on. Raises Ended."""
    try:
        ptrace(Request.LISTEN, tid)
    except OSError:  # EIO: it goes on already
        raise Ended from None


def detach(tid: int) -> None:
    """Let a stopped thread run on, or stay in the stop of its process, traced by nobody."""
    with contextlib.suppress(ProcessLookupError):  # it was killed
        ptrace(Request.DETACH, tid)


def reap(tid: int) -> None:
    """Take the exit status of a seized thread that has ended: its process cannot end, or start
    another program, before. Our own child's is left to whoever started it."""
    flags = os.WEXITED | os.WNOHANG | WALL
    with contextlib.suppress(ChildProcessError):
        # A stop would be taken as well, whatever the flags.
        found = os.waitid(os.P_PID, tid, flags | os.WNOWAIT)
        if found is not None and found.si_code != os.CLD_TRAPPED and not _is_child(tid):
            os.waitid(os.P_PID, tid, flags)


def _is_child(tid: int) -> bool:
    """Whether it is the first thread of a child of ours."""
    words = read_status(Path(f"/proc/{tid}"))
    return words.get("Tgid") == str(tid) and words.get("PPid") == str(os.getpid())
