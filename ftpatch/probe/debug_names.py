# SPDX-License-Identifier: MIT
"""Definitions that name things of the source, completed by an image's debug information."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from ftpatch.arch.arguments import convention_of
from ftpatch.arch.registers import Registers, registers_of
from ftpatch.core.token import words_of
from ftpatch.debuginfo.debug_files import debug_file
from ftpatch.debuginfo.debug_info import DebugInfo
from ftpatch.debuginfo.declarations import Declarations
from ftpatch.debuginfo.dies import DIE, UnusableError, is_rust, number, origins_of
from ftpatch.debuginfo.named_values import NamedValues
from ftpatch.debuginfo.source_lines import SourceLines
from ftpatch.debuginfo.source_paths import is_path, path_of, symbols_for
from ftpatch.debuginfo.source_scopes import Scopes, functions_at, linkage_name
from ftpatch.debuginfo.value_frames import At
from ftpatch.elf.symbols import Symbols
from ftpatch.errors import InputError, UsageError
from ftpatch.names.demangle import demangled
from ftpatch.names.functions import Functions
from ftpatch.names.named_symbols import FUNCTIONS, Named
from ftpatch.names.parameters import called_name
from ftpatch.probe.definition import Definition
from ftpatch.probe.event_names import Pattern
from ftpatch.probe.grammar import parse_probe
from ftpatch.probe.named_fetches import NamedFetches

__all__ = ["DebugNames"]

MAX_ALIKE = 1 << 10
"""Symbols of one name whose debug information is looked at."""
MAX_TOLD = 4
"""Names in a hint."""


class DebugNames:
    """The debug information of one image, read where a definition asks for it."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions

    def spelled(self, name: str) -> str:
        """A function's symbol, for a name that may be the source's, also where only debug
        information tells it apart: Rust's generic functions and closures. Raises UsageError if it
        is unknown or ambiguous, and InputError."""
        names = self._functions.names
        try:
            return names.spelled(name)
        except UsageError:
            paths = self._paths(name) if "::" in name else {}
            found = [symbol for symbol, path in paths.items() if is_path(name, path)]
            if len(found) == 1:
                return found[0]
            told = sorted({paths[symbol] for symbol in found or paths})
            if len(told) < max(len(found), 2):
                raise
        reason = f"{name!r} is {len(found)} functions" if found else f"no such function {name!r}"
        some = " or ".join(told[:MAX_TOLD])
        raise UsageError(self._functions.image.path, reason, f"name {some}") from None

    def _paths(self, name: str) -> dict[str, str]:
        """The paths in Rust's source of all symbols that a name may mean."""
        image, out = self._functions.image, dict[str, str]()
        named = Named(image.symbols, FUNCTIONS)
        found = {one for text in symbols_for(name) for one in named.find(text)}
        if not 0 < len(found) <= MAX_ALIKE or debug_file(image.elf, image.path) is None:
            return out
        with self.info.readable():
            for symbol in sorted(found):
                rows = image.symbols.rows_named(symbol)
                dies = functions_at(self.info, int(image.symbols.value[rows[0]]))
                dies = [die for die in dies if linkage_name(die) == symbol and is_rust(die)]
                if len(dies) == 1:
                    out[symbol] = path_of(dies[0])
        return out

    def completed(self, definition: Definition) -> Definition:
        """A definition with a symbol or an address for its line, and with the fetches of its names.
        Raises UsageError, which names the offending token and its column; InputError for debug
        information that cannot be read."""
        if definition.line:
            definition = self._placed(definition)
        named: NamedFetches | None = None
        if definition.later:
            named = self.values(definition)
        elif definition.hoped:
            named = self._hoped(definition)
        else:
            return definition
        registers = self._registers
        again = parse_probe(
            definition.text,
            registers.names,
            arguments=len(registers.arguments),
            vectors=registers.vectors,
            pattern=Pattern.REGEX if definition.pattern else Pattern.GLOB,
            named=named,
        )
        return replace(
            definition,
            fetches=again.fetches,
            hist=again.hist,
            filter=again.filter,
            later=False,
            hoped=False,
        )

    def _hoped(self, definition: Definition) -> NamedFetches | None:
        """The names at its place; None if there is no debug information of that."""
        image = self._functions.image
        try:
            return self.values(definition) if debug_file(image.elf, image.path) else None
        except (InputError, UnusableError, UsageError):
            return None

    def function_lines(self, symbol: str) -> tuple[str, int, set[int]]:
        """The file of a function, the line that declares it, and its lines that have statements.
        Raises UsageError and InputError."""
        start = self._functions.names.address(symbol)
        start, end = self._functions.around(start) or (start, start + 1)
        with self.info.readable():
            dies = functions_at(self.info, start)
            unit = self.info.unit_at(start)
            if not dies or unit is None:
                reason = f"the debug information does not tell the function {symbol}"
                raise UsageError(self._functions.image.path, reason, "compile it with -g")
            rows = [row for row in self.lines.rows(unit) if start <= row.address < end]
            file = rows[0].file if rows else ""
            lines = {row.line for row in rows if row.statement and row.file == file and row.line}
            first = next(
                (n for one in origins_of(dies[0]) if (n := number(one, "DW_AT_decl_line", 0))), 0
            )
        if not 0 < first <= min(lines, default=0):
            first = min(lines, default=0)
        return file, first, {line for line in lines if line >= first}

    def values(self, definition: Definition) -> NamedFetches:
        """The names at a definition's place. Raises UsageError if it has none."""
        functions, names = self._functions, self._functions.names
        address = definition.address or 0
        if definition.symbol is not None:
            start = names.address(definition.symbol)
            address = functions.chosen.get(start, start) + definition.offset
        with self.info.readable():
            dies = functions_at(self.info, address)
            if len(dies) > 1:
                symbols = {definition.symbol, *self._symbols_at(address - definition.offset)}
                dies = [die for die in dies if linkage_name(die) in symbols]
            if len(dies) != 1:
                token = words_of(definition.text)[1]
                hint = "compile it with -g, or fetch $argN"
                raise token.refuse("the debug information does not tell this function", hint)
            return self._values(definition, dies[0], address)

    def _values(self, definition: Definition, die: DIE, address: int) -> NamedFetches:
        skeleton = self._functions.image.elf.skeleton
        start = self.info.first_range(die) or address
        around = self._functions.around(start) or (start, start + 1)
        unit = self.info.unit_at(address) or 0
        symbols = self._symbols_at(start) or [linkage_name(die)]
        settled = self.lines.settled(unit, start, around[1])
        at = At(
            address=address,
            symbol=definition.symbol if definition.symbol in symbols else symbols[0],
            start=start,
            size=around[1] - start,
            entry=address == start,
            returns=definition.kind == "r",
            settled=settled,
        )
        convention = convention_of(skeleton.machine, skeleton.elf_class)
        path = self._functions.image.path
        declared = Declarations(path, convention, self.info) if convention else None
        values = NamedValues(self._functions, self.info, declared, self._registers, die, at)
        return NamedFetches(values)

    def _placed(self, definition: Definition) -> Definition:
        """Find the address of a line."""
        place = words_of(definition.text)[1]
        with self.info.readable():
            try:
                found = self.lines.of(definition.file, definition.line)
            except UsageError as error:
                raise place.refuse(error.reason, error.hint) from None
            first: dict[tuple[int, ...], int] = {}
            for address in found:
                dies = functions_at(self.info, address)
                if dies:
                    scopes = Scopes(info=self.info, function=dies[0], address=address, entry=False)
                    first.setdefault((dies[0].offset, *scopes.inlined()), address)
        if not first:
            raise place.refuse("the line's code is in no function")
        named = [self._named(address) for address in first.values()]
        if len(named) > 1:
            some = ", ".join(f"{one}+{offset:#x}" if one else hex(offset) for one, offset in named)
            raise place.refuse(f"the line has code in {len(named)} places", f"use one of {some}")
        symbol, offset = named[0]
        if symbol is None:
            return replace(definition, address=offset)
        return replace(definition, symbol=symbol, offset=offset)

    def _named(self, address: int) -> tuple[str | None, int]:
        """A symbol that only the function around an address has, and the offset from there; None
        and the address if there is none."""
        around = self._functions.around(address)
        for symbol in self._symbols_at(around[0]) if around else ():
            try:
                if around and self._functions.names.address(symbol) == around[0]:
                    return symbol, address - around[0]
            except UsageError:
                continue
        return None, address

    def _names_around(self, address: int) -> list[str]:
        """The symbols of the function around an address, and the names in the source."""
        around = self._functions.around(address)
        symbols = self._symbols_at(around[0] if around else address)
        last = {
            called_name(demangled(one)).rpartition("::")[2]
            for one in symbols
            if one.startswith("_Z")
        }
        return [*symbols, *sorted(last)]

    def _symbols_at(self, address: int) -> list[str]:
        symbols = self._functions.image.symbols
        here = symbols.value == np.uint64(address)
        return list(symbols.names(np.flatnonzero(here & (symbols.type == Symbols.STT_FUNC))))

    @cached_property
    def info(self) -> DebugInfo:
        """The debug information. Raises InputError if there is none."""
        image = self._functions.image
        info = DebugInfo.of(image.elf, image.path)
        info.named = self._names_around
        return info

    @cached_property
    def lines(self) -> SourceLines:
        """Its line tables."""
        return SourceLines(self.info)

    @cached_property
    def _registers(self) -> Registers:
        return registers_of(self._functions.arch)
