# SPDX-License-Identifier: MIT
"""Where two files differ, byte by byte."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .independent import R_NONE, Vmlinux

__all__ = ["different_bytes", "other_relocations", "spread"]

STEP = 1 << 26  # bytes compared at a time


def different_bytes(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Offsets at which two files differ, up to the length of the first."""
    assert len(b) >= len(a), "the file has become shorter"
    found = [np.zeros(0, np.int64)]
    for start in range(0, len(a), STEP):
        one, two = a[start : start + STEP], b[start : min(start + STEP, len(a))]
        found.append(np.flatnonzero(one != two) + start)
    return np.concatenate(found)


def spread(starts: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    """All the offsets of ranges of one width."""
    return (starts[:, None] + np.arange(width)).reshape(-1)


def other_relocations(image: Vmlinux) -> list[tuple[int, int, int]]:
    """The entries of .rela.dyn that are neither RELATIVE nor NONE."""
    info = image.rela["info"]
    rows = image.rela[(info != R_NONE) & (info != image.relative_type)]
    return sorted((int(r["offset"]), int(r["info"]), int(r["addend"])) for r in rows)
