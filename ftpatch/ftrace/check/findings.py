# SPDX-License-Identifier: MIT
"""Findings of a check: as rules give them, in columns, and as reports show them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.ftrace.ftrace_init import FtraceInit
from ftpatch.ftrace.sites import Sites

__all__ = ["Broken", "Check", "Finding", "Note", "broken"]

Broken = tuple[NDArray[np.uint64], list[str]]
"""Addresses at which an invariant is broken, uint64[m], and what is wrong at each."""


def broken(sites: Sites, mask: NDArray[np.bool_], message: str) -> Broken:
    """The sites in ``mask``, bool[n], with one message for all."""
    ip = sites.ip[mask]
    return ip, [message] * len(ip)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One broken invariant; ``ip`` is the site's or record's address (None if it is about the whole
    image), ``symbol`` where that is (``vfs_read+0x4``; empty where no symbol tells), ``bug``
    ftrace_bug's text; ``bias``: ip in a process less what it is in the image's file."""

    invariant: str
    ip: int | None
    symbol: str
    message: str
    bug: str = ""
    bias: int = 0

    @property
    def linked(self) -> int:
        """The address in the image's file, 0 if it is about the whole image."""
        return (self.ip or 0) - self.bias

    @property
    def function(self) -> str:
        """The function that it is in, without an offset; the address where no symbol tells."""
        return self.symbol.rpartition("+")[0] or self.symbol or hex(self.linked)


@dataclass(frozen=True, slots=True)
class Note:
    """A remark on what is intended, and yet worth knowing: sites by address and by name (empty
    where no symbol tells), and what is so of them."""

    message: str
    ip: tuple[int, ...]
    symbols: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """A word for each site: its function, or its address."""
        pairs = zip(self.ip, self.symbols, strict=True)
        return tuple(symbol.rpartition("+")[0] or hex(ip) for ip, symbol in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """All findings, those of them apart that a baseline knows; for a kernel, what its ftrace_init
    will do; notes on sites; ``recorded``, if asked for: the functions that have a record. ``bare``:
    there is no table, and so nothing to check but, in the process ``pid`` (0: it is a file's
    check), its code. ``source``: where the file of that can be read now; ``core``: the dump that a
    kernel's text was read from."""

    findings: tuple[Finding, ...]
    ftrace_init: FtraceInit | None
    known: tuple[Finding, ...] = ()
    notes: tuple[Note, ...] = ()
    recorded: tuple[str, ...] = ()
    bare: bool = False
    pid: int = 0
    source: Path | None = None
    core: Path | None = None
