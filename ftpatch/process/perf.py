# SPDX-License-Identifier: MIT
"""Breakpoints of other processes' threads, set through perf_event_open(2).

An event is inherited by the threads and processes that its thread makes, together with its BPF
program. It goes with its last descriptor: nothing is left when ftpatch ends, however it does.

    listing 1 | a b c      set with mark 0: none of them has inherited any
    listing 2 | a b c d    d began meanwhile, of a thread that was watched (it has inherited all)
                           or not yet: it is set with mark 1

Whatever has breakpoints of two marks has all accesses twice, first those of the lower mark: it
inherited that one, and the kernel sets a thread's breakpoints in the order in which it got them.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Final

from ftpatch.errors import InputError
from ftpatch.process.process import Process, read_status, threads_of
from ftpatch.process.system_call import system_call

__all__ = ["MARKS", "Breakpoint", "Events"]

MARKS: Final = 64
"""Listings of a process's threads at most."""
TRIES: Final = 20
LOAD: Final = Path("/proc/loadavg")
SPARE: Final = 64
"""Descriptors for other purposes."""
ATTRIBUTES: Final = struct.Struct("<2I5Q2I2Q")
"""struct perf_event_attr: type, size | config, sample_period, sample_type, read_format, flags |
wakeup_events, bp_type | bp_addr, bp_len."""
SIZE: Final = 112
"""Bytes of it (PERF_ATTR_SIZE_VER5), zeros where nothing is said."""
TYPE_BREAKPOINT: Final = 5
DISABLED, INHERIT, EXCLUDE_KERNEL, EXCLUDE_HV, REMOVE_ON_EXEC = 1, 1 << 1, 1 << 5, 1 << 6, 1 << 36
FLAG_CLOEXEC: Final = 8
IOC_ENABLE: Final = 0x2400
IOC_DISABLE: Final = 0x2401
IOC_SET_BPF: Final = 0x4004_2408
"""Numbers of include/uapi/linux/perf_event.h."""


@dataclass(frozen=True, kw_only=True)
class Breakpoint:
    """``length`` bytes at an ``address`` of the process; ``type``: HW_BREAKPOINT_W or _RW."""

    address: int
    length: int
    type: int


class Found(Enum):
    """Outcome for one thread."""

    SET = auto()
    HAD = auto()
    """It has inherited the breakpoints."""
    ENDED = auto()


@dataclass
class Events:
    """The events of a process. ``marks``: how many marks they have."""

    number: int
    """Of perf_event_open(2)."""
    marks: int = 0
    threads: int = 0
    complete: bool = True
    """False where threads began faster than they could be watched."""
    _fds: list[list[int]] = field(default_factory=list)
    """A list for each breakpoint."""
    _seen: set[int] = field(default_factory=set)
    """Threads in any listing."""

    def place(
        self,
        process: Process,
        breakpoints: Sequence[Breakpoint],
        programs: Callable[[int], Sequence[int]],
        refused: Callable[[int, OSError], InputError],
    ) -> None:
        """Set the breakpoints in all threads. ``programs`` returns the descriptors of
        the BPF programs of a mark, ``refused`` the error for a breakpoint. Raises InputError: then
        none is set."""
        self._fds = [[] for _ in breakpoints]
        done: set[int] = set()
        try:
            while new := sorted(self._listed(process) - done):
                if self.marks == MARKS:
                    self.complete = False
                    break
                _allow_descriptors(process, (len(done) + len(new)) * len(breakpoints))
                held = programs(self.marks)
                found = [self._set_in(process, tid, breakpoints, held, refused) for tid in new]
                done.update(new)
                self.marks += 1
                if set(found) == {Found.HAD}:
                    break
            if not self.threads:
                raise InputError(None, f"{process}: it has ended")
        except BaseException:
            self.close()
            raise

    def _listed(self, process: Process) -> set[int]:
        listed = set(threads_of(process.place))
        self._seen |= listed
        return listed

    def _set_in(
        self,
        process: Process,
        tid: int,
        breakpoints: Sequence[Breakpoint],
        programs: Sequence[int],
        refused: Callable[[int, OSError], InputError],
    ) -> Found:
        """Set them in one thread. What it makes before they have their programs would inherit them
        without: then once more."""
        mine: list[int] = []
        try:
            for _ in range(TRIES):
                for fd in mine:
                    os.close(fd)
                mine, last, seen = [], _last_pid(), set(self._seen)
                for number, (one, program) in enumerate(zip(breakpoints, programs, strict=True)):
                    try:
                        mine.append(self._open(one, tid))
                        fcntl.ioctl(mine[-1], IOC_SET_BPF, program)
                    except OSError as error:
                        if error.errno == errno.ESRCH:
                            return Found.ENDED
                        # Two sets of three have no room in four: the first is inherited.
                        is_full = error.errno == errno.ENOSPC and self.marks
                        if is_full and not _is_traced(process, tid):
                            return Found.HAD
                        raise refused(number, error) from None
                if _last_pid() == last or not self._listed(process) - seen:
                    break
            # Its number may have been another process's since the listing.
            if not (process.place / "task" / str(tid)).exists():
                return Found.ENDED
            for fds, fd in zip(self._fds, mine, strict=True):
                fds.append(fd)
            mine = []
            self.threads += 1
            return Found.SET
        finally:
            for fd in mine:
                os.close(fd)

    def _open(self, one: Breakpoint, tid: int) -> int:
        # Disabled, until there is a program: an access that is counted is recorded.
        flags = DISABLED | INHERIT | EXCLUDE_KERNEL | EXCLUDE_HV | REMOVE_ON_EXEC
        fields = (TYPE_BREAKPOINT, SIZE, 0, 1, 0, 0, flags, 0, one.type, one.address, one.length)
        held = ctypes.create_string_buffer(ATTRIBUTES.pack(*fields), SIZE)
        return system_call(self.number, held, tid, -1, -1, FLAG_CLOEXEC)

    def begin(self) -> None:
        """Record from now on."""
        for fd in self._all():
            fcntl.ioctl(fd, IOC_ENABLE, 0)

    def stop(self) -> list[int]:
        """Record no more; the accesses that the kernel has counted, of each breakpoint."""
        for fd in self._all():
            fcntl.ioctl(fd, IOC_DISABLE, 0)
        return [sum(_count(fd) for fd in fds) for fds in self._fds]

    def close(self) -> None:
        """Take the breakpoints away."""
        for fd in self._all():
            os.close(fd)
        self._fds = []

    def _all(self) -> Iterator[int]:
        for fds in self._fds:
            yield from fds


def _count(fd: int) -> int:
    """The accesses of a thread, and of all that inherited its breakpoint."""
    return int.from_bytes(os.read(fd, 8), "little")


def _last_pid() -> int:
    """The latest number that a thread got (proc_loadavg(5)): while it stays, none has begun."""
    return int(LOAD.read_text().split()[-1])


def _is_traced(process: Process, tid: int) -> bool:
    """Test whether a debugger may have taken a thread's breakpoints."""
    status = read_status(process.place / "task" / str(tid))
    return status.get("TracerPid", "0") != "0"


def _allow_descriptors(process: Process, wanted: int) -> None:
    """Raise the limit of open descriptors that we began with. Raises InputError where it is too
    low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted += SPARE
    if wanted <= soft:
        return
    if hard != resource.RLIM_INFINITY and wanted > hard:
        raise InputError(
            None,
            f"{process}: its threads take {wanted} descriptors, and {hard} may be open",
            "watch fewer variables, or raise the limit (ulimit -Hn)",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
