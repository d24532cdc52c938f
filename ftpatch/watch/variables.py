# SPDX-License-Identifier: MIT
"""A program's variables by name: where to watch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.number_types import TYPES
from ftpatch.core.token import Token
from ftpatch.debuginfo.source_names import SourceName, splits
from ftpatch.elf.headers import Section, Segment
from ftpatch.elf.symbols import Symbols
from ftpatch.errors import InputError, UsageError
from ftpatch.image import Image
from ftpatch.names.demangle import demangled
from ftpatch.names.named_symbols import DATA, Named
from ftpatch.names.suggest import any_of, meant
from ftpatch.watch import Request, Watch
from ftpatch.watch.grammar import ADDRESS, CLEAR, EVERY, LENGTHS
from ftpatch.watch.variable_parts import VariableParts

__all__ = ["Variables"]

CODE = (Symbols.STT_FUNC, Symbols.STT_GNU_IFUNC)
NO_NAMES = (Symbols.STT_SECTION, Symbols.STT_FILE)
GLOBAL = 1
"""STB_GLOBAL."""


class Variables:
    """Finds variables in the symbol table, or in the dynamic one if it is the only one; their
    members and elements in the debug information."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._members = VariableParts(image)
        self._parts: dict[str, tuple[int, int]] = {}
        self._types: dict[str, str] = {}

    def asked(self, request: Request) -> Request:
        """A request with its symbol as ``spelled``. Raises UsageError for a part of a variable that
        no breakpoint covers, unless the request says which bytes."""
        symbol = self.spelled(request.symbol)
        if symbol in self._parts and request.length is None and not request.offset:
            address, size = self._parts[symbol]
            fits = [n for n in LENGTHS if n <= size and not address % n]
            if size not in fits and request.type != CLEAR:
                odd = f", and stands at {address:#x}" if size in LENGTHS else ""
                some = f"watch {any_of(map(str, fits))} of them" if fits else "name an element"
                if fits:
                    some += f", as in {request.type.replace('-', '')}@{symbol}:{fits[-1]}"
                raise self._refuse(symbol, f"it has {size} bytes{odd}", some)
        return replace(request, symbol=symbol)

    def spelled(self, text: str) -> str:
        """A name as in the symbol table, an address without leading zeros. Raises UsageError for a
        name that does not exist, or is ambiguous."""
        if ADDRESS.fullmatch(text):
            return hex(int(text, 16))
        if text == EVERY or len(self._rows(text)):
            return text
        found = Named(self._image.symbols, DATA).find(text)
        if not found and (names := splits(Token.of(text))):
            return self._part(text, names)
        if not found:
            raise self._missing(text)
        if len({self.resolve(name)[0] for name in found}) > 1:
            reason = f"ambiguous variable name: {', '.join(sorted(found)[:4])}"
            raise self._refuse(text, reason, "use one of these")
        return found[0]

    def resolve(self, name: str) -> tuple[int, int]:
        """Link address and size (bytes, 0: unknown) of a variable. If several have the name, as
        `static` ones may, the global one is taken.

        Raises UsageError for what does not exist, or is not a variable of this program.
        """
        if ADDRESS.fullmatch(name):
            return self._at(name, int(name, 16)), 0
        if name in self._parts:
            return self._parts[name]
        symbols, rows = self._image.symbols, self._rows(name)
        if not len(rows):
            raise self._missing(name)
        kinds = set(symbols.type[rows].tolist())
        if kinds <= set(CODE):
            raise self._refuse(name, "a function, not a variable", "use `ftpatch probe`")
        if kinds == {Symbols.STT_TLS}:
            reason = "thread-local: its address is known only at run time"
            raise self._refuse(name, reason, "watch a shared variable")
        rows = rows[~np.isin(symbols.type[rows], [*CODE, Symbols.STT_TLS])]
        row = self._one(name, rows)
        address, size = int(symbols.value[row]), int(symbols.size[row])
        place = np.array([address], np.uint64)
        absolute = symbols.section[row] == Symbols.SHN_ABS and not symbols.ranked  # all of kallsyms
        if absolute or not self._image.elf.in_memory(place)[0]:
            raise self._refuse(name, "an absolute symbol, not an address", "see `nm`")
        if symbols.type[row] != Symbols.STT_OBJECT and self._is_code(address):
            raise self._refuse(name, "it is code", "use `ftpatch probe`")
        return address, size

    def size(self, watch: Watch) -> int:
        """Size of a watch's symbol in bytes, 0: unknown."""
        symbols, rows = self._image.symbols, self._rows(watch.symbol)
        if not len(rows) and splits(Token.of(watch.symbol)):
            if watch.usual and not watch.offset:
                return watch.length  # ``asked`` has seen to that
            with suppress(UsageError, InputError):
                return self.resolve(self.spelled(watch.symbol))[1]
        rows = rows[symbols.value[rows] == watch.address - watch.offset]
        return int(symbols.size[rows].max(initial=0))

    def number_type(self, name: str, length: int) -> str:
        """The type of a number of ``length`` bytes that is all of a variable, as debug information
        tells it; empty if it does not, or if that is no such number."""
        if ADDRESS.fullmatch(name):
            return ""
        type = self._types.get(name, "")
        if name not in self._parts:
            with suppress(InputError):
                type = self._members.type(demangled(name), self.resolve(name)[0])
        return type if type and TYPES[type] == length else ""

    def never_written(self, address: int) -> bool:
        """Return whether it is in a read-only segment."""
        loads = (s for s in self._image.elf.skeleton.segments if s.type == Segment.PT_LOAD)
        around = [s for s in loads if s.address <= address < s.address + s.memory_size]
        return bool(around) and not any(s.flags & Segment.PF_W for s in around)

    def has(self, address: int, length: int) -> bool:
        """Return whether all of these bytes belong to the program."""
        ends = np.array([address, address + length - 1], np.uint64)
        return bool(self._image.elf.in_memory(ends).all())

    def _part(self, text: str, names: Sequence[SourceName]) -> str:
        """Find a part of a variable: the longest of ``names`` that exists is the variable's."""
        named = Named(self._image.symbols, DATA)
        for name in names:
            base = name.name.text
            if len(self._rows(base)) or named.find(base):
                if (source := demangled(base)) != base:
                    return self.spelled(source + text[len(base) :])
                symbol = self.spelled(base)
                address, _ = self.resolve(symbol)
                place, size, self._types[text] = self._members.find(name, address)
                self._parts[text] = place, size
                return text
        raise self._missing(names[-1].name.text)

    def _one(self, name: str, rows: NDArray[np.intp]) -> int:
        symbols = self._image.symbols
        if len(np.unique(symbols.value[rows])) > 1:
            known = rows[symbols.bind[rows] == GLOBAL]
            if len(np.unique(symbols.value[known])) != 1:
                places = ", ".join(map(hex, np.unique(symbols.value[rows]).tolist()[:4]))
                raise self._refuse(name, f"ambiguous variable name: {places}")
            rows = known
        return int(rows[0])

    def _rows(self, name: str) -> NDArray[np.intp]:
        symbols = self._image.symbols
        rows = symbols.rows_named(name)
        return rows[~np.isin(symbols.type[rows], NO_NAMES)]

    def _at(self, name: str, address: int) -> int:
        if not self.has(address, 1):
            raise self._refuse(name, "not mapped in the program", "use a link address")
        if self._is_code(address):
            raise self._refuse(name, "it is code", "use `ftpatch probe`")
        return address

    def _missing(self, name: str) -> UsageError:
        image = self._image
        for table in (image.symbols, image.dynamic_symbols):
            if len(table.rows_named(name, defined=False)) or Named(table, DATA, defined=False).find(
                name
            ):
                reason = "defined in a library, not in this program"
                return self._refuse(name, reason, "watch a variable that the program defines")
        stripped = all(one.type != Section.SHT_SYMTAB for one in image.elf.sections)
        hint = "the program is stripped; use an address" if stripped else "see `nm -C`"
        like = Named(image.symbols, DATA).like(name)
        return self._refuse(name, "no such symbol", meant(like, hint))

    def _refuse(self, name: str, reason: str, hint: str = "") -> UsageError:
        return UsageError(self._image.path, f"{name}: {reason}", hint)

    def _is_code(self, address: int) -> bool:
        text = self._image.elf.text.tolist()
        return any(start <= address < start + size for start, size in text)
