# SPDX-License-Identifier: MIT
"""Functions of libraries whose returns cannot be probed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ftpatch.errors import UsageError
from ftpatch.names.functions import Functions
from ftpatch.probe.locations import Location

__all__ = ["require_return"]

KEEPING = ("swapcontext", "__swapcontext")
"""Functions that keep their return address in a structure of their caller's (ucontext_t)."""


def require_return(path: Path, functions: Functions, location: Location) -> None:
    """Raise UsageError for r probes on a function that copies its return address to where nobody
    finds it."""
    if all(one.kind != "r" for one in location.definitions) or location.ip not in _keeping(
        functions
    ):
        return
    names = ", ".join(one.event for one in location.definitions)
    place = functions.image.kallsyms.places(np.array([location.ip], np.uint64))[0]
    reason = f"{names}: {place} keeps its return address in memory of the program"
    raise UsageError(path, reason, "use a p probe")


def _keeping(functions: Functions) -> set[int]:
    """Link addresses of these functions."""
    return {
        int(table.value[row])
        for table, behind in functions.names.tables
        for name in KEEPING
        for row in table.rows_named(name + behind)
    }
