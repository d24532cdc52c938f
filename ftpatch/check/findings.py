"""What a check says."""

from __future__ import annotations

from dataclasses import dataclass

from ftpatch.forecast import Forecast

__all__ = ["Check", "Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken invariant; ``ip`` is the site's or record's address, ``symbol`` where that is
    (``vfs_read+0x4``; empty where no symbol tells), ``bug`` ftrace_bug's text."""

    invariant: str
    ip: int
    symbol: str
    message: str
    bug: str = ""

    @property
    def function(self) -> str:
        """The function that it is in, without an offset; the address where no symbol tells."""
        return self.symbol.rpartition("+")[0] or hex(self.ip)


@dataclass(frozen=True, slots=True)
class Check:
    """All findings, those of them apart that a baseline knows, and, for a kernel, what its
    ftrace_init will do."""

    findings: tuple[Finding, ...]
    forecast: Forecast | None
    known: tuple[Finding, ...] = ()
