# SPDX-License-Identifier: MIT
"""Differences between relocatable files besides sites: relocations of calls, section headers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.diff.site_pairs import Row
from ftpatch.elf.relocations import Form
from ftpatch.ftrace.sites import Sites
from ftpatch.image import Image

__all__ = ["call_entries", "header_differences"]

SIZE = {8: 64, 4: 40}
"""Bytes of a section header."""
EHSIZE = {8: 64, 4: 52}
"""Bytes of the ELF header."""


def call_entries(sites: Sites) -> list[tuple[NDArray[np.int64], int]]:
    """(file offsets, bytes of each) of the relocation entries at the sites of a relocatable file:
    what the pairs of sites tell already."""
    if not sites.image.is_relocatable:
        return []
    arch, relocations = sites.arch, sites.image.relocations
    place = sites.ip + np.uint64(arch.call_field)
    rows = relocations.at(place, (*arch.calls, arch.neutral))
    rows = rows[rows >= 0]
    words = 3 if (relocations.form[rows] == Form.RELA).all() else 2
    return [(relocations.entry[rows], words * sites.image.elf.word)]


def header_differences(
    old: Sites, new: Sites, differing: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], list[Row]]:
    """Find the differing file offsets, int64[n], that lie in the headers of relocatable files, and
    a row for each section header that says something else. Where the ELF header names another table
    of them, its sections are told instead."""
    if not old.image.is_relocatable:
        return np.zeros(len(differing), bool), []
    word = old.image.elf.word
    first, second = (sites.image.elf.skeleton for sites in (old, new))
    start, count = first.section_headers, len(first.sections)
    at = (differing - start) // SIZE[word]
    within = (differing >= start) & (at < count)
    told = np.unique(at[within]).tolist()
    moved = differing < EHSIZE[word]
    if moved.any() and second.section_headers != start:
        told = list(range(max(count, len(second.sections))))
    out: list[Row] = []
    for index in told:
        texts = [_text(sites.image, index) for sites in (old, new)]
        if texts[0] != texts[1]:
            name = (first if index < count else second).sections[index].name
            out.append(("header", None, start + index * SIZE[word], name, texts[0], texts[1]))
    return within | moved, out


def _text(image: Image, index: int) -> str:
    if index >= len(image.elf.sections):
        return ""
    section = image.elf.sections[index]
    return f"offset {section.offset:#x}, {section.size} bytes"
