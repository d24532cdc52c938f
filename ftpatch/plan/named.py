"""Names as people write them: those of the symbol table, or of a C++ or Rust source."""

from __future__ import annotations

import difflib
import re
from functools import cached_property

import numpy as np

from ftpatch.image.symbols import Symbols
from ftpatch.mangled import MANGLED, demangled

__all__ = ["FUNCTIONS", "SHOWN", "Named"]

FUNCTIONS = (0, Symbols.STT_FUNC, Symbols.STT_GNU_IFUNC)
"""STT_NOTYPE, STT_FUNC, STT_GNU_IFUNC."""
MOST = 1 << 14
"""Names that are compared with one that is not there."""
SHOWN = 3
BEHIND = re.compile(r"( const| volatile|&| \[clone [^]]*\])*$")
OPERATOR = re.compile(r"\boperator[^\w(]*$")
TEMPLATE = re.compile(r"<[^<>]*>")
WORD = re.compile(r"[^\W\d]\w*")


class Named:
    """The symbols of these types that an image defines, without their versions."""

    def __init__(self, symbols: Symbols, types: tuple[int, ...]) -> None:
        self._symbols, self._types = symbols, types

    def find(self, text: str) -> list[str]:
        """Names of the symbol table that ``text`` may mean, besides itself: those of which it is
        what a source has, with parameters or without; spaces do not count."""
        wanted = _bare(text)
        word = _last(text)  # mangled names spell it out
        found = []
        for name in self._names:
            if name.startswith(MANGLED) and word in name:
                source = demangled(name)
                if "[clone " not in source and wanted in (_bare(source), _bare(_called(source))):
                    found.append(name)
        return found

    def like(self, text: str) -> list[str]:
        """At most SHOWN names that ``text`` was perhaps meant to be, as they can be written."""
        last = _last(text)
        names = [name for name in self._names if last and last in name] + self._names[:MOST]
        known = list(dict.fromkeys(_bare(_called(demangled(name))) for name in names))
        ends = {_last(name): name for name in reversed(known)}
        found = [name for name in known if _last(name) == last]
        found += difflib.get_close_matches(_bare(text), known)
        found += [ends[end] for end in difflib.get_close_matches(last, ends)]
        return list(dict.fromkeys(found))[:SHOWN]

    @cached_property
    def _names(self) -> list[str]:
        symbols = self._symbols
        there = (symbols.section != Symbols.SHN_UNDEF) & np.isin(symbols.type, self._types)
        names = (name.partition("@")[0] for name in symbols.names(np.flatnonzero(there)))
        return [name for name in dict.fromkeys(names) if name]


def _last(name: str) -> str:
    """The last identifier of a function's name, empty for an operator's."""
    plain = _called(name)
    while plain != (plain := TEMPLATE.sub("", plain)):
        pass
    found = WORD.fullmatch(plain.rpartition("::")[2].removeprefix("~"))
    return found[0] if found and not found[0].startswith("operator") else ""


def _bare(name: str) -> str:
    return "".join(name.split())


def _called(name: str) -> str:
    """A function's name without its parameters, and without what a template's returns."""
    end = len(BEHIND.sub("", name))
    if not name[:end].endswith(")"):
        return name
    depth = 0
    for at in range(end - 1, -1, -1):
        depth += (name[at] == ")") - (name[at] == "(")
        if not depth:
            break
    front, depth = name[:at], 0
    for at in range(len(front) - 1, -1, -1):
        depth += (front[at] in ")>") - (front[at] in "(<")
        if front[at] == " " and depth <= 0 and not OPERATOR.search(front[:at]):
            return front[at + 1 :]
    return front
