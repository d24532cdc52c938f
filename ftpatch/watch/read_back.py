"""Watches inserted into a program, found again by its stub's configuration."""

from __future__ import annotations

from dataclasses import dataclass

from ftpatch.image import Image
from ftpatch.inject.read_back import file_offset, laid_table
from ftpatch.inject.runtime import WATCH

__all__ = ["Laid", "laid_watches"]

SIZE_AT = 40
"""Of `size` in struct stub_config (stubs/runtime/runtime.h), bytes."""


@dataclass(frozen=True)
class Laid:
    """File offsets: of the table of watches, and of the size of a trace file."""

    table: int
    size: int


def laid_watches(image: Image) -> Laid | None:
    """Find what was inserted; None if nothing was, or something else. Raises InputError for a stub
    that names a place outside of the file."""
    found = laid_table(image, WATCH)
    if found is None:
        return None
    at, table = found
    return Laid(file_offset(image, table, "watches"), at + SIZE_AT)
