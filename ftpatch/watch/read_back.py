"""Where a program that has watches keeps them: found again by what its stub says."""

from __future__ import annotations

from dataclasses import dataclass

from ftpatch.image import Image
from ftpatch.inject.read_back import file_offset, laid_table
from ftpatch.inject.runtime import WATCH
from ftpatch.layout import offset_of

__all__ = ["Laid", "laid_watches"]


@dataclass(frozen=True)
class Laid:
    """File offsets: of the table of watches, and of the size of a trace file."""

    table: int
    size: int


def laid_watches(image: Image) -> Laid | None:
    """What was laid in; None where nothing was, or something else. Raises InputError for a stub
    that names a place outside of the file."""
    found = laid_table(image, WATCH)
    if found is None:
        return None
    at, table = found
    return Laid(file_offset(image, table, "watches"), at + offset_of("stub_config", "size"))
