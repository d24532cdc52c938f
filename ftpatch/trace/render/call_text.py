# SPDX-License-Identifier: MIT
"""Calls with their arguments, as texts."""

from __future__ import annotations

from collections.abc import Callable

from ftpatch.names.parameters import unsigned
from ftpatch.trace.arguments import Arguments
from ftpatch.trace.render.style import called
from ftpatch.trace.rows import Rows
from ftpatch.trace.source import Recording

__all__ = ["CallTexts"]


class CallTexts:
    """Texts of calls: arguments by name where the source of the function is known, else the
    recorded words."""

    def __init__(self, recording: Recording, clean: Callable[[str], str]) -> None:
        self._arguments, self._clean = Arguments(recording), clean

    def text(self, rows: Rows, row: int, name: str) -> str:
        """``fib(n=32)``, for a row with arguments."""
        found = self._arguments.of(rows, row)
        if found is None:
            words = rows.arguments[rows.args[row]].tolist()
            return called(name, ", ".join(map(hex, words)))
        shown = ", ".join(self._clean(one.text) for one in found)
        return f"{unsigned(name)}({shown})"
