# SPDX-License-Identifier: MIT
"""Functions by name: those of the symbol tables, imported ones, and C++ names as in the source."""

from __future__ import annotations

from functools import cached_property

from ftpatch.errors import UsageError
from ftpatch.image import Image
from ftpatch.names.demangle import demangled
from ftpatch.names.named_symbols import FUNCTIONS, Named
from ftpatch.names.plt import PLT, plt_symbols
from ftpatch.names.suggest import meant

__all__ = ["FunctionNames"]

TWICE = ("setjmp", "sigsetjmp", "savectx", "vfork", "getcontext")
"""Functions that can return more than once, without underscores: special_function_p() of
gcc/calls.cc."""


class FunctionNames:
    """The names of an image's functions."""

    def __init__(self, image: Image) -> None:
        self._path = image.path
        self.tables = (
            (image.symbols, ""),
            (image.dynamic_symbols, ""),
            (plt_symbols(image), PLT),
        )
        """Where names are looked for, and what stands behind them there."""

    def address(self, name: str) -> int:
        """Link address of a function, by its symbol's name; of an imported one, that of its PLT
        entry. Raises UsageError if the name is unknown or ambiguous."""
        for symbols, behind in self.tables:
            rows = symbols.rows_named(name.removesuffix(behind) + behind)
            found = sorted({int(symbols.value[r]) for r in rows if symbols.type[r] in FUNCTIONS})
            if len(found) > 1:
                reason = f"symbol {name!r} is ambiguous ({len(found)} definitions)"
                raise UsageError(self._path, reason, f"use one of {', '.join(map(hex, found))}")
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
            if len(symbols.rows_named(name.removesuffix(behind) + behind)):
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

    def _missing(self, name: str) -> UsageError:
        tables = self.tables
        for table, _ in tables[:2]:
            if len(table.rows_named(name)):
                return UsageError(self._path, f"{name!r} is not a function", "`ftpatch watch` it")
            if len(table.rows_named(name, defined=False)):
                reason = f"{name!r} is imported and has no PLT entry"
                return UsageError(self._path, reason, "probe its caller")
        named = (Named(table, FUNCTIONS) for table, _ in tables)
        like = (one for table in named for one in table.like(name))
        hint = meant(like, "use its address: 0x...")
        return UsageError(self._path, f"no such function {name!r}", hint)
