# SPDX-License-Identifier: MIT
"""A writer of trace files for tests, as stubs/runtime/trace.h draws them, and of the program that
they are of. Any field can be made wrong."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.elf_writer import (
    PF_R,
    PF_X,
    SHF_ALLOC,
    SHF_EXECINSTR,
    Image,
    Section,
    Segment,
    Symbol,
)

__all__ = [
    "BASE",
    "FIELDS",
    "FUNCTIONS",
    "Call",
    "Thread",
    "TraceFile",
    "library",
    "program",
    "site",
]

ENTRY, EXIT, ENTRY_FROM, ENTRY_ARGS, EXIT_VALUE, LEFT, TIME = range(1, 8)
FUNCTION, GRAPH, PROFILE = 1, 2, 3
BASE = 0x401000
STRIDE = 0x20
FUNCTIONS = ("main", "parse", "read_line", "walk", "alloc", "hash", "print_all", "fail")
HEADER, LIBRARY, CHUNK = "8s6I9Q4I7Q2I32s16s24x1024s", "2I4Q32s", "IIQIIQ"
WORDS = """magic version header_size machine chunk_size tracer flags size taken bias base hz ticks
realtime ended_ticks ended_realtime pid ppid depth threads lost0 lost1 lost2 lost3 lost4 overwritten
accounts accounted off image_id comm path"""
FIELDS = WORDS.split()


def site(name: str) -> int:
    """What an event has as ``func`` for a function of program()."""
    return FUNCTIONS.index(name) * STRIDE + 5


def program(path: Path, names: Sequence[str] = FUNCTIONS) -> Path:
    """An executable with those functions, from BASE on."""
    flags = SHF_ALLOC | SHF_EXECINSTR
    text = Section(".text", b"\x90" * STRIDE * len(names), BASE, flags=flags)
    image = Image(sections=[text], segments=[Segment((".text",), PF_R | PF_X)])
    for number, name in enumerate(names):
        image.symbols.append(Symbol(name, BASE + number * STRIDE, STRIDE))
    path.write_bytes(image.build())
    return path


def library(
    path: Path | bytes,
    start: int,
    size: int,
    *,
    base: int = BASE,
    bias: int = 0,
    image_id: bytes = b"",
    length: int | None = None,
    order: str = "<",
) -> bytes:
    """A library in a header."""
    name = path if isinstance(path, bytes) else bytes(path) + b"\0"
    whole = (struct.calcsize(order + LIBRARY) + len(name) + 7) // 8 * 8
    fields = (whole if length is None else length, 0, start, size, base, bias, image_id)
    return (struct.pack(order + LIBRARY, *fields) + name).ljust(whole, b"\0")


@dataclass
class Call:
    """A call of a function, with those that it makes; times are ticks."""

    func: int
    begin: int
    end: int
    calls: list[Call] = field(default_factory=list)

    def events(self) -> Iterable[tuple[int, ...]]:
        """(type, func, time) of it all, in order."""
        yield ENTRY, self.func, self.begin
        for call in self.calls:
            yield from call.events()
        yield EXIT, self.func, self.end


@dataclass
class Thread:
    """Events of one thread: (type, func, time, further words...), in chunks of ``per`` events."""

    tid: int
    events: list[tuple[int, ...]] = field(default_factory=list)
    per: int = 1 << 30

    def add(self, kind: int, what: str | int, time: int, *words: int) -> Thread:
        """One more event; of EVENT_UNWOUND a number of frames, else a function."""
        func = what if isinstance(what, int) else site(what)
        self.events.append((kind, func, time, *words))
        return self


@dataclass
class TraceFile:
    """A whole file; ``header`` overrides fields of it by name. Chunks lie in the order in which
    they began, from ``begin`` on. ``libraries`` is what library() makes, or anything else.
    ``order`` of the bytes, as struct has it."""

    threads: list[Thread] = field(default_factory=list)
    chunk_size: int = 4096
    begin: int = 4096
    header: dict[str, int | bytes] = field(default_factory=dict)
    profiles: list[list[tuple[int, int, int, int]]] = field(default_factory=list)
    libraries: bytes = b""
    order: str = "<"

    def build(self) -> bytes:
        """The bytes of the file."""
        chunks = [chunk for thread in self.threads for chunk in self._chunks(thread)]
        chunks.sort(key=lambda chunk: chunk[0])
        body = b"".join(raw.ljust(self.chunk_size, b"\0") for _, raw in chunks)
        for entries in self.profiles:
            raw = struct.pack(self.order + CHUNK, 0x4B4E4843, 1, 0, 0, 0, 0)
            raw += b"".join(struct.pack(f"{self.order}4Q", *entry) for entry in entries)
            body += raw.ljust(self.chunk_size, b"\0")
        values: dict[str, int | bytes] = dict.fromkeys(FIELDS, 0)
        values |= {
            "magic": b"FTPTRACE",
            "version": 1,
            "header_size": self.begin,
            "machine": 62,
            "chunk_size": self.chunk_size,
            "tracer": PROFILE if self.profiles else GRAPH,
            "flags": 2,
            "size": self.begin + len(body),
            "taken": len(body),
            "base": BASE,
            "hz": 10**9,
            "pid": 100,
            "ppid": 1,
            "depth": 1024,
            "threads": len(self.threads),
            "image_id": b"",
            "comm": b"prog",
            "path": b"",
        }
        values |= self.header
        fields = (values[name] for name in FIELDS)
        head = struct.pack(self.order + HEADER, *fields) + self.libraries
        return head.ljust(self.begin, b"\0")[: self.begin] + body

    def write(self, path: Path) -> Path:
        """The file, at ``path``."""
        path.write_bytes(self.build())
        return path

    def _chunks(self, thread: Thread) -> Iterable[tuple[int, bytes]]:
        """(base, bytes) of each; a new one where there is no room, or enough events."""
        room = self.chunk_size - 32
        number = depth = 0
        base, words, count = 0, bytearray(), 0
        head = b""

        for kind, func, time, *more in thread.events:
            width = 8 + 8 * len(more)
            if not head or len(words) + width > room or count == thread.per:
                if head:
                    yield base, head + words
                base, words, count = time, bytearray(), 0
                fields = (0x4B4E4843, thread.tid, base, number, depth, 0)
                head = struct.pack(self.order + CHUNK, *fields)
                number += 1
            first = (max(time - base, 0) << 31) | (func << 3) | kind
            for word in (first, *more):
                words += struct.pack(f"{self.order}Q", word % (1 << 64))
            count += 1
            step = func if kind == LEFT else 1
            depth = max(depth + (step if kind in (ENTRY, ENTRY_ARGS) else -step), 0)
        if head:
            yield base, head + words
