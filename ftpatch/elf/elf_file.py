# SPDX-License-Identifier: MIT
"""An ELF image: its bytes, its sections and segments, virtual addresses and file offsets."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.byte_order import ByteOrder
from ftpatch.core.changes import Changes
from ftpatch.elf.headers import Section, Segment, Skeleton
from ftpatch.elf.skeleton import read_skeleton
from ftpatch.errors import InputError
from ftpatch.io.cleanup import CLEANUP
from ftpatch.io.mapped_faults import mapped

__all__ = ["MAX_MAPPED", "Elf", "map_file"]

SMALL = 64 << 20
"""Maximum size of files that are read as a whole (bytes)."""
MAX_MAPPED = 1 << 29
"""Maximum sum of segments that map the same bytes of a file, as those of hops do (bytes)."""


def map_file(path: Path) -> tuple[NDArray[np.uint8], bool]:
    """Return the file's bytes, uint8[size], read or, for a large file, mapped; and whether they are
    mapped. (If a mapped file is truncated, the process is killed, see mapped_faults.py: one of many
    files is read.)

    Raises InputError unless it is a readable regular file.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise InputError(path, f"cannot read: {error.strerror}") from None
    except ValueError:
        raise InputError(path, "cannot read: a NUL character in its name") from None
    try:
        if not path.is_file():
            if path.is_dir():
                raise InputError(path, "a folder", "name a file in it")
            raise InputError(path, "not a regular file", "use a single image")
        held = os.fstat(fd)
        if held.st_size == 0:
            raise InputError(path, "the file is empty")
        if held.st_size <= SMALL or CLEANUP.one_of_many:
            os.set_blocking(fd, True)
            with os.fdopen(os.dup(fd), "rb") as file:
                return np.frombuffer(file.read(), np.uint8), False
        mapped(path, held)
        data = mmap.mmap(fd, held.st_size, access=mmap.ACCESS_READ)
        return np.frombuffer(data, np.uint8), True
    except OSError as error:
        raise InputError(path, f"cannot read: {error.strerror}") from None
    except ValueError:  # mmap's, if the file has shrunk
        raise InputError(path, "the file changed while it was being read", "try again") from None
    finally:
        os.close(fd)


@dataclass(frozen=True)
class Elf:
    """An ELF file. ``data`` is uint8[size], the whole file; ``mapped``: these are
    pages of the file at ``path`` (otherwise it may also be the contents of a compressed file)."""

    path: Path
    data: NDArray[np.uint8] = field(repr=False)
    skeleton: Skeleton = field(repr=False)
    mapped: bool = False

    @classmethod
    def read(cls, path: Path, data: NDArray[np.uint8], *, mapped: bool = False) -> Elf:
        """Read the headers of an image. Raises InputError."""
        elf = cls(path, data, read_skeleton(str(path), data), mapped)
        loads = (s.size for s in elf.skeleton.segments if s.type == Segment.PT_LOAD)
        elf.bounded("segments", loads, allowed=MAX_MAPPED)
        return elf

    def bounded(self, what: str, sizes: Iterable[int], *, allowed: int = 0) -> None:
        """Raise InputError if parts that should be disjoint add up to more than twice the file and
        ``allowed`` bytes: reading overlapping ones one by one could take any amount of memory."""
        total, size = sum(sizes), len(self.data)
        if total > 2 * size + allowed:
            raise InputError(
                self.path, f"its {what} total {total:#x} bytes, but the file has only {size:#x}"
            )

    @property
    def word(self) -> int:
        """Bytes of an address: 4 or 8."""
        return self.skeleton.elf_class // 8

    @property
    def order(self) -> ByteOrder:
        """That of its numbers."""
        return self.skeleton.order

    @property
    def has_header(self) -> bool:
        """True if the file itself begins with an ELF header; an Image is only presented as ELF."""
        return self.data[:4].tobytes() == b"\x7fELF"

    @property
    def sections(self) -> tuple[Section, ...]:
        """All section headers; empty if there are none."""
        return self.skeleton.sections

    @cached_property
    def end(self) -> int:
        """End of the last section or of the section headers (file offset)."""
        entry = 64 if self.word == 8 else 40
        ends = (s.offset + s.size for s in self.sections if s.type != Section.SHT_NOBITS)
        return max(self.skeleton.section_headers + entry * len(self.sections), *ends, 0)

    def section(self, name: str) -> Section | None:
        """Find the first section of that name."""
        return next((s for s in self.sections if s.name == name), None)

    def segment(self, kind: int) -> Segment | None:
        """Find the first segment of that p_type."""
        return next((s for s in self.skeleton.segments if s.type == kind), None)

    @cached_property
    def loads(self) -> NDArray[np.uint64]:
        """PT_LOADs by address: uint64[m, 3] of (address, size in the file, file offset)."""
        rows = sorted(
            (s.address, s.size, s.offset)
            for s in self.skeleton.segments
            if s.type == Segment.PT_LOAD
        )
        return np.array(rows, np.uint64).reshape(-1, 3)

    @cached_property
    def text(self) -> NDArray[np.uint64]:
        """Ranges of code by address: uint64[m, 2] of (address, size). Executable sections, since
        kernels keep .init.text in a writable segment and .rodata in an executable one; without
        section headers, executable segments."""
        wanted = Section.SHF_ALLOC | Section.SHF_EXECINSTR
        rows = sorted(
            (s.address, s.size)
            for s in self.sections
            if s.flags & wanted == wanted and s.type != Section.SHT_NOBITS
        ) or sorted(
            (s.address, s.size)
            for s in self.skeleton.segments
            if s.type == Segment.PT_LOAD and s.flags & Segment.PF_X
        )
        return np.array(rows, np.uint64).reshape(-1, 2)

    def offset_of(
        self, address: NDArray[np.uint64], *, executable: bool = False
    ) -> NDArray[np.int64]:
        """File offsets of virtual addresses, int64[n]; -1 for what is not in the file and, with
        ``executable``, for what is not code."""
        row, distance = _within(self.loads, address)
        inside = row >= 0
        if executable:
            inside &= _within(self.text, address)[0] >= 0
        if not len(self.loads):
            return np.full(len(address), -1, np.int64)
        return np.where(inside, (self.loads[row, 2] + distance).view(np.int64), -1)

    def address_of(self, offset: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Virtual addresses of file offsets, uint64[n]; 0 for what no segment maps."""
        out = np.zeros(len(offset), np.uint64)
        for address, size, start in self.loads:
            distance = offset.view(np.uint64) - start
            out = np.where(distance < size, address + distance, out)
        return out

    def in_memory(self, address: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Test which addresses a segment maps, from the file or as zeros after it, bool[n]."""
        rows = sorted(
            (s.address, s.memory_size) for s in self.skeleton.segments if s.type == Segment.PT_LOAD
        )
        return _within(np.array(rows, np.uint64).reshape(-1, 2), address)[0] >= 0

    def gather(
        self, offset: NDArray[np.int64], width: int
    ) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        """Read ``width`` bytes at each file offset: uint8[n, width], and whether all are within the
        file.

        A row with a negative offset, or that extends past the end of the file, is zero.
        """
        size = len(self.data)
        there = (offset >= 0) & (offset <= size - width)
        code = np.zeros((len(offset), width), np.uint8)
        if there.any():
            # Overlapping windows: one short copy per row instead of an index per byte.
            windows = np.lib.stride_tricks.as_strided(
                self.data, (size - width + 1, width), (1, 1), writeable=False
            )
            code[there] = windows[offset[there]]
        for row in np.flatnonzero(~there & (offset >= 0) & (offset < size)).tolist():
            tail = self.data[int(offset[row]) :]
            code[row, : len(tail)] = tail
        return code, there

    def word_at(self, offset: int) -> int:
        """Read the address-sized integer at a file offset. Raises InputError outside the file."""
        return self.order.integer(self.contents(offset, self.word, "word"))

    def contents(self, offset: int, size: int, what: str) -> NDArray[np.uint8]:
        """Read ``size`` bytes at a file offset, uint8[size]. Raises InputError outside the file."""
        if offset < 0 or size < 0 or offset + size > len(self.data):
            raise InputError(
                self.path,
                f"the {what} at {offset:#x} needs {size:#x} bytes, "
                f"but the file has only {len(self.data):#x}",
            )
        return self.data[offset : offset + size]

    def altered(self, changes: Iterable[Changes], *, old: bool = False) -> Elf:
        """Return this image in memory with Changes applied (or, with ``old``, reverted), in that
        order.

        The pages are private copies: nothing reaches the file. Offsets must be inside it.
        """
        data = self._private()
        for block in changes:
            block.put(data, old=old)
        return replace(self, data=data)

    def _private(self) -> NDArray[np.uint8]:
        """Make a writable copy; of a mapped file only the pages written to are copied."""
        if not self.mapped:
            return self.data.copy()
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return np.frombuffer(mmap.mmap(fd, len(self.data), access=mmap.ACCESS_COPY), np.uint8)
        except (OSError, ValueError):
            raise InputError(self.path, "the file changed while it was being read") from None
        finally:
            os.close(fd)


def _within(
    ranges: NDArray[np.uint64], address: NDArray[np.uint64]
) -> tuple[NDArray[np.intp], NDArray[np.uint64]]:
    """Row of the range (start, size, ...; sorted) that holds each address, -1 for none, and the
    offset in it."""
    if not len(ranges):
        return np.full(len(address), -1, np.intp), np.zeros(len(address), np.uint64)
    row = np.searchsorted(ranges[:, 0], address, side="right") - 1
    distance = address - ranges[np.maximum(row, 0), 0]
    inside = (row >= 0) & (distance < ranges[np.maximum(row, 0), 1])
    return np.where(inside, row, -1), distance
