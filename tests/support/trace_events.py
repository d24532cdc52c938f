# SPDX-License-Identifier: MIT
"""A second reader of trace files, for tests: stubs/runtime/trace.h in a few lines, and no more."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = [
    *("ENTRIES", "EXITS", "LEFT", "LOST", "Event", "Thread", "Trace"),
    *("balance", "calls_in", "order_of", "read_trace"),
    "are_latest",
]

HEADER = "8s6I9Q4I7Q2I32s16s24x1024s"
CHUNK, CHUNK_SIZE = "IIQIIQ", 32
MAGIC = 0x4B4E4843
LOST = ("full", "depth", "nested", "early", "thread")
ENTRIES, EXITS, LEFT, TIME = (1, 3, 4), (2, 5), 6, 7
WORDS = {1: 0, 2: 0, 3: 1, 4: 6, 5: 1, 6: 0, 7: 1}
PROFILE = 3


@dataclass(frozen=True)
class Event:
    """One event; ``func`` as the file has it, of LEFT a number of frames; ``time`` in ticks;
    ``parent``: its first further word, if it has one."""

    type: int
    func: int
    time: int
    parent: int = 0


@dataclass
class Thread:
    """Events of one thread in order; ``open``: frames that were open when each chunk began."""

    tid: int
    events: list[Event] = field(default_factory=list)
    open: list[tuple[int, int]] = field(default_factory=list)
    """(number of events before, frames)."""


@dataclass
class Trace:
    """A file: what its header says, its threads, and the entries (hits, total, self) of a profile
    by function."""

    pid: int
    tracer: int
    base: int
    bias: int
    flags: int
    lost: dict[str, int]
    threads: list[Thread] = field(default_factory=list)
    profile: dict[int, list[int]] = field(default_factory=dict)
    comm: str = ""

    @property
    def events(self) -> Iterator[Event]:
        """Those of all threads."""
        for thread in self.threads:
            yield from thread.events


def calls_in(trace: Trace) -> Counter[int]:
    """Calls by function. Nothing may have been lost."""
    assert not any(trace.lost.values()), trace.lost
    if trace.tracer == PROFILE:
        return Counter({func: entry[0] for func, entry in trace.profile.items()})
    return Counter(event.func for event in trace.events if event.type in ENTRIES)


def read_trace(path: Path, *, jumps: bool = False) -> Trace:
    """Read a file; what is not as trace.h says fails an assertion. ``jumps``: handlers may have
    left the tracer in the midst of an event, of which something stands behind the last one then."""
    data = path.read_bytes()
    order = order_of(data)
    fields = struct.unpack_from(order + HEADER, data)
    magic, version, size, _, chunk_size, tracer, flags, whole, taken, bias, base = fields[:11]
    pid, lost, comm = fields[16], fields[20:25], fields[30]
    accounts, accounted = fields[26:28]
    assert (magic, version, size) == (b"FTPTRACE", 1, 4096), path
    ends = (whole, size + taken, accounts + 64 * accounted)
    assert len(data) in ends[: 2 + bool(accounted)], path
    trace = Trace(pid, tracer, base, bias, flags, dict(zip(LOST, lost, strict=True)))
    trace.comm = comm.split(b"\0")[0].decode()
    holes = 0
    last: dict[int, tuple[int, Thread]] = {}
    for at in range(size, size + taken, chunk_size):
        if at + chunk_size > min(len(data), accounts or len(data)):
            break  # handed out, but not there
        word, tid, time, number, frames, _ = struct.unpack_from(order + CHUNK, data, at)
        if not word:  # who took it never came to use it: a handler jumped out of the tracer
            assert not any(data[at + CHUNK_SIZE : at + chunk_size]), f"{path}: {at:#x}"
            holes += 1
            continue
        assert word == MAGIC, f"{path}: no chunk at {at:#x}"
        if tracer == PROFILE:
            _profile(trace, order, data[at + CHUNK_SIZE : at + chunk_size])
            continue
        before, thread = last.get(tid, (-1, Thread(tid)))
        if number != before + 1:
            assert number == 0 or holes, f"{path}: chunk {number} of {tid} comes after {before}"
            thread = Thread(tid)  # another thread has got the number
        if not thread.open:
            trace.threads.append(thread)
        last[tid] = (number, thread)
        thread.open.append((len(thread.events), frames))
        words = struct.Struct(f"{order}Q")
        thread.events += _events(data, at + CHUNK_SIZE, at + chunk_size, words, time, jumps)
    return trace


def order_of(data: bytes) -> str:
    """The byte order of a file, as struct has it: the version is a small number."""
    return "<" if data[8] else ">"


def _events(
    data: bytes, at: int, end: int, words: struct.Struct, base: int, jumps: bool
) -> Iterator[Event]:
    while at < end:
        (word,) = words.unpack_from(data, at)
        if not word:
            left = 8 + 8 * max(WORDS.values()) if jumps else 0
            assert not any(data[at + left : min(at + 256, end)]), f"more behind the end, at {at:#x}"
            return
        kind = word & 7
        assert kind in WORDS, f"no event at {at:#x}"
        if kind == TIME:
            (base,) = words.unpack_from(data, at + 8)
        else:
            more = words.unpack_from(data, at + 8)[0] if WORDS[kind] else 0
            yield Event(kind, word >> 3 & 0xFFF_FFFF, base + (word >> 31), more)
        at += 8 + 8 * WORDS[kind]
    assert at == end, "the last event goes beyond its chunk"


def _profile(trace: Trace, order: str, table: bytes) -> None:
    for func, hits, total, own in struct.iter_unpack(f"{order}4Q", table):
        if func:
            entry = trace.profile.setdefault(func - 1, [0, 0, 0])
            for place, value in enumerate((hits, total, own)):
                entry[place] += value


def balance(thread: Thread, *, wander: bool = False) -> list[int]:
    """The functions still open at the end. Every exit is of the innermost frame that is open, or,
    if ``wander``, of one that was left before."""
    stack: list[int] = []
    away: list[int] = []
    frames = dict(thread.open)
    if frames.get(0):  # a child's, whose frames of the parent return unseen
        frames = {}
    for number, event in enumerate(thread.events):
        if number in frames:
            assert frames[number] == len(stack), f"{frames[number]} frames, not {len(stack)}"
        if event.type in ENTRIES:
            stack.append(event.func)
        elif event.type == LEFT:
            assert 0 < event.func <= len(stack)
            away += stack[len(stack) - event.func :]
            del stack[len(stack) - event.func :]
        elif stack and stack[-1] == event.func:
            stack.pop()
        else:
            assert wander and event.func in away, f"exit of {event.func:#x}, open {stack[-3:]}"
            away.remove(event.func)
    return stack


def are_latest(calls: dict[int, str], log: str) -> int:
    """Compare the calls of each thread with ring.c's log; how many calls there were in all."""
    whole, own = 0, set()
    for line in log.splitlines():
        tid, count, made = line.split()
        whole += int(count)
        own.add(int(tid))
        called = calls.get(int(tid), "")
        assert made.endswith(called[-len(made) :]), (
            f"thread {tid}: {called[-50:]}, not {made[-50:]}"
        )
    assert set(calls) <= own
    return whole
