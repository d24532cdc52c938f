# SPDX-License-Identifier: MIT
"""The window of a report: a time range, threads and functions."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from ftpatch.errors import UsageError
from ftpatch.names.spelling import Wanted
from ftpatch.trace.no_match import no_match
from ftpatch.trace.rows import UNKNOWN, Rows
from ftpatch.trace.symbolize import Functions

__all__ = ["ALWAYS", "Globs", "Window", "parse_least", "parse_span", "parse_trigger"]

UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
"""Nanoseconds."""
ALWAYS = (-(1 << 62), 1 << 62)
"""Nanoseconds before and after any time."""


class Globs:
    """Names of functions as in set_ftrace_filter: applied in order, a leading ``!`` removes."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._begins = bool(texts) and texts[0].startswith("!")
        self._wanted = [(text, Wanted(text.removeprefix("!"))) for text in texts]
        self._kept = np.empty(0, bool)
        self.missing = set(texts)
        """Those that have matched nothing."""

    def of(self, functions: Functions) -> NDArray[np.bool_]:
        """Mark the functions that are among them, bool[f]."""
        names = functions.symbol[len(self._kept) :]
        if names:
            kept = np.full(len(names), self._begins)
            for text, wanted in self._wanted:
                hit = wanted.match(names)
                if hit.any():
                    self.missing.discard(text)
                kept = kept & ~hit if text.startswith("!") else kept | hit
            self._kept = np.concatenate([self._kept, kept])
        return self._kept

    def match(self, *names: str) -> bool:
        """Return whether something with these names is among them."""
        kept = self._begins
        for text, wanted in self._wanted:
            if wanted.matches(*names):
                self.missing.discard(text)
                kept = not text.startswith("!")
        return kept


@dataclass(kw_only=True)
class Window:
    """``span``: nanoseconds since the start, from and to. ``tids``: threads, empty for all.
    ``globs``: functions, as in set_ftrace_filter; others are left out as if they had not been
    traced. ``only``: functions that are shown with everything below them; ``triggers``: functions
    from whose calls on everything is shown (True) or nothing (False), in all threads; ``least``:
    nanoseconds that calls take; ``depth``: levels of calls, inside calls of ``only`` from each of
    them; ``calls``: how many, from the first one on."""

    span: tuple[int, int] = ALWAYS
    tids: frozenset[int] = frozenset()
    globs: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    triggers: tuple[tuple[str, bool], ...] = ()
    least: int | None = None
    depth: int | None = None
    calls: int | None = None
    _others: list[str] = field(default_factory=list)
    """Names of non-functions: those of probes."""

    def __post_init__(self) -> None:
        self._globs, self.below = Globs(self.globs), Globs(self.only)
        self._switches = [(Globs([text]), on) for text, on in self.triggers]

    @property
    def is_whole(self) -> bool:
        """True if it covers all times."""
        return self.span == ALWAYS

    @property
    def begins_on(self) -> bool:
        """True if calls are shown from the start: no trigger switches them on."""
        return not any(on for _, on in self.triggers)

    @property
    def filters(self) -> tuple[str, ...]:
        """The options of what is asked for that only single calls have."""
        options = {
            "-F": self.only,
            "--trigger": self.triggers,
            "--time-filter": self.least is not None,
            "--max-depth": self.depth is not None,
            "--max-calls": self.calls is not None,
        }
        return tuple(option for option, given in options.items() if given)

    @property
    def options(self) -> tuple[str, ...]:
        """The options of all that is asked for."""
        options = {"--time": not self.is_whole, "--tid": self.tids, "--filter": self.globs}
        return (*(option for option, given in options.items() if given), *self.filters)

    @property
    def wanted(self) -> set[str]:
        """Everything that must match a function."""
        return {*self.globs, *self.only, *(text for text, _ in self.triggers)}

    def keeps(self, functions: Functions) -> NDArray[np.bool_]:
        """Return whether each function is selected, bool[f]."""
        if not self.globs:
            return np.ones(len(functions), bool)
        return self._globs.of(functions)

    def switches(self, functions: Functions) -> NDArray[np.int8]:
        """Return whether each function switches on (1), off (0), or neither (UNKNOWN), int8[f]."""
        out = np.full(len(functions), UNKNOWN, np.int8)
        for globs, on in self._switches:
            out[globs.of(functions)] = on
        return out

    def within(self, rows: Rows) -> Rows:
        """Select the rows within the time range."""
        if self.is_whole:
            return rows
        return rows.take((rows.time >= self.span[0]) & (rows.time <= self.span[1]))

    def names_match(self, *names: str) -> bool:
        """Return whether something with these names is selected."""
        self._others += [name for name in names if name not in self._others]
        return self._globs.match(*names)

    def unmatched(self, functions: Functions) -> set[str]:
        """Globs that matched no function that occurs."""
        found = [self._globs, self.below, *(globs for globs, _ in self._switches)]
        for globs in found:
            globs.of(functions)
        return set[str]().union(*(globs.missing for globs in found))

    def require_match(
        self,
        functions: Functions,
        elsewhere: Collection[str] = (),
        where: str = "in the trace",
    ) -> None:
        """Raise UsageError for a glob that matched no function that occurs, nor ``elsewhere``;
        ``where`` the functions are, in the message."""
        missing = self.unmatched(functions).difference(elsewhere)
        if missing:
            raise no_match("filter", min(missing), functions, self._others, where)


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


def parse_least(text: str) -> int:
    """Parse ``10us`` to nanoseconds. Raises UsageError."""
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?) *(ns|us|ms|s)", text, re.ASCII)
    if found is None:
        reason = f"--time-filter {text!r} is not a time with a unit"
        raise UsageError(None, reason, "use ns, us, ms or s, as in --time-filter 10us")
    return min(int(Decimal(found[1]) * UNITS[found[2]]), ALWAYS[1])


def parse_trigger(text: str) -> tuple[str, bool]:
    """Parse ``GLOB@on`` and ``GLOB@off``. Raises UsageError."""
    glob, _, state = text.rpartition("@")
    if not glob or state not in ("on", "off"):
        reason = f"--trigger {text!r} is not GLOB@on or GLOB@off"
        raise UsageError(None, reason, "as in --trigger 'serve@on'")
    return glob, state == "on"
