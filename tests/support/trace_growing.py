# SPDX-License-Identifier: MIT
"""A trace file that comes into being store by store, as the runtime makes it: a chunk is handed out
in the header, described, and marked; of an event the first word is stored last."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["TAKEN", "GrowingFile", "Store", "calls_behind", "stores_of"]

CHUNK = struct.Struct("<IIQIIQ")
TAKEN = 40
"""Offset of `taken` in struct trace_header."""
BEHIND = {1: 0, 2: 0, 3: 1, 4: 6, 5: 1, 6: 0, 7: 1}
"""Words after the first one, by type of event."""
TIME = 7


def calls_behind(word: int, rest: bytes) -> int:
    """Words after the first one of a call's event, whatever the ``rest`` of its chunk is."""
    return BEHIND[word & 7]


@dataclass(frozen=True)
class Store:
    """Bytes that a thread stores at a time (ticks)."""

    time: int
    thread: int
    at: int
    raw: bytes


def stores_of(raw: bytes, behind: Callable[[int, bytes], int] = calls_behind) -> list[Store]:
    """All stores that make a file from its header, each thread's in its order; ``behind`` returns
    how many words follow the first one of an event, given also what does."""
    begin, chunk_size = struct.unpack_from("<I", raw, 12)[0], struct.unpack_from("<I", raw, 20)[0]
    out = []
    for number, place in enumerate(range(begin, len(raw), chunk_size)):
        chunk = raw[place : place + chunk_size]
        _, tid, base, *_ = CHUNK.unpack_from(chunk)

        def store(time: int, at: int, raw: bytes, tid: int = tid, place: int = place) -> None:
            out.append(Store(time, tid, place + at, raw))

        taken = struct.pack("<Q", (number + 1) * chunk_size)
        out.append(Store(base, tid, TAKEN, taken))
        store(base, 4, chunk[4 : CHUNK.size])
        store(base, 0, chunk[:4])
        at = CHUNK.size
        while at + 8 <= len(chunk):
            (word,) = struct.unpack_from("<Q", chunk, at)
            if not word:
                break
            size = 8 + 8 * behind(word, chunk[at + 8 :])
            time = base + (word >> 31)
            if word & 7 == TIME:
                (base,) = struct.unpack_from("<Q", chunk, at + 8)
                time = base
            if size > 8:
                store(time, at + 8, chunk[at + 8 : at + size])
            store(time, at, chunk[at : at + 8])
            at += size
    return out


class GrowingFile:
    """A file of full size with nothing but its header, until stores are ``done``."""

    def __init__(self, path: Path, raw: bytes, stores: Sequence[Store]) -> None:
        begin = struct.unpack_from("<I", raw, 12)[0]
        head = bytearray(raw[:begin])
        head[TAKEN : TAKEN + 8] = bytes(8)
        path.write_bytes(bytes(head).ljust(len(raw), b"\0"))
        self._file = path.open("r+b", buffering=0)
        self._stores: Iterator[Store] = iter(stores)
        self.done = False

    def go_on(self, count: int | None = None) -> None:
        """Do the next stores, by default all."""
        while count is None or count > 0:
            store = next(self._stores, None)
            if store is None:
                self.done = True
                return
            self._file.seek(store.at)
            self._file.write(store.raw)
            count = None if count is None else count - 1

    def close(self) -> None:
        """Close it."""
        self._file.close()
