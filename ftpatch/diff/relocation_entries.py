# SPDX-License-Identifier: MIT
"""Entries of relocation tables that differ, between images of one layout."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.diff.site_pairs import Row
from ftpatch.elf.relocations import Form, Relocations
from ftpatch.ftrace.sites import Sites

__all__ = ["relocation_differences"]


def relocation_differences(
    old: Sites, new: Sites, differing: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], list[Row]]:
    """Find the differing file offsets, int64[n], that lie in REL and RELA entries, and a row for
    each such entry."""
    # Bitmaps of RELR give more or fewer rows than before, entries of the other forms do not.
    before, after = (_by_entry(sites.image.relocations) for sites in (old, new))
    if not len(before) or not len(differing) or len(before) != len(after):
        return np.zeros(len(differing), bool), []
    start = old.image.relocations.entry[before]
    forms = old.image.relocations.form[before]
    words = np.where(forms == Form.RELA, 3, 2)
    at = np.maximum(np.searchsorted(start, differing, side="right") - 1, 0)
    within = (differing >= start[at]) & (differing < start[at] + words[at] * old.image.elf.word)
    changed = np.unique(at[within])
    was, becomes = old.image.relocations, new.image.relocations
    places = old.image.kallsyms.places(becomes.place[after[changed]])
    out: list[Row] = []
    for row, symbol in zip(changed.tolist(), places, strict=True):
        first = _text(was, int(before[row]), old.arch.relative)
        second = _text(becomes, int(after[row]), old.arch.relative)
        place = int(becomes.place[after[row]])
        out.append(("relocation", place, int(start[row]), symbol, first, second))
    return within, out


def _by_entry(relocations: Relocations) -> NDArray[np.intp]:
    """Rows of REL and RELA entries, in the order of the file."""
    rows = np.flatnonzero(np.isin(relocations.form, [Form.REL, Form.RELA]))
    return rows[np.argsort(relocations.entry[rows], kind="stable")]


def _text(relocations: Relocations, row: int, relative: int) -> str:
    kind = int(relocations.type[row])
    if kind == 0:
        return "none"
    name = "relative" if kind == relative else f"type {kind}"
    return f"{name} {int(relocations.addend[row]) & 0xFFFF_FFFF_FFFF_FFFF:#x}"
