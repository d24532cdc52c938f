# SPDX-License-Identifier: MIT
"""Functions by name: those of the symbol tables, imported ones, and C++ names as in the source."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ftpatch.elf.symbol_versions import SymbolVersions, symbol_versions
from ftpatch.elf.symbols import Symbols
from ftpatch.errors import UsageError
from ftpatch.image import Image
from ftpatch.names.demangle import demangled
from ftpatch.names.named_symbols import FUNCTIONS, Named
from ftpatch.names.plt import PLT, plt_symbols
from ftpatch.names.suggest import SHOWN, any_of, meant

__all__ = ["FunctionNames"]

TWICE = ("setjmp", "sigsetjmp", "savectx", "vfork", "getcontext")
"""Functions that can return more than once, without underscores: special_function_p() of
gcc/calls.cc."""


class FunctionNames:
    """The names of an image's functions."""

    def __init__(self, image: Image) -> None:
        self._path, self._image = image.path, image
        self.tables = (
            (image.symbols, ""),
            (image.dynamic_symbols, ""),
            (plt_symbols(image), PLT),
        )
        """Where names are looked for, and what stands behind them there."""

    def address(self, name: str) -> int:
        """Link address of a function, by its symbol's name; of an imported one, that of its PLT
        entry; of several versions the default one, or that behind an ``@``. Raises UsageError if
        the name is unknown or ambiguous."""
        for symbols, behind in self.tables:
            rows = self._rows(symbols, behind, name)
            found = sorted({int(symbols.value[r]) for r in rows if symbols.type[r] in FUNCTIONS})
            if len(found) > 1:
                reason = f"symbol {name!r} is ambiguous ({len(found)} definitions)"
                versions = self._known_versions(symbols, rows, name)
                some = versions if len(versions) == len(found) else map(hex, found)
                raise UsageError(self._path, reason, f"use one of {', '.join(some)}")
            if found:
                return found[0]
        raise self._missing(name)

    def spelled(self, name: str) -> str:
        """Return a function's symbol name, for a name that may be the source's. Raises UsageError
        if it is unknown or ambiguous."""
        found = self.known(name)
        if found is None:
            raise self._missing(name)
        return found

    def known(self, name: str) -> str | None:
        """The same; None if it is unknown."""
        for symbols, behind in self.tables:
            if len(self._rows(symbols, behind, name)):
                return name
        for symbols, _ in self.tables:
            found = Named(symbols, FUNCTIONS).find(name.removesuffix(PLT))
            places = {self.address(one): one for one in reversed(found)}
            if len(places) > 1:
                several = ", ".join(f"{at:#x} {demangled(places[at])}" for at in sorted(places))
                reason = f"symbol {name!r} is ambiguous ({len(places)} definitions)"
                raise UsageError(self._path, reason, f"use the address of one: {several}")
            if places:
                return next(iter(places.values()))
        return None

    @cached_property
    def twice(self) -> frozenset[int]:
        """Link addresses of functions that can return more than once per call, as far as symbols
        tell."""
        return frozenset(
            int(symbols.value[row])
            for symbols, behind in self.tables
            for name in TWICE
            for front in ("", "_", "__")
            for row in symbols.rows_named(front + name + behind)
        )

    def _rows(self, symbols: Symbols, behind: str, name: str) -> NDArray[np.intp]:
        """The rows of a name, as the dynamic linker looks it up where there are versions."""
        rows = symbols.rows_named(name.removesuffix(behind) + behind)
        if not self._is_dynamic(symbols):
            return rows
        plain, sign, version = name.partition("@")
        if not len(rows) and sign:
            return self._versions.named(symbols.rows_named(plain), version)
        return self._versions.default(rows) if len(rows) > 1 else rows

    def _is_dynamic(self, symbols: Symbols) -> bool:
        """Test whether these are the dynamic symbols: a stripped image has no others."""
        dynamic = self.tables[1][0]
        return symbols is dynamic or (
            len(symbols) == len(dynamic) > 0 and np.array_equal(symbols.name, dynamic.name)
        )

    def _known_versions(self, symbols: Symbols, rows: NDArray[np.intp], name: str) -> list[str]:
        """The name with each version that it has."""
        if not self._is_dynamic(symbols):
            return []
        plain = name.partition("@")[0]
        found = [self._versions.name(row) for row in rows.tolist()]
        return [f"{plain}@{version}" for version in dict.fromkeys(found) if version]

    @cached_property
    def _versions(self) -> SymbolVersions:
        return symbol_versions(self._image.elf, len(self.tables[1][0]))

    def _missing(self, name: str) -> UsageError:
        tables = self.tables
        plain, sign, version = name.partition("@")
        dynamic = tables[1][0]
        rows = dynamic.rows_named(plain) if sign else np.zeros(0, np.intp)
        if versions := self._known_versions(dynamic, rows, name):
            reason = f"{plain!r} has no version {version.removeprefix('@')!r}"
            return UsageError(self._path, reason, f"use {any_of(versions[:SHOWN])}")
        for table, _ in tables[:2]:
            if len(table.rows_named(name)):
                return UsageError(self._path, f"{name!r} is not a function", "`ftpatch watch` it")
            if len(table.rows_named(name, defined=False)):
                reason = f"{name!r} is imported and has no PLT entry"
                return UsageError(self._path, reason, "probe its caller")
        named = [Named(table, FUNCTIONS) for table, _ in tables]
        clones = dict.fromkeys(one for table in named for one in table.clones(name))
        if clones:
            reason = f"{name!r} is there only as a clone, whose arguments may be others"
            return UsageError(self._path, reason, f"use {any_of([*clones][:SHOWN])}")
        text = plain if version.strip("@") not in ("", "plt") else name
        like = (one for table in named for one in table.like(text) if one != name)
        hint = meant(like, "use its address: 0x...")
        return UsageError(self._path, f"no such function {name!r}", hint)
