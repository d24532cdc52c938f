# SPDX-License-Identifier: MIT
"""The tracer in a program's copy, as it stands in the memory of a process, and the libraries that
it is connected with (stubs/runtime/libraries.c).

    stub_config.libraries -> | struct library | struct library | ... | 0
    hooks, biases            | of each, by its row                   |
    process.header        -> | trace_header | trace_library | ... | 0
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ftpatch.arch import Arch, arch_of
from ftpatch.errors import InputError, UsageError
from ftpatch.image.injected import CONFIG_MAGIC, image_id
from ftpatch.inject.library_tables import FOUND, ROOM, TOLD, Library, told_length
from ftpatch.inject.lookups import LOOKUPS_NAME, answers, lookups_entries
from ftpatch.inject.runtime import code_span, tracer_of
from ftpatch.inject.stub import Stub
from ftpatch.layout import constants, offset_of, pack, structure
from ftpatch.process.areas import Area
from ftpatch.process.loaded import Loaded
from ftpatch.process.maps import read_maps
from ftpatch.process.memory_target import MemoryTarget
from ftpatch.process.unwinders import LOOKUPS, Unwinders, find_unwinders
from ftpatch.process.walks import put_slots
from ftpatch.tracer.plan import Tracing

__all__ = ["Runtime"]

MAX_LIBRARIES: Final = 64
"""Libraries that it can connect (MOST of stubs/runtime/libraries.c)."""
TABLE: Final = 1 << 16
"""Bytes to map for a table of its own."""
WORD: Final = 8
PAGE: Final = 4096
FUNC_BITS: Final = constants["FUNC_BITS"]
FULL: Final = "too many libraries for one trace"


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """``bias`` of the program, ``base`` of its events; ``entry``: address of what libraries call;
    ``is_ready``: it records; ``has_begun``: it was started, by what ``start`` is the address
    of; ``is_attached``: it was brought in, and is in memory of no image."""

    target: MemoryTarget
    arch: Arch
    bias: int
    base: int
    entry: int
    start: int
    has_begun: bool
    is_ready: bool
    is_attached: bool
    _stub: Stub
    _shift: int
    _end: int
    _config: int
    _header: int
    _hooks: int
    _biases: int

    @classmethod
    def of(cls, program: Loaded, target: MemoryTarget, tracing: Tracing, at: int) -> Runtime:
        """Find the one whose struct stub_config is at an address. Raises InputError if none is
        there."""
        skeleton = program.file.elf.skeleton
        arch = arch_of(skeleton.machine, skeleton.elf_class)
        if arch is None:
            raise InputError(program.path, "no tracer is in the program")
        _, stub = tracer_of(tracing.tracer, arch.name, arguments=tracing.arguments)
        layout = structure("stub_config", arch.name)
        held = target.read(at, layout.itemsize) or bytes(layout.itemsize)
        config = np.frombuffer(held, layout)[0]
        if not held.startswith(CONFIG_MAGIC):
            raise InputError(program.path, "no tracer is in the program")
        start = stub.address("ftpatch_config") or 0
        shift = at - start

        def place(name: str) -> int:
            found = stub.address(name)
            if found is None:
                raise InputError(stub.path, f"the stub has no {name}")
            return found + shift

        layout = structure("process", arch.name)
        held = target.read(place("process"), layout.itemsize) or bytes(layout.itemsize)
        state = np.frombuffer(held, layout)[0]
        base, end = code_span(program.file)
        return cls(
            target=target,
            arch=arch,
            bias=program.bias,
            base=int(config["base"]),
            entry=place("trace_entry"),
            start=place("trace_start"),
            has_begun=bool(state["pid"]),
            is_ready=bool(state["ready"] and state["header"]),
            is_attached=bool(int(config["flags"]) & constants["TRACE_ATTACHED"]),
            _stub=stub,
            _shift=shift,
            _end=(end - base + PAGE - 1) // PAGE * PAGE,
            _config=start + shift,
            _header=int(state["header"]),
            _hooks=place("hooks"),
            _biases=place("biases"),
        )

    def meet(self, loaded: Sequence[Loaded]) -> Unwinders | None:
        """Let the unwinders among a process's images ask it; None if they need not. Raises
        InputError."""
        if not (self.is_attached and self._stub.address("return_to_handler") and self._looks):
            return None
        entries = lookups_entries(self._stub)
        there = {name: entries[name] + self._shift for name in LOOKUPS}
        found = find_unwinders(loaded, there)
        slots = [(one.address, one.old, there[one.name]) for one in found.slots]
        put_slots(self.target, [one for one in slots if one[1] != one[2]])
        return found

    def look_up(self, area: Area, table: int) -> None:
        """Let unwinders find the code in a library's area, whose .eh_frame_hdr is linked at
        ``table``, if they ask."""
        if not self._looks or not self.is_attached:
            return
        place = (self._stub.address(LOOKUPS_NAME) or 0) + self._shift
        at = place + offset_of("lookups", "count", self.arch.name)
        count = self.arch.order.integer(self._read(at, 4))
        if count < constants["LOOKED_UP"]:
            fields = {"low": area.text[0], "high": area.text[1], "table": table + area.shift}
            own = pack("looked_up", self.arch.order, **fields)
            areas = place + offset_of("lookups", "area", self.arch.name)
            self._write(areas + count * len(own), own)
            self._write(at, self.arch.order.packed(count + 1, 4))

    @property
    def _looks(self) -> bool:
        return answers(self._stub)

    def row_of(self, one: Loaded, biases: set[int]) -> tuple[int, Library]:
        """The row for a library, and what is to stand there: that of the same file if it was opened
        before and is not at any of ``biases`` now; else a new one. Raises UsageError if there is no
        room."""
        path, own = bytes(one.path), image_id(one.file)
        rows = self._rows()
        end = self._end
        for row, (_, library) in enumerate(rows):
            end = max(end, library.start + library.size)
            same = library.path == path and library.image_id == own
            bias = self._word(self._biases + WORD * row)
            if same and (bias == one.bias or bias not in biases):
                return row, replace(library, place=self._word(self._hooks + WORD * row))
        low, high = code_span(one.file)
        size = (high - low + PAGE - 1) // PAGE * PAGE
        told = sum(told_length(library.path) for _, library in rows)
        if (
            len(rows) >= MAX_LIBRARIES
            or told + told_length(path) > ROOM
            or end + size >= 1 << FUNC_BITS
        ):
            raise UsageError(one.path, FULL, "trace fewer libraries")
        return len(rows), Library(
            path=path, image_id=own, start=end, size=size, base=low, dynamic=0, place=0, sites=0
        )

    def connect(self, row: int, library: Library, mapped: Callable[[int], int]) -> None:
        """Let the runtime know a library: forked children tell of it in their files. ``mapped``
        maps so many bytes in the process. Raises InputError."""
        rows = self._rows()
        table = self._table
        if not self._is_own(table):
            table = mapped(TABLE)
            held = b"".join(self._read(at, self._size(at)) for at, _ in rows)
            self._write(table, held)
            self._write(
                self._config + offset_of("stub_config", "libraries", self.arch.name),
                self.arch.order.packed((table - self.bias) % (1 << 64), WORD),
            )
            rows = self._rows()
        at = rows[row][0] if row < len(rows) else table + sum(self._size(at) for at, _ in rows)
        self._write(at, library.found(self.arch.order) + library.told(self.arch.order))
        bias = self.arch.order.packed(library.bias % (1 << 64), WORD)
        self._write(self._biases + WORD * row, bias)
        self._write(self._hooks + WORD * row, self.arch.order.packed(library.place, WORD))
        start = self._header + offset_of("trace_header", "libraries")
        at = start
        for at, known in self._told(start):
            if (known.path, known.start) == (library.path, library.start):
                break
            at += told_length(known.path)
        if at + told_length(library.path) <= start + ROOM:
            self._write(at, library.told(self.arch.order))

    @property
    def _table(self) -> int:
        at = self._config + offset_of("stub_config", "libraries", self.arch.name)
        held = self._word(at)
        return (held + self.bias) % (1 << 64) if held else 0

    def _rows(self) -> list[tuple[int, Library]]:
        """Address of each struct library, and what its trace_library says."""
        return list(self._listed(self._table, FOUND)) if self._table else []

    def _told(self, start: int) -> Iterator[tuple[int, Library]]:
        return self._listed(start, 0)

    def _listed(self, at: int, before: int) -> Iterator[tuple[int, Library]]:
        layout = structure("trace_library", self.arch.name)
        for _ in range(MAX_LIBRARIES):
            told = np.frombuffer(self._read(at + before, layout.itemsize), layout)[0]
            length = int(told["length"])
            if length <= TOLD or length > ROOM:
                return
            path = self._read(at + before + TOLD, length - TOLD).split(b"\0")[0]
            yield (
                at,
                Library(
                    path=path,
                    image_id=bytes(told["image_id"]),
                    start=int(told["start"]),
                    size=int(told["size"]),
                    base=int(told["base"]),
                    dynamic=0,
                    place=0,
                    sites=0,
                ),
            )
            at += before + length

    def _size(self, at: int) -> int:
        return FOUND + self.arch.order.integer(self._read(at + FOUND, 4))

    def _is_own(self, table: int) -> bool:
        maps = read_maps(self.target.process)
        return any(one.start <= table < one.end and one.writable and not one.inode for one in maps)

    def _word(self, at: int) -> int:
        return self.arch.order.integer(self._read(at, WORD))

    def _read(self, at: int, size: int) -> bytes:
        held = self.target.read(at, size)
        if held is None:
            raise InputError(None, f"{self.target.name}: {at:#x} is not mapped")
        return held

    def _write(self, at: int, data: bytes) -> None:
        self.target.write(at, data)
