# SPDX-License-Identifier: MIT
"""Library calls as sites: the program's PLT entries come to call the tracer, by thunks that are
injected with it (ftpatch/arch/plt_thunks.py)."""

from __future__ import annotations

import numpy as np

from ftpatch.arch.plt_thunks import plt_thunks_of
from ftpatch.core.changes import Changes, Kind
from ftpatch.elf.eh_frame import NO_CFA, Cfi, Entry, packed
from ftpatch.errors import InputError
from ftpatch.image import Image
from ftpatch.inject.stub import Stub
from ftpatch.names.plt import Plt

__all__ = ["LibraryCalls"]

CALLER = "ftrace_plt_caller"


class LibraryCalls:
    """The ``whole`` stub with room for the thunks of PLT entries, and what goes there. Raises
    InputError for an architecture or a ``stub`` without thunks."""

    def __init__(
        self, image: Image, arch: str, plt: Plt, *, stub: Stub, whole: Stub, page: int
    ) -> None:
        caller = stub.address(CALLER)
        if caller is None:
            raise InputError(stub.path, f"the stub has no {CALLER}")
        self._caller = caller
        self._image, self._plt, self._thunks = image, plt, plt_thunks_of(arch)
        offset = image.elf.offset_of(plt.jump.view(np.uint64), executable=True)
        code, _ = image.elf.gather(offset, self._thunks.width)
        self._offset = offset
        self._old, self._width = self._thunks.old(plt.jump, plt.slot, code)
        size = self._thunks.size * len(plt)
        whole, self._start = whole.with_code(bytes(size), page)
        self.whole = self._unwound(whole, size, page)

    def _unwound(self, whole: Stub, size: int, page: int) -> Stub:
        """With what unwinders are told of the thunks, which have ``size`` bytes."""
        if self._thunks.index:
            return whole.indexing(self._start, self._thunks.index)
        order = self._image.elf.order
        cfi = Cfi(self._thunks.head, self._thunks.initial, NO_CFA, (), order)
        entries = [Entry(cfi, self._start, size, ())]
        whole, at = whole.with_data(packed(entries, 0)[0], page)
        data, rows = packed(entries, at)
        return whole.holding(at, data).knowing(rows)

    def fill(self, shift: int) -> dict[int, bytes]:
        """Return the thunks, by linked address. Raises InputError where a branch cannot reach."""
        jump, slot, thunk = self._plt.jump, self._plt.slot, self._at(shift)
        caller = self._caller + shift
        ends = np.concatenate([jump, slot, thunk, [caller]])
        if int(ends.max()) - int(ends.min()) >= self._thunks.reach:
            raise InputError(self._image.path, "too large for its library calls to be traced")
        return {self._start: self._thunks.make(self._old, jump, slot, thunk, caller).tobytes()}

    def changes(self, shift: int) -> Changes:
        """Changes to the entries."""
        jump = self._plt.jump
        new = self._thunks.new(self._old, jump, self._at(shift))
        owner = jump.view(np.uint64)
        return Changes.of(Kind.CODE, self._offset, self._old, new, owner, self._width)

    def _at(self, shift: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Link addresses of the thunks, int64[n]."""
        return self._start + shift + self._thunks.size * np.arange(len(self._plt), dtype=np.int64)
