# SPDX-License-Identifier: MIT
"""A tracer, watches, or both, laid into a program with its probes: in one stub.

site     call ftrace_site_caller        the tracer's, of functions that begin there
         ...
probe    jmp detour                     behind the site where it is on the same function
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ftpatch.inject.runtime import PROBES, TRACERS, Tracer, together_stub
from ftpatch.inject.stub import Stub
from ftpatch.layout import constants

__all__ = ["SITE_CALLER", "TOGETHER", "Beside"]

SITE_CALLER = "ftrace_site_caller"
"""The function that sites call in this stub; detours have its ftrace_caller."""
TOGETHER = tuple(name for name in ("function", "function_graph") if name in TRACERS)
"""Tracers whose events can be recorded together with others."""


@dataclass(frozen=True, kw_only=True)
class Beside:
    """Everything laid in with probes: the ``tracer`` and ``sites`` that call it, the end of each
    one's code by its start (link addresses); the table of ``watches`` with their rules behind it,
    from byte ``rules`` on, and their libraries, from ``homes`` on, and the table of ``hooks`` for
    them, empty without any."""

    tracer: Tracer | None = None
    sites: Mapping[int, int] = field(default_factory=dict)
    watches: bytes = b""
    hooks: bytes = b""
    rules: int = 0
    homes: int = 0

    @property
    def recorded(self) -> Tracer:
        """The tracer that the trace is of."""
        return self.tracer or PROBES

    @property
    def flags(self) -> int:
        """enum trace_flags, of its configuration."""
        watched = constants["TRACE_WATCHES"] if self.watches else 0
        return constants["TRACE_TOGETHER"] | watched

    @property
    def parts(self) -> int:
        """Segments besides the stub's own."""
        return 2 * bool(self.watches)

    def stub(self, arch: str) -> Stub:
        """The stub. Raises InputError for an architecture without one."""
        return together_stub(arch, watches=bool(self.watches))

    def overlaps(self, start: int, end: int) -> bool:
        """Test whether a site has bytes in a range of link addresses."""
        before = bisect_left(self._starts, end) - 1  # sites do not overlap
        return before >= 0 and self.sites[self._starts[before]] > start

    @cached_property
    def _starts(self) -> list[int]:
        return sorted(self.sites)
