# SPDX-License-Identifier: MIT
"""Functions of a program that its libraries call in place of their own, such as malloc() or
operator new: constructors of libraries run before the program's entry, and call them.

    ld.so: relocates libsource-highlight.so: _Znwm -> the program's
    ld.so: calls its constructor -> _Znwm -> int3, or what is a trap there -> SIGTRAP, SIGILL

Those are exported by the program, and named by relocations of a library (System V ABI, chapter 5,
"Shared Object Dependencies"). Of libraries that are preloaded nothing is known.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from ftpatch.elf.dynamic import Tag, dynamic_string, dynamic_values
from ftpatch.elf.headers import Segment
from ftpatch.elf.symbols import Symbols
from ftpatch.errors import FtpatchError, InputError
from ftpatch.image import Image, open_image
from ftpatch.image.needed import linker_of, loaded_by

__all__ = ["interposed"]


def interposed(image: Image) -> list[int]:
    """Find the link addresses of functions that libraries bind to; all that are exported, if the
    libraries cannot be read."""
    symbols = image.dynamic_symbols
    kinds = (symbols.type == Symbols.STT_FUNC) | (symbols.type == Symbols.STT_GNU_IFUNC)
    rows = np.flatnonzero(kinds & (symbols.section != Symbols.SHN_UNDEF) & (symbols.value > 0))
    if not len(rows) or image.elf.segment(Segment.PT_INTERP) is None:
        return []
    exported = dict(zip(symbols.names(rows), symbols.value[rows].tolist(), strict=True))
    try:
        bound = _bound(image)
    except FtpatchError:
        bound = set(exported)
    return [address for name, address in exported.items() if name in bound]


def _bound(image: Image) -> set[str]:
    """The symbols that relocations of a program's libraries name. Raises FtpatchError if one of
    them is missing, or cannot be read."""
    listed = loaded_by(image)
    libraries = [open_image(one.path) for one in listed]
    known = {Path(linker_of(image)).name, *(one.name for one in listed)}
    found = set[str]()
    for library in (image, *libraries):
        missing = _needed(library) - known
        if missing:
            raise InputError(library.path, f"no library {missing.pop()}")
        symbols = library.dynamic_symbols
        rows = np.unique(library.relocations.symbol).astype(np.intp)
        if library is not image:
            found.update(symbols.names(rows[(rows > 0) & (rows < len(symbols))]))
    return found


def _needed(image: Image) -> set[str]:
    """The names in an image's DT_NEEDED."""
    values = (value for tag, value, _ in dynamic_values(image.elf) if tag == Tag.NEEDED)
    return {os.fsdecode(dynamic_string(image.elf, value)) for value in values}
