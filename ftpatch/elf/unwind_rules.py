# SPDX-License-Identifier: MIT
"""Unwind information of an image, looked up by address: the way to a caller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ftpatch.elf.eh_frame import frame_of, moved_at, pointed_at, saved_at, size_of_fde
from ftpatch.elf.eh_frame_hdr import read_table
from ftpatch.elf.elf_file import Elf
from ftpatch.elf.frame_section import frames_in_section
from ftpatch.elf.headers import Segment
from ftpatch.errors import InputError

__all__ = ["Rules", "UnwindRules"]

MAX_ADDRESS = (1 << 63) - 1
"""Maximum link address."""


@dataclass(frozen=True)
class Rules:
    """The CFA, and where registers are saved, as ``saved_at`` has them; ``pointer`` and ``pointed``
    as ``pointed_at`` has these, and ``moved`` as ``moved_at``."""

    cfa: tuple[int, int]
    saved: Mapping[int, int | None]
    pointer: tuple[int, int] | None
    pointed: Mapping[int, tuple[int, int]]
    moved: Mapping[int, int] = field(default_factory=dict)


class UnwindRules:
    """The unwind information of one image, read where it is asked for."""

    def __init__(self, elf: Elf) -> None:
        self._elf = elf
        self._known: dict[int, Rules | None] = {}

    def at(self, address: int) -> Rules | None:
        """The rules at a link address; None for code without unwind information, or with one that
        is damaged or of an unknown form."""
        if address not in self._known:
            self._known[address] = self._at(address)
        return self._known[address]

    def _at(self, address: int) -> Rules | None:
        starts = self._table[:, 0]
        row = int(np.searchsorted(starts, np.int64(min(address, MAX_ADDRESS)), "right")) - 1
        if row < 0 or address > MAX_ADDRESS:
            return None
        start, frame = self._table[row].tolist()
        try:
            cfi = frame_of(self._elf, frame)
            if cfi is None or address >= start + size_of_fde(self._elf, frame):
                return None
            return Rules(*saved_at(cfi, address), *pointed_at(cfi, address), moved_at(cfi, address))
        except (InputError, IndexError, KeyError, ValueError):
            return None

    @cached_property
    def _table(self) -> NDArray[np.int64]:
        """Functions and their FDEs, by link address; none where it is not to be read. A static
        program may have no table, and later one of what was laid into it."""
        own, section = self._elf.segment(Segment.PT_GNU_EH_FRAME), self._elf.section(".eh_frame")
        frame, rows = -1, np.empty((0, 2), np.int64)
        if own is not None:
            try:
                held = self._elf.contents(own.offset, own.size, ".eh_frame_hdr")
                frame, rows = read_table(held, own.address, str(self._elf.path), self._elf.order)
            except InputError:
                pass
        if section is not None and section.address != frame:
            rows = np.concatenate([rows, frames_in_section(self._elf)[:, ::2]])
            rows = rows[np.argsort(rows[:, 0], kind="stable")]
        return rows
