# SPDX-License-Identifier: MIT
"""The images in a process's memory: the program, its libraries, what it loaded later.

An image is opened from its file, which may have been deleted or replaced since: the kernel still
has the one that is mapped. Its code is then read from memory, in place of the file's:

    file     | headers | text  | data | symbols ...
    memory   | headers | text' | data' | .bss
    image    | headers | text' | data | symbols ...

Data stays the file's, since the dynamic linker has relocated that in memory, and a table of call
sites is read before that. Code is read when it is asked for: most libraries have no sites.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import arch_of
from ftpatch.elf.dynamic import Tag, dynamic_string, dynamic_tags
from ftpatch.elf.headers import Segment, Skeleton
from ftpatch.errors import FtpatchError, InputError
from ftpatch.ftrace.filter import Selection, expand, linked, select_sites
from ftpatch.ftrace.site_code import written
from ftpatch.ftrace.sites import Sites, read_sites, reread
from ftpatch.image import Image, open_image
from ftpatch.process.maps import Mapping, read_maps
from ftpatch.process.memory import Memory, opened_memory
from ftpatch.process.own_code import OwnCode, OwnTracer
from ftpatch.process.process import Process

__all__ = ["Loaded", "loaded_images"]

HEAD = 4
"""Bytes that tell an ELF file."""


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """An image in the memory of ``process``. ``file``: as its file has it; ``bias``: its load
    address less its link address; ``place``: where the file can be opened while the process runs;
    ``deleted``: it has no name any more, or another one has that; ``own``: what is ftpatch's own in
    all images. What is read from memory is as it was when it was first asked for."""

    process: Process
    mappings: list[Mapping] = field(repr=False)
    file: Image = field(repr=False)
    bias: int
    place: Path = field(repr=False)
    own: OwnCode = field(repr=False)
    deleted: bool = False

    @property
    def path(self) -> Path:
        """The file's path, as the process knows it."""
        return self.file.path

    @property
    def names(self) -> set[str]:
        """Its names: its path, its file's name, and the name that it is needed by."""
        soname = dynamic_tags(self.file.elf).get(Tag.SONAME)
        needed = b"" if soname is None else dynamic_string(self.file.elf, soname)
        return {str(self.path), self.path.name, os.fsdecode(needed)} - {""}

    @property
    def address(self) -> int:
        """Address at which it was loaded: its first page."""
        loads = self.file.elf.loads
        first = int(loads[0, 0]) if len(loads) else 0
        return self.above(first & -mmap.PAGESIZE)

    def above(self, address: int) -> int:
        """Turn an address of the file into one of the process."""
        return (address + self.bias) % (1 << 8 * self.file.elf.word)

    @property
    def image(self) -> Image:
        """The image with the code that is in memory. Raises InputError."""
        return self._held[0]

    @property
    def there(self) -> NDArray[np.bool_]:
        """Mask of the file's bytes that are code and were read from memory, bool[size]. Raises
        InputError."""
        return self._held[1]

    @cached_property
    def _held(self) -> tuple[Image, NDArray[np.bool_]]:
        with opened_memory(self.process, self.mappings) as memory:
            if not _is_there(memory, self.file, self.bias):
                raise InputError(self.path, f"{self.process}: it is not loaded any more")
            data, there = _code(memory, self.file, self.bias)
        self.process.require_alive()
        return replace(self.file, elf=replace(self.file.elf, data=data)), there

    @cached_property
    def span(self) -> tuple[int, int]:
        """Bounds of its code in memory."""
        code = [
            (segment.address, segment.address + segment.memory_size)
            for segment in self.file.elf.skeleton.segments
            if segment.type == Segment.PT_LOAD and segment.flags & Segment.PF_X
        ]
        low, high = min(low for low, _ in code), max(high for _, high in code)
        return self.bias + low, self.bias + high

    @cached_property
    def sites_of_file(self) -> Sites:
        """The sites as the file has them; none if it has no table. Raises InputError."""
        return read_sites(self.file, bare=True)

    @cached_property
    def sites(self) -> Sites:
        """The same sites as they stand in memory; callees without a name are at addresses of the
        process. Raises InputError."""
        if not self.sites_of_file.table_name:
            return self.sites_of_file
        return self.named(reread(self.sites_of_file, self.image))

    def named(self, sites: Sites) -> Sites:
        """The sites with addresses of the process for the names of callees that have none, and
        with the name of ftpatch's own tracer."""
        targets = sites.targets
        own = self.calls_own(targets.addr).tolist()
        rows = zip(targets.name, targets.addr.tolist(), own, strict=True)
        name = tuple(
            self._named(at, is_own=is_own) if name == hex(at) else name for name, at, is_own in rows
        )
        return replace(sites, targets=replace(targets, name=name))

    def _named(self, address: int, *, is_own: bool) -> str:
        if is_own and self.tracer is not None:
            return f"ftpatch ({self.tracer.name})"
        return hex(self.above(address))

    @property
    def tracer(self) -> OwnTracer | None:
        """The tracer that ftpatch has put into the process, if any."""
        return self.own.tracer

    def calls_own(self, addresses: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Test which link addresses are in that tracer, bool[n]."""
        if self.tracer is None:
            return np.zeros(len(addresses), bool)
        return self.tracer.holds(addresses + np.uint64(self.bias % (1 << 64)))

    def select(self, selection: Selection, missing: set[str]) -> NDArray[np.bool_]:
        """Mask of the sites that are selected, bool[n], by addresses of the process. Filters that
        match none are put into ``missing``. Raises UsageError and InputError."""
        here, was = linked(expand(selection), self.bias)
        unmatched = set[str]()
        mask = select_sites(self.sites, here, unmatched)
        missing |= {was.get(text, text) for text in unmatched}
        return mask

    @cached_property
    def differing(self) -> NDArray[np.bool_]:
        """Test which sites hold other code in memory than in the file, bool[n]."""
        now, before = self.sites, self.sites_of_file
        if not len(now):
            return np.zeros(0, bool)
        column = np.arange(now.code.shape[1])
        wide = column < np.maximum(now.width, before.width)[:, None]
        wide &= (now.offset >= 0)[:, None]
        at = np.where(wide, now.offset[:, None] + column, 0)
        return np.asarray((self._altered[at] & wide).any(axis=1))

    @property
    def changed(self) -> NDArray[np.int64]:
        """Offsets in the file of all code that is another in memory, int64[m], ascending; what the
        dynamic linker relocates is not compared."""
        return np.flatnonzero(self._altered).astype(np.int64)

    @cached_property
    def _altered(self) -> NDArray[np.bool_]:
        altered: NDArray[np.bool_] = (self.image.data != self.file.data) & self.there
        relocations, elf = self.file.relocations, self.file.elf
        arch = arch_of(elf.skeleton.machine, elf.skeleton.elf_class)
        if arch is None or not altered.any():
            return altered
        size = written(self.file, arch)
        offset = elf.offset_of(relocations.place)
        for at in range(elf.word):
            rows = (size > at) & (offset >= 0) & (offset < len(altered) - at)
            altered[offset[rows] + at] = False
        return altered


def loaded_images(process: Process) -> tuple[list[Loaded], list[FtpatchError]]:
    """The images in a process's memory, the program first, and what cannot be read as one. Raises
    InputError for a process that ended, or may not be read."""
    mappings = read_maps(process)
    files: dict[tuple[bytes, int], list[Mapping]] = defaultdict(list)
    for mapping in mappings:
        if mapping.inode:
            files[mapping.file].append(mapping)
    found: list[Loaded] = []
    errors: list[FtpatchError] = []
    own = OwnCode(process)
    with opened_memory(process, mappings) as memory:
        for parts in files.values():
            if not any(part.executable for part in parts):
                continue
            try:
                found_at = _file(process, parts)
                if found_at is not None:
                    file, place = found_at
                    found += [
                        Loaded(
                            process=process,
                            mappings=mappings,
                            file=file,
                            bias=bias,
                            place=place,
                            own=own,
                            deleted=parts[0].deleted,
                        )
                        for bias in _biases(memory, file, parts)
                    ]
            except FtpatchError as error:
                errors.append(error)
    process.require_alive()
    program = _program(process)
    return sorted(found, key=lambda one: _key(one, program)), errors


def _program(process: Process) -> str:
    try:
        return str((process.place / "exe").readlink())
    except OSError:
        return ""


def _key(loaded: Loaded, program: str) -> tuple[bool, int]:
    name = str(loaded.path)
    return program not in (name, f"{name} (deleted)"), loaded.bias


def _file(process: Process, parts: list[Mapping]) -> tuple[Image, Path] | None:
    """Open a mapped file, whatever its name is now, and where that was; None for what is no ELF
    file."""
    path = Path(os.fsdecode(parts[0].path))
    for place in _names(process, parts):
        try:
            fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise InputError(path, f"cannot read: {error.strerror}") from None
            continue
        try:
            if os.fstat(fd).st_ino != parts[0].inode:
                continue
            try:
                if os.pread(fd, HEAD, 0) != b"\x7fELF":
                    return None
            except OSError:  # a device
                return None
            image = open_image(Path(f"/proc/self/fd/{fd}"))
        except FtpatchError as error:
            raise type(error)(path, error.reason, error.hint) from None
        finally:
            os.close(fd)
        # No file that has this path now is read in its place.
        return replace(image, elf=replace(image.elf, path=path, mapped=False)), place
    if not path.is_absolute() or path.is_relative_to("/dev"):
        return None  # [heap], memfd, shared memory
    raise InputError(
        path, "the mapped file has been deleted or replaced", "run as root, which can open it"
    )


def _names(process: Process, parts: Iterable[Mapping]) -> Iterator[Path]:
    """Places at which a mapped file may be opened."""
    parts = list(parts)
    for part in parts:
        yield process.place / "map_files" / f"{part.start:x}-{part.end:x}"
    yield process.place / "exe"
    # In the process's own root, which may be a container's.
    yield Path(os.fsdecode(os.fsencode(process.place / "root") + parts[0].path))


def _biases(memory: Memory, file: Image, parts: list[Mapping]) -> list[int]:
    """Where a file is loaded; a library is there once for each namespace that loaded it."""
    biases = {
        part.start - part.offset - (segment.address - segment.offset)
        for part in parts
        for segment in _loads(file)
        if bool(segment.flags & Segment.PF_X) == part.executable
        and segment.offset & ~0xFFF <= part.offset < segment.offset + segment.size
    }
    if file.elf.skeleton.type == Skeleton.ET_EXEC:
        biases &= {0}
    return [bias for bias in sorted(biases) if _is_there(memory, file, bias)]


def _loads(file: Image) -> list[Segment]:
    return [s for s in file.elf.skeleton.segments if s.type == Segment.PT_LOAD]


def _is_there(memory: Memory, file: Image, bias: int) -> bool:
    """Whether the file's headers stand where they would be with this bias."""
    first = next((s for s in _loads(file) if s.offset == 0), None)
    if first is None:
        return True
    size = min(first.size, 64)
    held, there = memory.read((bias + first.address) % (1 << 64), size)
    return bool(there.all() and np.array_equal(held, file.data[:size]))


def _code(memory: Memory, file: Image, bias: int) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """The file's bytes with the code that is in memory, and which bytes those are."""
    data = file.data.copy()
    there = np.zeros(len(data), bool)
    for offset, address, size in _parts(file):
        end = max(offset, min(offset + size, len(data)))
        held, read = memory.read((bias + address) % (1 << 64), end - offset)
        place = slice(offset, end)
        np.copyto(data[place], held, where=read)
        there[place] |= read
    return data, there


def _parts(file: Image) -> Iterator[tuple[int, int, int]]:
    """Code by (offset, address, size): executable segments whole, since sections may be gone; of a
    writable one, which has data as well, the executable sections."""
    for segment in _loads(file):
        if not segment.flags & Segment.PF_X:
            continue
        if not segment.flags & Segment.PF_W:
            yield segment.offset, segment.address, segment.size
            continue
        for address, size in file.elf.text.tolist():
            if segment.address <= address and address + size <= segment.address + segment.size:
                yield segment.offset + address - segment.address, address, size
