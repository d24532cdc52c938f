# SPDX-License-Identifier: MIT
"""A shared library with a runtime of its own, which its dynamic table starts and ends.

    INIT init         ->   INIT ftrace_library_start, which goes on to init
    FINI fini              FINI ftrace_library_ended, which goes on to fini
    FLAGS_1 NOW            FLAGS_1 NOW NODELETE
    NULL                   NULL

DT_INIT comes before all of DT_INIT_ARRAY, DT_FINI after all of DT_FINI_ARRAY (System V ABI, chapter
5, "Initialization and Termination Functions"). dlclose() must leave the library: return addresses
lead into it, and signal handlers are there.

What is missing is added behind the last entry. Where the linker has left no room there, the table
is moved into the inserted segment.

A libc's own initializers run late, or never: the dynamic linker calls it before; threads start and
end in it, some of its functions return twice (setjmp, vfork), and others leave the stack.
"""

from __future__ import annotations

import os
import re
from typing import Final

from ftpatch.core.changes import Changes
from ftpatch.elf.dynamic import Tag, dynamic_string, dynamic_tags, dynamic_values
from ftpatch.errors import InputError, UsageError
from ftpatch.image import Image
from ftpatch.inject.dynamic_entries import DynamicEntries, packed_entries
from ftpatch.inject.stub import Stub

__all__ = ["LibraryStart", "require_ordinary"]

DF_1_NODELETE = 8
START, ENDED = "ftrace_library_start", "ftrace_library_ended"
LIBC: Final = re.compile(r"(?:libc|libpthread|ld|ld-[\w-]+)\.(?:so|musl-\w+\.so)(?:\.\d+)*")
"""Names of libraries: libc.so.6, libpthread.so.0, ld-linux-x86-64.so.2, libc.musl-x86_64.so.1."""


def require_ordinary(image: Image, hint: str) -> None:
    """Raise UsageError for a C library, its threads, or a dynamic linker."""
    value = dynamic_tags(image.elf).get(Tag.SONAME)
    name = os.fsdecode(dynamic_string(image.elf, value)) if value is not None else image.path.name
    if LIBC.fullmatch(name):
        raise UsageError(image.path, f"{name} runs before a tracer in it could start", hint)


class LibraryStart:
    """Entries of an image's dynamic table that start a ``stub``, which is the first part of
    ``whole``. ``init`` and ``ended``: link addresses of the library's own DT_INIT and DT_FINI, 0:
    none; ``moved``: linked address and bytes of the table that takes the place of its own, None
    where that has room."""

    def __init__(self, image: Image, stub: Stub, whole: Stub, *, page: int) -> None:
        """Raises InputError for an image without a dynamic table."""
        started, ended = stub.address(START), stub.address(ENDED)
        assert started is not None and ended is not None  # of ftpatch's own stub
        self._image, self._started, self._ended = image, started, ended
        self._held = [(tag, value) for tag, value, _ in dynamic_values(image.elf)]
        if not self._held:
            raise InputError(image.path, "no dynamic table: no dynamic linker would start a tracer")
        own = dict(reversed(self._held))
        self.init, self.ended = own.get(Tag.INIT, 0), own.get(Tag.FINI, 0)
        self.whole = whole
        self.moved: tuple[int, int] | None = None
        entries = self._entries(0)
        if len(entries) > DynamicEntries.room(image):
            table = bytes(2 * image.elf.word * (len(entries) + 1))
            self.whole, at = whole.with_data(table, page, writable=True)
            self.moved = at, len(table)

    def changes(self, shift: int) -> Changes:
        """The Changes to the table, for a stub that is ``shift`` bytes above its linked address."""
        if self.moved:
            return Changes.concat([])
        return DynamicEntries(self._image, self._entries(shift)).changes(0)

    def fill(self, shift: int) -> dict[int, bytes]:
        """The same for a table that is moved: its contents, by linked address."""
        if not self.moved:
            return {}
        entries = [*self._entries(shift), (0, 0)]
        return {self.moved[0]: packed_entries(entries, self._image.elf)}

    def _entries(self, shift: int) -> list[tuple[int, int]]:
        """All entries of the table but the last."""
        flags = dict(self._held).get(Tag.FLAGS_1, 0) | DF_1_NODELETE
        wanted = {Tag.INIT: self._started + shift, Tag.FINI: self._ended + shift}
        wanted[Tag.FLAGS_1] = flags
        held = [(tag, wanted.pop(tag, value)) for tag, value in self._held]
        return [*held, *wanted.items()]
