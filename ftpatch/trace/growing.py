# SPDX-License-Identifier: MIT
"""A trace file that may still be written: its header, and its chunks, as they come.

A process stores to the file by a mapping, which neither inotify(7) nor the file's times tell of. So
the header is read again, and what it has counted by then.

A thread takes the next place for its chunk, and marks it when its header is written; another may
have marked the place behind that by then. What had no mark is looked at again, the last one first:
before a thread marks a chunk, it has marked all that it had before, and those are read later here.
"""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ftpatch.errors import InputError
from ftpatch.layout import constants, offset_of
from ftpatch.trace.chunks import are_chunks, are_damaged, chunk_headers
from ftpatch.trace.header import MAX_READ, Flag, Header, parse_header, with_losses
from ftpatch.trace.reader import OpenFile
from ftpatch.trace.word_file import HEADER, heads_of

__all__ = ["FOUND", "Growing"]

FOUND = [("at", "i8"), *((name, "i8") for name in ("tid", "number", "open", "thread"))]
FOUND.append(("base", "u8"))
"""A chunk that was found: the file offset of its header, and what that says."""
MAX_EMPTY = 256
"""Maximum number of places without a chunk that are looked at again, of those handed out last. What
is found in others, is found at the end."""
IDENTITY = (
    slice(0, offset_of("trace_header", "header_size")),
    slice(offset_of("trace_header", "pid"), offset_of("trace_header", "depth")),
    slice(offset_of("trace_header", "ticks"), offset_of("trace_header", "ended_ticks")),
)
"""Parts of a header that never change."""
LIBRARIES = offset_of("trace_header", "libraries")
LOST = slice(offset_of("trace_header", "lost"), offset_of("trace_header", "off"))
UNIT = constants["TRACE_UNIT"]
"""Bytes."""


class Growing:
    """One file. ``header`` is what was read last; ``is_removed``: it has no name any more;
    ``damaged``: the number of invalid chunks, known at the end."""

    def __init__(self, source: OpenFile) -> None:
        self.header = source.header
        self.is_removed = False
        self.damaged = 0
        self._fd = source.fd
        self._raw = self._read()
        self._links, self._length = 0, source.header.length
        self._most = source.header.length  # what it had room for
        self._next = 0
        self._empty = np.empty(0, np.int64)
        self._known = [np.empty(0, np.int64)]
        self._last: dict[int, tuple[int, ...]] = {}
        """Of a ring: what was last found at each place."""
        self._lost = False

    def look(self) -> bool:
        """Read the header again; return whether what it says of libraries has changed. Raises
        InputError for a file that was truncated or overwritten."""
        path = self.header.path
        held = os.fstat(self._fd)
        used = self.header.chunks_used
        if held.st_size < min(self._most, used):
            reason = f"truncated while it was followed: {held.st_size} of {used} bytes"
            raise InputError(path, reason, "nothing that follows is read")
        raw = self._read()
        self.is_removed = self._links > 0 and not held.st_nlink
        self._links, self._length = held.st_nlink, held.st_size
        self._most = max(self._most, self._length)
        if raw == self._raw:
            return False
        if any(raw[part] != self._raw[part] for part in IDENTITY):
            raise InputError(path, "overwritten while it was followed", "follow it again")
        lost = raw[LOST] != self._raw[LOST]
        changed = raw[LIBRARIES:] != self._raw[LIBRARIES:]
        self._raw = raw
        comm = self.header.comm  # of a traced copy, it becomes the program's in the end
        known = self.header.known_losses
        self.header = replace(parse_header(path, raw, held.st_size), comm=comm, known_losses=known)
        self._lost = self._lost or lost
        return changed

    def tell_losses(self) -> None:
        """Read what threads have lost by now into the header. Raises InputError."""
        if self._lost:
            self._lost = False
            try:
                self.header = with_losses(self._fd, self.header)
            except OSError as error:
                raise InputError(self.header.path, f"cannot read: {error.strerror}") from None

    def chunks(self) -> NDArray[np.void]:
        """Find the chunks that have come by the time of the latest look, FOUND[n] by place. Raises
        InputError."""
        header, size = self.header, self.header.chunk_size
        if header.is_ring:
            return self._ring_chunks()
        end = min(header.chunks_used, self._length)
        if (end - header.header_size) // size <= self._next and not len(self._empty):
            return np.empty(0, FOUND)
        marked = list[int]()
        for places, heads in self._headers(replace(header, length=end), self._next):
            marked += places[are_chunks(heads)].tolist()
        first, self._next = self._next, max(self._next, (end - header.header_size) // size)
        fresh = np.arange(max(first, self._next - MAX_EMPTY), self._next) * size
        fresh = np.setdiff1d(fresh + header.header_size, marked)
        unmarked = list[int]()
        for place in np.concatenate([self._empty, fresh])[: -MAX_EMPTY - 1 : -1].tolist():
            good = bool(are_chunks(self._head(place))[0])
            (marked if good else unmarked).append(place)
        self._empty = np.array(unmarked[::-1], np.int64)
        return self._found(marked)

    def _ring_chunks(self) -> NDArray[np.void]:
        """Find those of a ring: at the places that were handed out since the latest look, and at
        those where there was none, or the same as before. They are read backwards: what a thread
        had before, it has marked by then, and a chunk that is gone is not there twice."""
        header, size = self.header, self.header.chunk_size
        end = min(header.chunks_end, self._length)
        if header.flags & Flag.NO_ROOM:  # what there was, is the ring
            end = min(end, header.grown * UNIT)
        count = (end - header.header_size) // size
        if count <= 0:
            return np.empty(0, FOUND)
        first, self._next = max(self._next, header.taken // size - count), header.taken // size
        if header.flags & Flag.NO_ROOM:
            first = self._next - count
        fresh = np.arange(max(first, 0), self._next) % count * size + header.header_size
        unmarked, out = list[int](), list[tuple[int, NDArray[np.void]]]()
        for place in dict.fromkeys([*self._empty.tolist(), *fresh.tolist()][::-1]):
            head = self._head(place)
            identity = tuple(int(head[name][0]) for name in ("tid", "number", "base"))
            if are_chunks(head)[0] and self._last.get(place) != identity:
                self._last[place] = identity
                out.append((place, head))
            else:
                unmarked.append(place)
        self._empty = np.array(unmarked[:MAX_EMPTY][::-1], np.int64)
        return _found_of(out[::-1])

    def others(self) -> NDArray[np.void]:
        """Find all other chunks of a file that nobody writes to any more, FOUND[n] by place. Raises
        InputError."""
        if self.header.is_ring:
            return self._other_ring_chunks()
        known, marked = np.concatenate(self._known), list[int]()
        for places, heads in self._headers(replace(self.header, length=self._length), 0):
            good = are_chunks(heads) & ~np.isin(places, known)
            marked += places[good].tolist()
            self.damaged += int(are_damaged(heads).sum())
        return self._found(marked)

    def _other_ring_chunks(self) -> NDArray[np.void]:
        out = list[tuple[int, NDArray[np.void]]]()
        for places, heads in self._headers(replace(self.header, length=self._length), 0):
            self.damaged += int(are_damaged(heads).sum())
            good = are_chunks(heads)
            for place, head in zip(places[good].tolist(), heads[good][:, None], strict=True):
                identity = tuple(int(head[name][0]) for name in ("tid", "number", "base"))
                if self._last.get(place) != identity:
                    self._last[place] = identity
                    out.append((place, head))
        return _found_of(sorted(out, key=lambda one: int(one[1]["number"][0])))

    def _found(self, marked: list[int]) -> NDArray[np.void]:
        """Read headers, now that they are marked."""
        out = _found_of([(place, self._head(place)) for place in sorted(marked)])
        self._known.append(out["at"].copy())
        return out

    def _headers(
        self, header: Header, first: int
    ) -> list[tuple[NDArray[np.int64], NDArray[np.void]]]:
        try:
            return list(chunk_headers(self._fd, header, first))
        except OSError as error:
            raise InputError(header.path, f"cannot read: {error.strerror}") from None

    def _head(self, place: int) -> NDArray[np.void]:
        try:
            raw = os.pread(self._fd, HEADER.itemsize, place)
        except OSError as error:
            raise InputError(self.header.path, f"cannot read: {error.strerror}") from None
        whole = np.frombuffer(raw.ljust(HEADER.itemsize, b"\0"), np.uint8)
        return heads_of(whole, self.header.order)

    def _read(self) -> bytes:
        try:
            return os.pread(self._fd, MAX_READ, 0)
        except OSError as error:
            raise InputError(self.header.path, f"cannot read: {error.strerror}") from None


def _found_of(heads: list[tuple[int, NDArray[np.void]]]) -> NDArray[np.void]:
    """What headers say, by place, FOUND[n]."""
    out = np.zeros(len(heads), FOUND)
    for row, (place, head) in zip(out, heads, strict=True):
        row["at"] = place
        for name in ("tid", "base", "number", "open", "thread"):
            row[name] = head[name][0]
    return out
