# SPDX-License-Identifier: MIT
"""Places for areas in a process, each near the code that is to reach it."""

from __future__ import annotations

from collections.abc import Sequence

from ftpatch.arch import Arch
from ftpatch.process.areas import Area, Part, find_hole, placed
from ftpatch.process.bring_in import TOKEN
from ftpatch.process.maps import Mapping
from ftpatch.process.process import Process
from ftpatch.process.send import injected_call_of

__all__ = ["Room"]


class Room:
    """Finds places for areas, one after the other."""

    def __init__(self, process: Process, mappings: Sequence[Mapping], arch: Arch) -> None:
        self._process, self._mappings, self._arch = process, mappings, arch
        self._reach = injected_call_of(arch.name).reach
        self._taken: list[Area] = []

    def place(
        self,
        span: tuple[int, int],
        parts: Sequence[Part],
        *,
        before: int = TOKEN,
        behind: int = 0,
    ) -> Area:
        """Lay out a stub's parts near what has these bounds. Raises InputError if there is no
        room."""
        page = self._arch.page
        size = placed(parts, 0, page, before=before, behind=behind).size
        low, high = span
        start = find_hole(
            self._process,
            self._mappings,
            self._taken,
            low=low,
            high=high,
            size=size,
            reach=self._reach,
            page=page,
        )
        area = placed(parts, start, page, before=before, behind=behind)
        self._taken.append(area)
        return area
