# SPDX-License-Identifier: MIT
"""Lines of text: the source of a function, the notes and the keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ftpatch.cli.tui.cells import cut
from ftpatch.cli.tui.listing import Piece
from ftpatch.cli.tui.source_lines import SourceFile

__all__ = ["SourceTable", "TextTable"]

NUMBER = 6
"""Columns of a line number."""


class TextTable:
    """Lines as they are; of none the ``message``, below ``head``."""

    def __init__(self, lines: Sequence[str] = (), *, head: str = "", message: str = "") -> None:
        self._lines, self._head, self.message = lines, head, message

    def __len__(self) -> int:
        return len(self._lines)

    def heads(self, width: int) -> list[str]:
        """A title, if there is one."""
        return [cut(self._head, width)] if self._head else []

    def line(self, index: int, width: int) -> list[Piece]:
        """One line."""
        return [(self._lines[index], "")]

    def function(self, index: int) -> int:
        """None: lines are about no function."""
        return -1

    def next(self, index: int, chosen: NDArray[np.bool_], *, back: bool = False) -> int | None:
        """None: there is nothing to be found."""
        return None


class SourceTable(TextTable):
    """A file; lines that have code of the ``function`` are marked."""

    def __init__(self, source: SourceFile, function: int, name: str) -> None:
        newer = " (changed since the program was made)" if source.newer else ""
        super().__init__(source.lines, head=f"{name}: {source.name}{newer}")
        self._source, self._function = source, function

    def line(self, index: int, width: int) -> list[Piece]:
        """Number, mark and text."""
        own = index in self._source.code
        text = self._source.lines[index]
        return [
            (f"{index + 1:>{NUMBER}} ", "dim"),
            ("▌ " if own else "  ", "cyan"),
            (text, "bold" if own else ""),
        ]

    def function(self, index: int) -> int:
        """The function whose source it is."""
        return self._function
