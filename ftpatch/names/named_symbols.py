# SPDX-License-Identifier: MIT
"""An image's symbols, by the names people write."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.columns import among
from ftpatch.elf.symbols import Symbols
from ftpatch.names.spelling import OPTIMIZED, bare, last_word, like, spellings

__all__ = ["DATA", "FUNCTIONS", "Named"]

FUNCTIONS = (0, Symbols.STT_FUNC, Symbols.STT_GNU_IFUNC)
"""STT_NOTYPE, STT_FUNC, STT_GNU_IFUNC."""
DATA = (0, Symbols.STT_OBJECT, 5, Symbols.STT_TLS)
"""STT_NOTYPE, STT_OBJECT, STT_COMMON, STT_TLS."""


class Named:
    """The symbols of these types that an image defines, or those that it only refers to."""

    def __init__(self, symbols: Symbols, types: tuple[int, ...], *, defined: bool = True) -> None:
        self._symbols, self._types, self._defined = symbols, types, defined

    def find(self, text: str) -> list[str]:
        """Names in the symbol table that ``text`` may mean, besides itself: those with a version
        added, as in ``environ@GLIBC_2.2.5``, and those whose source name it is, with or without
        parameters; spaces are ignored."""
        wanted, _, version = text.partition("@")
        meant, word = bare(wanted), last_word(wanted)  # mangled names spell the word out
        found = []
        for name in self._names:
            plain, _, other = name.partition("@")
            if name == text or word not in plain or (version and version != other):
                continue
            forms = spellings(plain)
            if wanted == plain or (
                "[clone " not in forms[-1] and any(meant == bare(form) for form in forms)
            ):
                found.append(name)
        return found

    def clones(self, text: str) -> list[str]:
        """Names of what optimizers made of a function whose source name, or C's, is ``text``; not
        the parts that are never entered from outside (``.cold``)."""
        wanted, word = bare(text), last_word(text)
        found = []
        for name in self._names:
            plain = name.partition("@")[0]
            base = OPTIMIZED.sub("", plain)
            if base == plain or ".cold" in plain or word not in base:
                continue
            if wanted == base or any(wanted == bare(form) for form in spellings(base)):
                found.append(plain)
        return found

    def like(self, text: str) -> list[str]:
        """At most SHOWN names similar to ``text``, in a form that can be entered."""
        return like(text, [name.partition("@")[0] for name in self._names])

    @cached_property
    def _names(self) -> list[str]:
        symbols = self._symbols
        there = (symbols.section != Symbols.SHN_UNDEF) == self._defined
        rows: NDArray[np.intp] = np.flatnonzero(there & among(symbols.type, self._types))
        return [name for name in dict.fromkeys(symbols.names(rows)) if name]
