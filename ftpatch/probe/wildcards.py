# SPDX-License-Identifier: MIT
"""Probes whose FUNC is a wildcard, as in set_ftrace_filter: one for each function that it matches.

    str*            functions that the image itself has
    PLT:str*        those that it imports, at their PLT entries; also written str*@plt

A text that is the name of a function means that function, as `shop::Vec::operator*` does. Of the
names of one address, a probe gets one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ftpatch.core.columns import among
from ftpatch.core.token import SYMBOL
from ftpatch.elf.symbols import Symbols
from ftpatch.errors import Refused, UsageError
from ftpatch.names.demangle import demangled
from ftpatch.names.functions import PART, Functions
from ftpatch.names.named_symbols import FUNCTIONS
from ftpatch.names.parameters import called_name
from ftpatch.names.plt import UNHOOKED
from ftpatch.names.short_names import without_arguments
from ftpatch.names.spelling import PLT, Wanted, like
from ftpatch.names.suggest import meant
from ftpatch.probe import Definition
from ftpatch.probe.debug_names import DebugNames
from ftpatch.probe.event_names import EventNames

__all__ = ["Wildcards", "require_each", "skipping"]

TYPES = (Symbols.STT_FUNC, Symbols.STT_GNU_IFUNC)


@dataclass(frozen=True, kw_only=True)
class Wildcards:
    """The wildcards of a command: whether each is a ``regex``, and to how many functions each is
    limited, 0 for any number; the ``names`` that were given to events of all images."""

    regex: bool = False
    limit: int = 0
    names: EventNames = field(default_factory=EventNames)

    def reserve(self, definitions: Sequence[Definition]) -> None:
        """Take the names of all probes without a wildcard, before others are made up."""
        for one in definitions:
            if not one.template:
                self.names.take(one.group, one.name)

    def spelled(
        self, functions: Functions, definitions: Sequence[Definition], refused: Refused
    ) -> list[Definition]:
        """The definitions with symbols for what may be names of a source, and one for each function
        that a wildcard matches, with the fetches of the values that the source names, leaving out
        what is ``refused``."""
        out, values = list[Definition](), DebugNames(functions)
        for one in definitions:
            with refused.told(functions.image.path):
                if not one.template:
                    symbol = one.symbol and values.spelled(one.symbol)
                    out.append(values.completed(replace(one, symbol=symbol)))
                elif known := functions.names.known(one.symbol or ""):
                    self.names.require(one.group, one.name, one.text)
                    out.append(values.completed(replace(one, symbol=known, template="")))
                else:
                    out += self._matched(functions, values, one, refused)
        return out

    def _matched(
        self, functions: Functions, values: DebugNames, definition: Definition, refused: Refused
    ) -> list[Definition]:
        """The functions that a wildcard matches, by address. Raises UsageError if there are none,
        or more than may be, or none that has the values."""
        path, text = functions.image.path, (definition.symbol or "").removesuffix(PLT)
        imported = (definition.symbol or "") != text
        shown = f"PLT:{text}" if imported else text
        if definition.offset:
            reason = f"{shown!r}: functions that a wildcard matches are probed at their entry"
            raise UsageError(path, reason, f"remove +{definition.offset:#x}")
        found = self._found(functions, text, imported=imported)
        if not found:
            hint = self._instead(functions, text, imported=imported)
            raise UsageError(path, f"no function matches {shown!r}", hint)
        if 0 < self.limit < len(found):
            reason = f"{shown!r} matches {len(found):,} functions, more than {self.limit:,}"
            raise UsageError(path, reason, f"use a narrower one, or --limit {len(found)}")
        places, chosen, out, events = _places(functions), functions.chosen, list[Definition](), []
        for address in sorted(found):
            symbol = min(found[address], key=_preference)
            source = without_arguments(called_name(demangled(symbol.removesuffix(PLT))))
            group, name = self.names.of_function(definition.template, source.partition("@")[0])
            one = replace(definition, group=group, name=name, template="", pattern=shown)
            own, *others = places[symbol]
            several = bool(others) or chosen.get(own, own) != address
            if several or not SYMBOL.fullmatch(symbol):  # no name that would mean it again
                one = replace(one, symbol=None, address=address)
            else:
                one = replace(one, symbol=symbol)
            events.append(one.event)
            with refused.told(path, skips=[one.event]):
                if PART in symbol:
                    raise UsageError(path, f"{symbol} is a part of a function, not its entry")
                if one.kind == "r" and imported and UNHOOKED.fullmatch(symbol.removesuffix(PLT)):
                    raise UsageError(path, "it does not return, or looks where to", "use p probes")
                out.append(values.completed(one))
        if not out:
            raise _none(shown, refused.skipped[events[0]])
        return out

    def _found(self, functions: Functions, text: str, *, imported: bool) -> dict[int, list[str]]:
        """The names that a wildcard matches, by address."""
        wanted, out = Wanted(text, regex=self.regex), dict[int, list[str]]()
        for names, address in _tables(functions, TYPES, imported=imported):
            for row in np.flatnonzero(wanted.match([one.removesuffix(PLT) for one in names])):
                those = out.setdefault(functions.chosen.get(address[row], address[row]), [])
                if names[row] not in those:
                    those.append(names[row])
        return out

    def _instead(self, functions: Functions, text: str, *, imported: bool) -> str:
        """A hint where a wildcard matches nothing."""
        if not imported and self._found(functions, text, imported=True):
            return f"write PLT:{text} for what it imports"
        every = [
            name for names, _ in _tables(functions, TYPES, imported=imported) for name in names
        ]
        return meant(like(text, every), "see `nm -D`" if imported else "see `nm`")


def skipping(definitions: Sequence[Definition]) -> list[str]:
    """The events of a place that may be skipped if it cannot be probed: there are none if a probe
    names it."""
    return [one.event for one in definitions] if all(one.pattern for one in definitions) else []


def require_each(
    functions: Functions,
    definitions: Sequence[Definition],
    left: Sequence[Definition],
    refused: Refused,
) -> None:
    """Refuse wildcards of which no probe is ``left``."""
    for text in {one.text: one.pattern for one in definitions if one.pattern}:
        those = [one for one in definitions if one.text == text]
        if any(one.text == text for one in left):
            continue
        for event in [one.event for one in those if one.event in refused.skipped][:1]:
            with refused.told(functions.image.path):
                raise _none(those[0].pattern, refused.skipped[event])


def _none(pattern: str, first: UsageError) -> UsageError:
    """The error for a wildcard of which no function can be probed; ``first``: that of one."""
    reason = f"none of the functions that {pattern!r} matches can be probed: {first.reason}"
    return UsageError(first.path, reason, first.hint)


def _tables(
    functions: Functions, types: tuple[int, ...], *, imported: bool
) -> Iterator[tuple[list[str], list[int]]]:
    """Names and link addresses of functions, table by table."""
    for symbols, behind in functions.names.tables:
        if bool(behind) == imported:
            there = among(symbols.type, types) & (symbols.section != Symbols.SHN_UNDEF)
            rows = np.flatnonzero(there & (symbols.name != 0))
            yield symbols.names(rows), symbols.value[rows].view(np.int64).tolist()


def _places(functions: Functions) -> dict[str, set[int]]:
    """The link addresses of each name, as ``FunctionNames.address`` takes them: those in the first
    table that has it."""
    out = dict[str, set[int]]()
    for imported in (False, True):
        for names, addresses in _tables(functions, FUNCTIONS, imported=imported):
            mine = dict[str, set[int]]()
            for name, address in zip(names, addresses, strict=True):
                mine.setdefault(name, set()).add(address)
            out = mine | out
    return out


def _preference(name: str) -> tuple[bool, int, int, str]:
    """The order of an address's names: as people write them first."""
    return PART in name, len(name) - len(name.lstrip("_")), len(name), name
