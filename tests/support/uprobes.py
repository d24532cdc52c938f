# SPDX-License-Identifier: MIT
"""The kernel's uprobes: what they count, probes of ours count."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

__all__ = ["Counting", "counting", "entries", "returns", "uprobe"]

TRACING = Path("/sys/kernel/tracing")
RETRIES = 20
PERF_EVENT_OPEN = 298
"""Number of the system call: arch/x86/entry/syscalls/syscall_64.tbl."""
TRACEPOINT, ATTR_SIZE, CLOEXEC = 2, 128, 8
"""PERF_TYPE_TRACEPOINT, PERF_ATTR_SIZE_VER7, PERF_FLAG_FD_CLOEXEC: linux/perf_event.h."""


@contextmanager
def uprobe(program: str, place: str) -> Iterator[str]:
    """The name of an event at a place in a program; skips where none can be had."""
    name = f"ftpatch_{os.getpid()}"
    if shutil.which("perf") is None:
        pytest.skip("perf is not there")
    add = ("perf", "probe", "-q", "-x", program, f"{name}:{name}={place}")
    done = subprocess.run(add, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no uprobes: {done.stderr.strip()}")
    try:
        yield f"{name}:{name}"
    finally:
        subprocess.run(("perf", "probe", "-q", "--del", f"{name}:{name}"), check=True)


class Counting:
    """A perf that counts an event in a process until it is asked for the number."""

    def __init__(self, perf: subprocess.Popen[str]) -> None:
        self._perf = perf

    def ends(self) -> int:
        """End it, and return what it counted."""
        self._perf.send_signal(signal.SIGINT)
        return int(self._perf.communicate()[1].splitlines()[-1].split(",")[0])


@contextmanager
def counting(event: str, pid: str) -> Iterator[Counting]:
    """Count an event in all threads of a process, from here on: perf says when it does."""
    (told, tell), (said, say) = os.pipe(), os.pipe()
    words = ["perf", "stat", "-x", ",", "-e", event, "-p", pid, "-D", "-1"]
    words += ["--control", f"fd:{told},{say}"]
    pipe = subprocess.PIPE
    with (
        os.fdopen(tell, "w") as to_perf,
        os.fdopen(said) as from_perf,
        subprocess.Popen(words, stderr=pipe, text=True, pass_fds=(told, say)) as perf,
    ):
        os.close(told)
        os.close(say)
        try:
            to_perf.write("enable\n")
            to_perf.flush()
            assert "ack" in from_perf.readline()
            yield Counting(perf)
        finally:
            perf.kill()


@contextmanager
def entries(program: Path, offsets: Sequence[int]) -> Iterator[Callable[[], dict[int, int]]]:
    """Count how often places of a file are reached, by whomever; gives a function that tells, by
    offset. Thousands cost no more than one, since they are one event. The file must be a test's
    own. Skips where there are no uprobes."""
    with _defined([("p", "all", program, offset) for offset in offsets]) as _:

        def told() -> dict[int, int]:
            found = list[int]()
            for _ in range(RETRIES):  # others' events that go while it is read take some away
                text = (TRACING / "uprobe_profile").read_text()
                rows = [line.split() for line in text.splitlines()]
                found = [int(row[-1]) for row in rows if row[0] == str(program)]
                if len(found) == len(offsets):
                    break
            return dict(zip(offsets, found, strict=True))

        yield told


@contextmanager
def returns(program: Path, offsets: Sequence[int]) -> Iterator[Callable[[], dict[int, int]]]:
    """The same for functions that return, some dozens: the kernel follows 64 calls of a thread at a
    time, and its profile counts their entries."""
    named = [("r", f"n{offset:x}", program, offset) for offset in offsets]
    with _defined(named) as opened:

        def told() -> dict[int, int]:
            held = [[int.from_bytes(os.read(fd, 8), "little") for fd in row] for row in opened]
            return {offset: sum(row) for offset, row in zip(offsets, held, strict=True)}

        yield told


@contextmanager
def _defined(
    places: Sequence[tuple[str, str, Path, int]],
) -> Iterator[list[list[int]]]:
    """Events (kind, name, file, offset) while they are enabled; gives descriptors that count
    each name's, one for each processor."""
    if not (TRACING / "uprobe_events").exists():
        subprocess.run(
            ("mount", "-t", "tracefs", "nodev", TRACING), capture_output=True, check=False
        )
    group = f"ftpatch_{os.getpid()}"
    opened = []
    with ExitStack() as stack:
        try:
            events = os.open(TRACING / "uprobe_events", os.O_WRONLY | os.O_APPEND)
        except OSError as error:
            pytest.skip(f"no uprobes: {error}")
        stack.callback(os.close, events)
        for name in dict.fromkeys(name for _, name, _, _ in places):
            stack.callback(os.write, events, f"-:{group}/{name}\n".encode())
            for kind, one, program, offset in places:
                if one == name:
                    os.write(events, f"{kind}:{group}/{name} {program}:{offset:#x}\n".encode())
            number = int((TRACING / "events" / group / name / "id").read_text())
            opened.append([_enabled(number, cpu) for cpu in sorted(os.sched_getaffinity(0))])
            for fd in opened[-1]:
                stack.callback(os.close, fd)
        yield opened


def _enabled(tracepoint: int, cpu: int) -> int:
    """A descriptor that counts a tracepoint and enables it until it is closed, by whomever, without
    anything being recorded: perf_event_open(2) for all processes on a processor."""
    attributes = struct.pack("<IIQ", TRACEPOINT, ATTR_SIZE, tracepoint).ljust(ATTR_SIZE, b"\0")
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(PERF_EVENT_OPEN, attributes, -1, cpu, -1, CLOEXEC)
    if fd < 0:
        pytest.skip(f"no uprobes: {os.strerror(ctypes.get_errno())}")
    return int(fd)
