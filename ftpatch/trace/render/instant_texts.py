# SPDX-License-Identifier: MIT
"""Hits and accesses among calls, as text: as ftrace prints events of others."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ftpatch.trace.accesses import Access
from ftpatch.trace.address_names import Places
from ftpatch.trace.hits import Group
from ftpatch.trace.instants import Instants
from ftpatch.trace.render.style import Strings, Style
from ftpatch.trace.render.values import Part, hit_parts
from ftpatch.trace.rows import Rows
from ftpatch.trace.source import EventSource

__all__ = ["InstantTexts", "access_text"]

LATE = "SIGTRAP was blocked"


class InstantTexts(Instants):
    """The hits and accesses of a source, in the style of a report."""

    def __init__(self, source: EventSource, style: Style) -> None:
        super().__init__(source)
        self._style = style
        self._places = Places(source.recording, style.clean, style.shown)

    def beside(
        self, tell: Callable[[Rows], Strings], form: str = "{}"
    ) -> Callable[[Rows], Strings]:
        """Return a function that tells rows of calls as ``tell`` does, and of each instant its
        text, in ``form``."""

        return lambda rows: np.array(self.put_into(tell(rows), rows, form), object)

    def put_into(self, told: Strings | list[str], rows: Rows, form: str = "{}") -> list[str]:
        """Replace what is ``told`` of each instant among rows by its text, in ``form``."""
        out = [*told]
        mine = np.flatnonzero((rows.flags & Rows.INSTANT) > 0)
        texts = self.texts(rows.value[mine], self._hit, self._access) if len(mine) else []
        for row, text in zip(mine.tolist(), texts, strict=True):
            out[row] = form.format(text)
        return out

    def _hit(self, event: Group) -> Iterator[Part]:
        return hit_parts(event, self._places)

    def _access(self, access: Access) -> str:
        return access_text(access, self._style.shown)


def access_text(access: Access, shown: Callable[[str], str]) -> str:
    """``stock+0x0/0x4: W sell+0x16/0x1e 0xc -> 0x9``: what was accessed, how, by whom; what a write
    changed, else what was there."""
    place = LATE if access.place is None else shown(access.place)
    type = access.kind.upper() or "?"
    values = f"{access.after:#x}"
    if "w" in access.kind or access.before != access.after:
        values = f"{access.before:#x} -> {values}"
    return f"{shown(access.variable.place)}: {type} {place} {values}"
