# SPDX-License-Identifier: MIT
"""The functions that a run will trace, known before it begins; and whether there may be more.

What a program opens by dlopen() may be traced, and another program that it starts is if it has a
tracer of its own, and then its functions are in the report, too. Whether one can be opened or
started is told by what the program and its libraries import.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import arch_of, supports
from ftpatch.elf.dynamic import Tag, dynamic_tags
from ftpatch.elf.headers import Segment
from ftpatch.elf.symbols import Symbols
from ftpatch.errors import FtpatchError
from ftpatch.image import Image, open_image
from ftpatch.image.needed import Needed, Needs
from ftpatch.names.plt import Plt
from ftpatch.process.refusals import own_arch
from ftpatch.trace.symbolize import Functions, Program

__all__ = ["Foreseen", "constructs", "may_open"]

STARTS = re.compile(
    "system|syscall"
    "|.*(exec|spawn|popen|dlopen|dlmopen|[Pp]rocess|[Pp]lugin|[Mm]odule).*"  # of libraries, too
)
"""Imported functions that start programs, or load code that may."""
OPENS = re.compile("dlm?open")
"""Those that open libraries."""
STATIC = re.compile("_*(f?execve|execveat|posix_spawnp?|spawni|syscall)")
"""Those that a static program has if it starts others."""
RUNTIMES = re.compile(
    r"(ld-linux.*|ld64|lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s|atomic|asan|tsan|ubsan))[.-].*"
)
"""Libraries that start programs only for who asks them to: who imports that from them."""


@dataclass(eq=False)
class Foreseen:
    """The functions to be traced, of a program and its libraries; ``more``: there are those of the
    programs that it starts, or of libraries that it opens later, too."""

    more: bool = False
    _parts: list[tuple[Image, NDArray[np.uint64]]] = field(default_factory=list)

    def add(self, image: Image, address: NDArray[np.uint64]) -> None:
        """Add the functions of an image around link addresses, uint64[n]."""
        if len(address):
            self._parts.append((image, address))

    def add_calls(self, image: Image, plt: Plt) -> None:
        """Add library calls of an image."""
        self.add(image, plt.start.view(np.uint64))

    def functions(self) -> Functions:
        """The functions, by the names that reports have for them."""
        bases = [int(address.min()) for _, address in self._parts]
        programs = [
            Program(image, base, plain=True)
            for (image, _), base in zip(self._parts, bases, strict=True)
        ]
        functions = Functions(programs)
        for number, (_, address) in enumerate(self._parts):
            # A trace counts from 1: it has where the site ends.
            functions.ids(number, (address - np.uint64(bases[number]) + np.uint64(1)).astype("u4"))
        return functions

    def is_all(self, program: Path) -> bool:
        """Return whether there can be no others: each one here has a name, and the program starts
        no other program."""
        if self.more or any(name.startswith("0x") for name in self.functions().name):
            return False
        try:
            image = open_image(program)
            if image.elf.segment(Segment.PT_INTERP) is None:
                every = image.symbols
                return bool(len(every)) and not _has(every, np.arange(len(every)), STATIC)
            needed = Needs(image).of(program, os.environ)
            own = [one.path for one in needed if not RUNTIMES.fullmatch(one.path.name)]
            return not any(_imports(one, STARTS) for one in (image, *map(open_image, own)))
        except FtpatchError:
            return False


def constructs(program: Image, traced: Sequence[Needed]) -> bool:
    """Return whether one of these libraries of a program has constructors, which can be traced."""
    if not _can_be_hooked(program):
        return False
    images = map(open_image, (one.path for one in traced))
    # Every library has one by crtbegin.o, frame_dummy().
    return any(dynamic_tags(one.elf).get(Tag.INIT_ARRAYSZ, 0) > one.elf.word for one in images)


def _can_be_hooked(program: Image) -> bool:
    skeleton, arch = program.elf.skeleton, own_arch()
    own = arch_of(skeleton.machine, skeleton.elf_class)
    return arch is not None and own is arch and supports(arch.name, "linker_hook")


def may_open(program: Image, needed: Sequence[Needed]) -> bool:
    """Return whether a program with these libraries may open others, which can be traced."""
    if not _can_be_hooked(program):
        return False
    others = [one.path for one in needed if not RUNTIMES.fullmatch(one.path.name)]
    return any(_imports(one, OPENS) for one in (program, *map(open_image, others)))


def _imports(image: Image, names: re.Pattern[str]) -> bool:
    symbols = image.dynamic_symbols
    return _has(symbols, np.flatnonzero(symbols.section == Symbols.SHN_UNDEF), names)


def _has(symbols: Symbols, rows: NDArray[np.intp], names: re.Pattern[str]) -> bool:
    return any(map(names.fullmatch, symbols.names(rows)))
