"""Names of variables as people write them: those of the symbol table, or of a C++ source."""

from __future__ import annotations

import difflib
import re
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ftpatch.image.symbols import Symbols
from ftpatch.mangled import demangled

__all__ = ["Named"]

DATA = (0, Symbols.STT_OBJECT, 5, Symbols.STT_TLS)
"""STT_NOTYPE, STT_OBJECT, STT_COMMON, STT_TLS."""
UNWRITTEN = ("_ZT", "_ZGV", "_ZGR")
"""What compilers add: vtables and type information, guards, temporaries."""
MOST = 1 << 14
"""Names that are compared with one that is not there."""
SHOWN = 3


class Named:
    """The variables that an image defines, or with ``defined`` false those that it refers to."""

    def __init__(self, symbols: Symbols, *, defined: bool = True) -> None:
        self._symbols, self._defined = symbols, defined

    def find(self, text: str) -> list[str]:
        """Names of the symbol table that ``text`` may mean, besides itself: those of one more
        version, as ``environ@GLIBC_2.2.5``, and those that C++ made of it."""
        wanted, _, version = text.partition("@")
        parts = re.findall(r"[^\W\d]\w*", wanted.rpartition("::")[2].partition("[")[0])
        if not parts:
            return []
        found = []
        for name in self._names:
            plain, _, other = name.partition("@")
            if parts[0] not in plain or (version and version != other):
                continue
            if name != text and wanted in (plain, demangled(plain)):
                found.append(name)
        return found

    def like(self, text: str) -> list[str]:
        """At most SHOWN names that ``text`` was perhaps meant to be, as they can be written."""
        names = [name for name in self._names if not name.startswith(UNWRITTEN)]
        known = dict.fromkeys(demangled(name.partition("@")[0]) for name in names[:MOST])
        last = text.rpartition("::")[2]
        same = [name for name in known if name.rpartition("::")[2] == last]
        return list(dict.fromkeys(same + difflib.get_close_matches(text, known)))[:SHOWN]

    @cached_property
    def _names(self) -> list[str]:
        symbols = self._symbols
        there = (symbols.section != Symbols.SHN_UNDEF) == self._defined
        rows: NDArray[np.intp] = np.flatnonzero(there & np.isin(symbols.type, DATA))
        return [name for name in dict.fromkeys(symbols.names(rows)) if name]
