# SPDX-License-Identifier: MIT
"""The places of displaced instructions: in a detour these have others than in their function.

detour   | to the runtime | displaced instructions | back |
                            ^ where they are moved to
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ftpatch.arch import arch_of, supports
from ftpatch.arch.detour import detour_of
from ftpatch.arch.move import Immovable, mover_of
from ftpatch.errors import FtpatchError
from ftpatch.image import Image
from ftpatch.inject.read_back import file_offset, injected_table
from ftpatch.inject.runtime import PROBES
from ftpatch.layout import structure, unpack

__all__ = ["Displaced"]

MAX_DETOUR = 512
"""Bytes of a detour."""
MAX_DISPLACED = 64
"""Bytes of instructions that a probe displaces."""


class Displaced:
    """The detours of a program with probes; ``before`` is the program with its own code, as far as
    its journal tells."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self.before = image.altered([block.changes for block in image.blocks], old=True)

    def behind(self, address: int) -> int | None:
        """The address behind an instruction in its function, by that behind it in a detour (link
        addresses); None if it is in none, or not displaced as it is."""
        arch = arch_of(self._image.elf.skeleton.machine, self._image.elf.skeleton.elf_class)
        if arch is None or not supports(arch.name, "move", "detour"):
            return None
        detours, places = self._places
        row = int(np.searchsorted(detours, address)) - 1
        if row < 0 or address - int(detours[row]) > MAX_DETOUR:
            return None
        mover, to = mover_of(arch.name), int(detours[row]) + detour_of(arch.name).size
        place = int(places[row])
        offset = self.before.elf.offset_of(np.array([place], np.uint64), executable=True)[0]
        code = self.before.data[offset : offset + MAX_DISPLACED].tobytes() if offset >= 0 else b""
        for size in range(1, MAX_DISPLACED):
            try:
                moved = mover.move(code, place, to, size)
            except Immovable:
                return None
            if moved.size == size and len(moved.code) - mover.jump_size == address - to:
                return place + size
            if len(moved.code) - mover.jump_size > address - to:
                return None
        return None

    @cached_property
    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        """Link addresses of detours, ascending, and of what they displace; none where the tables
        are corrupt."""
        entry = self._image.elf.order.record(structure("probe_place"))
        held = np.empty(0, entry)
        try:
            found = injected_table(self._image, PROBES)
            if found is not None:
                size = structure("probe_table").itemsize
                at = file_offset(self._image, found[1], "probes")
                raw = self._image.elf.contents(at, size, "table of probes").tobytes()
                table = unpack("probe_table", self._image.elf.order, raw)
                if not table["place_count"]:
                    return held["detour"], held["address"]
                at = file_offset(self._image, table["places"], "probes")
                size = table["place_count"] * entry.itemsize
                held = np.frombuffer(
                    self._image.elf.contents(at, size, "table of probes").tobytes(), entry
                )
        except FtpatchError:
            pass
        order = np.argsort(held["detour"])
        return held["detour"][order].astype(np.int64), held["address"][order].astype(np.int64)
