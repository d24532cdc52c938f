# SPDX-License-Identifier: MIT
"""The window of a report: a time range, threads and functions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ftpatch.errors import UsageError
from ftpatch.names.spelling import Wanted, like
from ftpatch.names.suggest import meant
from ftpatch.trace.pairs import levels
from ftpatch.trace.rows import Rows
from ftpatch.trace.symbolize import Functions

__all__ = ["ALWAYS", "Window", "parse_span"]

ALWAYS = (-(1 << 62), 1 << 62)
"""Nanoseconds before and after any time."""


@dataclass(kw_only=True)
class Window:
    """``span``: nanoseconds since the start, from and to. ``tids``: threads, empty for all.
    ``depth``: maximum call depth. ``globs``: functions, as in set_ftrace_filter: applied in order,
    a leading ``!`` removes. Functions and levels are left out as if they had not been traced."""

    span: tuple[int, int] = ALWAYS
    tids: frozenset[int] = frozenset()
    depth: int | None = None
    globs: tuple[str, ...] = ()
    _kept: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, bool))
    _missing: set[str] = field(default_factory=set)
    _others: list[str] = field(default_factory=list)
    """Names of non-functions: those of probes."""

    def __post_init__(self) -> None:
        self._missing = set(self.globs)
        self._wanted = [(text, Wanted(text.removeprefix("!"))) for text in self.globs]

    @property
    def is_whole(self) -> bool:
        """True if it covers all times."""
        return self.span == ALWAYS

    def narrow(self, rows: Rows, functions: Functions) -> Rows:
        """Select the rows of the chosen functions and levels."""
        if self.globs:
            kept = self.keeps(functions)[rows.function]
            if not kept.all():
                rows = rows.take(kept)
                rows = rows.but(level=levels(rows)) if len(rows) else rows
        if self.depth is not None:
            rows = rows.take(rows.level < self.depth)
        return rows

    def keeps(self, functions: Functions) -> NDArray[np.bool_]:
        """Return whether each function is selected, bool[f]."""
        self._learn(functions)
        return self._kept

    def within(self, rows: Rows) -> Rows:
        """Select the rows within the time range."""
        if self.is_whole:
            return rows
        return rows.take((rows.time >= self.span[0]) & (rows.time <= self.span[1]))

    def names_match(self, *names: str) -> bool:
        """Return whether something with these names is selected."""
        kept = bool(self.globs) and self.globs[0].startswith("!")
        for text, wanted in self._wanted:
            if wanted.matches(*names):
                self._missing.discard(text)
                kept = not text.startswith("!")
        self._others += [name for name in names if name not in self._others]
        return kept

    def unmatched(self, functions: Functions) -> set[str]:
        """Globs that matched no function that occurs."""
        self._learn(functions)
        return set(self._missing)

    def require_match(self, functions: Functions, elsewhere: Collection[str] = ()) -> None:
        """Raise UsageError for a glob that matched no function that occurs, nor ``elsewhere``."""
        missing = self.unmatched(functions).difference(elsewhere)
        if missing:
            text = min(missing)
            hint = meant(like(text, [*self._others, *functions.name]), "")
            raise UsageError(None, f"filter {text!r} matches no function in the trace", hint)

    def _learn(self, functions: Functions) -> None:
        """Decide on functions that are new."""
        names = functions.symbol[len(self._kept) :]
        if not names:
            return
        takes = bool(self.globs) and self.globs[0].startswith("!")
        kept = np.full(len(names), not self.globs or takes)
        for text, wanted in self._wanted:
            hit = wanted.match(names)
            if hit.any():
                self._missing.discard(text)
            kept = kept & ~hit if text.startswith("!") else kept | hit
        self._kept = np.concatenate([self._kept, kept])


def parse_span(text: str) -> tuple[int, int]:
    """Parse ``1.5-2``, ``1.5-`` and ``-2`` in seconds to nanoseconds. Raises UsageError."""
    begin, dash, end = text.partition("-")
    try:
        bounds = [float(part) if part.strip() else None for part in (begin, end)]
        span = [int(bound * 1e9) if bound is not None else None for bound in bounds]
    except (ValueError, OverflowError):
        dash = ""
    if not dash or span == [None, None]:
        raise UsageError(None, f"--time {text!r} is not FROM-TO in seconds", "as in --time 0.5-2")
    low = ALWAYS[0] if span[0] is None else max(span[0], ALWAYS[0])
    high = ALWAYS[1] if span[1] is None else min(span[1], ALWAYS[1])
    if low > high:
        raise UsageError(None, f"--time {text!r} ends before it begins")
    return low, high
