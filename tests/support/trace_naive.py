# SPDX-License-Identifier: MIT
"""A reading of traces that anyone can check: one event after the other, one object each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.support.trace_writer import ENTRY, ENTRY_ARGS, EXIT, EXIT_VALUE, LEFT

__all__ = ["Row", "Sums", "read", "sums"]

Event = Sequence[int]


@dataclass(frozen=True)
class Row:
    """What an event became: ``event`` as in JSON; nanoseconds; ``duration`` None if unknown."""

    event: str
    func: int
    time: int
    depth: int
    duration: int | None = None


@dataclass
class Sums:
    """Of one function, and of stacks that end in it."""

    hits: int = 0
    total: int = 0
    own: int = 0


@dataclass
class _Frame:
    func: int
    begin: int
    inner: int = 0


@dataclass
class _Reader:
    """One thread."""

    rows: list[Row] = field(default_factory=list)
    stack: list[_Frame] = field(default_factory=list)
    left: list[tuple[_Frame, int]] = field(default_factory=list)
    sums: dict[int, Sums] = field(default_factory=dict)
    folded: dict[tuple[int, ...], int] = field(default_factory=dict)

    def of(self, func: int) -> Sums:
        return self.sums.setdefault(func, Sums())

    def close(self, time: int) -> _Frame:
        """The innermost frame ends."""
        path = tuple(frame.func for frame in self.stack)
        frame = self.stack.pop()
        spent = time - frame.begin
        if self.stack:
            self.stack[-1].inner += spent
        own = spent - frame.inner
        if all(other.func != frame.func for other in self.stack):  # or it is a part of that
            self.of(frame.func).total += spent
        self.of(frame.func).own += own
        self.folded[path] = self.folded.get(path, 0) + own
        return frame

    def leave(self, time: int) -> None:
        frame = self.close(time)
        self.left.append((frame, time))
        self.rows.append(Row("left", frame.func, time, len(self.stack)))

    def exit(self, func: int, time: int) -> None:
        if any(frame.func == func for frame in self.stack):
            while self.stack[-1].func != func:
                self.leave(time)
            frame = self.close(time)
            self.rows.append(Row("exit", func, time, len(self.stack), time - frame.begin))
            return
        for number in range(len(self.left) - 1, -1, -1):
            frame, when = self.left[number]
            if frame.func == func:
                del self.left[number]
                self.of(func).total += time - when
                spent = time - frame.begin
                self.rows.append(Row("exit", func, time, len(self.stack), spent))
                return
        self.rows.append(Row("exit", func, time, len(self.stack)))

    def event(self, kind: int, func: int, time: int) -> None:
        if kind in (ENTRY, ENTRY_ARGS):
            self.rows.append(Row("entry", func, time, len(self.stack)))
            self.stack.append(_Frame(func, time))
            self.of(func).hits += 1
        elif kind in (EXIT, EXIT_VALUE):
            self.exit(func, time)
        elif kind == LEFT:
            for _ in range(min(func, len(self.stack))):
                self.leave(time)


def read(events: Sequence[Event]) -> list[Row]:
    """The rows of one thread's events: (type, func, time, ...)."""
    reader = _Reader()
    for kind, func, time, *_ in events:
        reader.event(kind, func, time)
    return reader.rows


def sums(events: Sequence[Event]) -> tuple[dict[int, Sums], dict[tuple[int, ...], int]]:
    """Sums by function, and own time by stack, with what is open ending at the last event."""
    reader = _Reader()
    for kind, func, time, *_ in events:
        reader.event(kind, func, time)
    while reader.stack:
        reader.close(events[-1][2])
    return reader.sums, reader.folded
