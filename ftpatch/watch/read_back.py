# SPDX-License-Identifier: MIT
"""The locations of a program's watches, found through its stub's configuration."""

from __future__ import annotations

from dataclasses import dataclass

from ftpatch.image import Image
from ftpatch.inject.read_back import file_offset, injected_table
from ftpatch.inject.runtime import WATCH
from ftpatch.layout import offset_of

__all__ = ["InjectedWatches", "injected_watches"]


@dataclass(frozen=True, kw_only=True)
class InjectedWatches:
    """File offsets: of the table of watches, and of the size of a trace file."""

    table: int
    size: int


def injected_watches(image: Image) -> InjectedWatches | None:
    """Find a program's watches; None if it has none. Raises InputError for a stub that refers to a
    place outside the file."""
    found = injected_table(image, WATCH)
    if found is None:
        return None
    at, table = found
    size = at + offset_of("stub_config", "size")
    return InjectedWatches(table=file_offset(image, table, "watches"), size=size)
