# SPDX-License-Identifier: MIT
"""Fields of the ELF header that differ (System V ABI, chapter 4, "ELF Header")."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.diff.site_pairs import Row
from ftpatch.ftrace.sites import Sites

__all__ = ["field_differences"]

FIELDS = (
    ("e_type", 2),
    ("e_machine", 2),
    ("e_version", 4),
    ("e_entry", 0),
    ("e_phoff", 0),
    ("e_shoff", 0),
    ("e_flags", 4),
    ("e_ehsize", 2),
    ("e_phentsize", 2),
    ("e_phnum", 2),
    ("e_shentsize", 2),
    ("e_shnum", 2),
    ("e_shstrndx", 2),
)
"""Behind e_ident, in their order: name, bytes; 0 for a word."""
IDENT = 16


def field_differences(
    old: Sites, new: Sites, differing: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], list[Row]]:
    """Find the differing file offsets, int64[n], that lie in the ELF header, and a row for each of
    its fields that differ. An Image has none."""
    out: list[Row] = []
    if not old.image.elf.has_header:
        return np.zeros(len(differing), bool), out
    at = IDENT
    for name, size in FIELDS:
        end = at + (size or old.image.elf.word)
        if ((differing >= at) & (differing < end)).any():
            sides = [s.image.elf.order.integer(s.image.data[at:end]) for s in (old, new)]
            out.append(("header", None, at, name, hex(sides[0]), hex(sides[1])))
        at = end
    return (differing >= IDENT) & (differing < at), out
