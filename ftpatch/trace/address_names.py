# SPDX-License-Identifier: MIT
"""Names of addresses in processes, as ``%pS`` prints them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath

import numpy as np
from numpy.typing import NDArray

from ftpatch.trace.hits import Point
from ftpatch.trace.source import Recording
from ftpatch.trace.symbolize import Program

__all__ = ["Places"]

MAX_ADDRESS = 1 << 32
"""Upper bound of the link addresses of a program without an image."""
WHOLE = (1 << 64) - 1


class Places:
    """Names of addresses, each looked up once: ``FUNC+OFFSET/SIZE`` as ``%pS`` prints them. Without
    a symbol it is ``PROGRAM+OFFSET``, or the bare address if the program was not relocated; in a
    library, ``LIBRARY+OFFSET`` by link address. ``named`` makes these names printable, ``clean``
    other texts and, where that is None, names too."""

    def __init__(
        self,
        recording: Recording,
        clean: Callable[[str], str],
        named: Callable[[str], str] | None = None,
    ) -> None:
        self._recording, self._clean, self._named = recording, clean, named or clean
        self._known: dict[tuple[int, int, str], str] = {}

    def shown(self, text: str) -> str:
        """Make any other text of the trace printable, like the names."""
        return self._clean(text)

    def linked(self, file: int, address: int) -> str:
        """Name a link address."""
        return self._one(file, (address + self._recording.headers[file].bias) & WHOLE, "place")

    def point(self, file: int, point: Point) -> str:
        """Name the place of a point; one of a library as those of modules are printed."""
        if point.library and point.symbol is not None:
            name = f"{self._program(file).called(point.symbol)}+{point.offset:#x}"
            return self._clean(f"{name} [{PurePath(point.library).name}]")
        return self.linked(file, point.ip)

    def callers(self, file: int, addresses: NDArray[np.uint64]) -> list[str]:
        """Name the calls that return to these memory addresses."""
        return [self._one(file, at, "caller") for at in addresses.tolist()]

    def calling(self, file: int, addresses: NDArray[np.uint64]) -> list[str]:
        """Name the functions around calls that return to these memory addresses, without
        offsets."""
        return [self._one(file, at, "calling") for at in addresses.tolist()]

    def symbols(self, file: int, addresses: NDArray[np.uint64]) -> list[str]:
        """Name memory addresses of functions or data."""
        return [self._one(file, at, "symbol") for at in addresses.tolist()]

    def function(self, file: int, point: Point) -> tuple[str, int]:
        """Return the function a point is in, and its link address."""
        program = self._program(file)
        (name,), starts, known = program.lookup(np.array([point.ip], np.uint64))
        start = int(starts[0]) if known[0] else point.ip - point.offset
        symbol = point.symbol
        if symbol is not None:
            return self._named(program.called(symbol)), start
        return (self._named(name) if known[0] else self.linked(file, point.ip)), start

    def source(self, file: int, point: Point) -> str:
        """Return a point's source file and line, empty if unknown."""
        lines = self._program(file).lines
        (place,) = lines.places(np.array([point.ip], np.uint64)) if lines else ("",)
        return self._clean(place)

    def _program(self, file: int) -> Program:
        return self._recording.program_of(file)

    def _one(self, file: int, address: int, what: str) -> str:
        key = file, address, what
        if key not in self._known:
            self._known[key] = self._named(self._name(*key))
        return self._known[key]

    def _name(self, file: int, address: int, what: str) -> str:
        program, header = self._program(file), self._recording.headers[file]
        at = (address - header.bias) & WHOLE
        looked = (at - (what in ("caller", "calling"))) & WHOLE
        (name,), starts, known = program.lookup(np.array([looked], np.uint64))
        if known[0]:
            start = int(starts[0])
            return name if what == "calling" else f"{name}+{at - start:#x}{_size(program, start)}"
        inside = at < MAX_ADDRESS
        if program.image is not None:
            inside = bool(program.image.elf.in_memory(np.array([looked], np.uint64))[0])
        if inside and what == "symbol":
            name = _data(program, at)
            if name:
                return name
        for one in () if inside and program.image else header.objects:
            if (address - one.bias - one.base) & WHOLE < one.size:
                return f"{PurePath(one.path).name}+{(address - one.bias) & WHOLE:#x}"
        moved = inside and header.bias and header.image
        return f"{PurePath(header.image).name}+{at:#x}" if moved else hex(address)


def _size(program: Program, start: int) -> str:
    """``/0x40``, for a symbol with a size."""
    size = program.size(start)
    return f"/{size:#x}" if size else ""


def _data(program: Program, address: int) -> str:
    """Name the variable at an address, if there is one with a size."""
    if program.image is None or not len(program.image.kallsyms.start):
        return ""
    kallsyms, at = program.image.kallsyms, np.array([address], np.uint64)
    group = kallsyms.groups_of(at)[0]
    start = int(kallsyms.start[group])
    size = _size(program, start)
    if group < 0 or not size or address >= int(kallsyms.ends[group]):
        return ""
    ((name, _, _),) = kallsyms.lookup(at)
    return f"{program.called(name)}+{address - start:#x}{size}"
