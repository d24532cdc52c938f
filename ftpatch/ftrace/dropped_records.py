# SPDX-License-Identifier: MIT
"""Consequences of a dropped record.

Booted 6.1 and 6.12 (tests/kernels/test_dropped_records.py): its ftrace does not list the site, and
everything that asks ftrace for it is refused. What it runs into is another matter: ftrace_caller
serves whoever calls it, and BPF pokes a function itself where ftrace does not manage it.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import State
from ftpatch.ftrace.callees import CALLERS
from ftpatch.ftrace.sites import Sites

__all__ = ["Unrecorded", "of_call", "of_nop", "unrecorded_sites"]


class Unrecorded(StrEnum):
    """The kinds of such sites; the value is the text for users."""

    TRACED = (
        "a running function tracer records these calls whatever its filter; "
        "kprobes, BPF fentry and live patching are refused there"
    )
    IGNORED = "ftrace ignores these calls; kprobes, BPF fentry and live patching are refused there"
    OUT = "these functions are out of reach of ftrace, kprobes, BPF fentry and live patching"
    POKED = (
        "these functions are out of reach of ftrace, kprobes and live patching; "
        "BPF fentry attaches all the same"
    )


def of_call(sites: Sites, addr: int, name: str = "") -> Unrecorded:
    """Classify a call of ``addr``. With CALL_OPS the literal decides, and ftpatch wrote
    ftrace_nop_ops there. ``name``: an entry that a module imports from its kernel."""
    symbols = sites.image.symbols
    entries = {int(at) for n in CALLERS for at in symbols.value[symbols.rows_named(n)]}
    entry = name in CALLERS or addr in entries
    return Unrecorded.TRACED if entry and not sites.abi.nop_ops else Unrecorded.IGNORED


def of_nop(sites: Sites, nop: bytes = b"") -> Unrecorded:
    """Describe a NOP; ``nop`` is its form, empty for the image's own."""
    own = sites.abi.nop
    poked = not sites.image.is_relocatable and own and (nop or own) == own == sites.arch.poked_nop
    return Unrecorded.POKED if poked else Unrecorded.OUT


def unrecorded_sites(sites: Sites) -> dict[Unrecorded, NDArray[np.intp]]:
    """Rows of the sites without a record in an image that has an ftrace_init, by kind."""
    found: dict[Unrecorded, list[NDArray[np.intp]]] = {}
    if sites.abi.kernel:
        targets, calls = sites.targets, sites.dropped & (sites.state == State.CALL)
        which = targets.index(sites.addr)
        for row in np.unique(which[calls]).tolist():
            kind = of_call(sites, int(targets.final[row]), targets.name[row])
            found.setdefault(kind, []).append(np.flatnonzero(calls & (which == row)))
        idle = sites.dropped & (sites.state == State.NOP)
        code, rows = np.unique(
            sites.code[idle, : sites.arch.insn_size], axis=0, return_inverse=True
        )
        for number, nop in enumerate(code):
            kind = of_nop(sites, nop.tobytes())
            found.setdefault(kind, []).append(np.flatnonzero(idle)[rows.ravel() == number])
    return {kind: np.sort(np.concatenate(found[kind])) for kind in Unrecorded if kind in found}
