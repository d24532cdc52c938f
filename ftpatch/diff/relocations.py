"""Entries of relocation tables that differ, between images of one layout."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.diff.pairs import Row
from ftpatch.image.relocations import Form, Relocations
from ftpatch.sites import Sites

__all__ = ["relocation_differences"]


def relocation_differences(
    old: Sites, new: Sites, differing: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], list[Row]]:
    """Which of the differing file offsets, int64[n], lie in REL and RELA entries, and a row for
    each such entry."""
    before, after = old.image.relocations, new.image.relocations
    rows = np.flatnonzero(np.isin(before.form, [Form.REL, Form.RELA]))
    if not len(rows) or not len(differing):
        return np.zeros(len(differing), bool), []
    rows = rows[np.argsort(before.entry[rows], kind="stable")]
    start = before.entry[rows]
    words = np.where(before.form[rows] == Form.RELA, 3, 2)
    at = np.maximum(np.searchsorted(start, differing, side="right") - 1, 0)
    within = (differing >= start[at]) & (differing < start[at] + words[at] * old.image.elf.word)
    changed = rows[np.unique(at[within])]
    places = old.image.kallsyms.lookup(after.place[changed])
    out: list[Row] = []
    for row, (name, offset, _) in zip(changed.tolist(), places, strict=True):
        symbol = f"{name}+{offset:#x}" if name else ""
        texts = [_text(side, row, old.arch.relative) for side in (before, after)]
        out.append(
            ("relocation", int(after.place[row]), int(before.entry[row]), symbol, *texts)  # type: ignore[arg-type]
        )
    return within, out


def _text(relocations: Relocations, row: int, relative: int) -> str:
    kind = int(relocations.type[row])
    if kind == 0:
        return "none"
    name = "relative" if kind == relative else f"type {kind}"
    return f"{name} {int(relocations.addend[row]) & 0xFFFF_FFFF_FFFF_FFFF:#x}"
