"""Names as people write them: those of the symbol table, or of a C++ or Rust source."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ftpatch.image.symbols import Symbols
from ftpatch.mangled import demangled

__all__ = ["DATA", "FUNCTIONS", "Named", "meant"]

FUNCTIONS = (0, Symbols.STT_FUNC, Symbols.STT_GNU_IFUNC)
"""STT_NOTYPE, STT_FUNC, STT_GNU_IFUNC."""
DATA = (0, Symbols.STT_OBJECT, 5, Symbols.STT_TLS)
"""STT_NOTYPE, STT_OBJECT, STT_COMMON, STT_TLS."""
UNWRITTEN = ("_ZT", "_ZGV", "_ZGR")
"""What compilers add: vtables and type information, guards, temporaries."""
MOST = 1 << 14
"""Names that are compared with one that is not there."""
SHOWN = 3
BEHIND = re.compile(r"( const| volatile|&| \[clone [^]]*\])*$")
OPERATOR = re.compile(r"\boperator[^\w(]*$")
TEMPLATE = re.compile(r"<[^<>]*>")
WORD = re.compile(r"[^\W\d]\w*")


def meant(names: Iterable[str], otherwise: str) -> str:
    """The question for at most SHOWN names; ``otherwise`` where there are none."""
    like = [*dict.fromkeys(names)][:SHOWN]
    return f"did you mean {' or '.join(like)}?" if like else otherwise


class Named:
    """The symbols of these types that an image defines, or those that it only refers to."""

    def __init__(self, symbols: Symbols, types: tuple[int, ...], *, defined: bool = True) -> None:
        self._symbols, self._types, self._defined = symbols, types, defined

    def find(self, text: str) -> list[str]:
        """Names of the symbol table that ``text`` may mean, besides itself: those of one more
        version, as ``environ@GLIBC_2.2.5``, and those of which it is what a source has, with
        parameters or without; spaces do not count."""
        wanted, _, version = text.partition("@")
        bare, word = _bare(wanted), _last(wanted)  # mangled names spell the word out
        found = []
        for name in self._names:
            plain, _, other = name.partition("@")
            if name == text or word not in plain or (version and version != other):
                continue
            source = demangled(plain)
            begin, end = _span(source)
            forms = (_bare(part) for part in (source, source[begin:], source[begin:end]))
            if wanted == plain or ("[clone " not in source and bare in forms):
                found.append(name)
        return found

    def like(self, text: str) -> list[str]:
        """At most SHOWN names that ``text`` was perhaps meant to be, as they can be written."""
        last = _last(text)
        names = [name.partition("@")[0] for name in self._names if not name.startswith(UNWRITTEN)]
        names = [name for name in names if last and last in name] + names[:MOST]
        known = list(dict.fromkeys(_written(_called(demangled(name))) for name in names))
        ends = {_last(name): name for name in reversed(known)}
        found = [name for name in known if _last(name) == last]
        found += difflib.get_close_matches(text, known)
        found += [ends[end] for end in difflib.get_close_matches(last, ends)]
        return list(dict.fromkeys(found))[:SHOWN]

    @cached_property
    def _names(self) -> list[str]:
        symbols = self._symbols
        there = (symbols.section != Symbols.SHN_UNDEF) == self._defined
        rows: NDArray[np.intp] = np.flatnonzero(there & np.isin(symbols.type, self._types))
        return [name for name in dict.fromkeys(symbols.names(rows)) if name]


def _last(name: str) -> str:
    """The last identifier of a function's name, empty for an operator's."""
    plain = _called(name)
    while plain != (plain := TEMPLATE.sub("", plain)):
        pass
    found = WORD.fullmatch(plain.rpartition("::")[2].removeprefix("~"))
    return found[0] if found and not found[0].startswith("operator") else ""


def _bare(name: str) -> str:
    return "".join(name.split())


def _written(name: str) -> str:
    return _bare(name).replace("(anonymousnamespace)", "(anonymous namespace)")


def _called(name: str) -> str:
    """A function's name without its parameters, and without what a template's returns."""
    begin, end = _span(name)
    return name[begin:end]


def _span(name: str) -> tuple[int, int]:
    """Where that is in it."""
    end = len(BEHIND.sub("", name))
    if not name[:end].endswith(")"):
        return 0, len(name)
    depth = 0
    for at in range(end - 1, -1, -1):
        depth += (name[at] == ")") - (name[at] == "(")
        if not depth:
            break
    end, depth = at, 0
    for at in range(end - 1, -1, -1):
        depth += (name[at] in ")>") - (name[at] in "(<")
        if name[at] == " " and depth <= 0 and not OPERATOR.search(name[:at]):
            return at + 1, end
    return 0, end
