"""Where a program that has watches keeps them: found again by what its stub says."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ftpatch.errors import InputError
from ftpatch.image import Image
from ftpatch.image.traced import laid_in_at
from ftpatch.inject.tracers import CONFIG, WATCH

__all__ = ["Laid", "laid_watches"]

SIZE_AT = 40
"""Of `size` in struct stub_config (stubs/runtime/runtime.h), bytes."""


@dataclass(frozen=True)
class Laid:
    """File offsets: of the table of watches, and of the size of a trace file."""

    table: int
    size: int


def laid_watches(image: Image) -> Laid | None:
    """What was laid in; None where nothing was, or something else. Raises InputError for a stub
    that names a place outside of the file."""
    at = laid_in_at(image)
    if at is None:
        return None
    held = image.elf.contents(at, CONFIG.size, "configuration of its stub").tobytes()
    _, _, _, _, _, _, _, tracer, *_, table, _ = CONFIG.unpack(held)
    if tracer != WATCH.number:
        return None
    offset = int(image.elf.offset_of(np.array([table], np.uint64))[0])
    if offset < 0:
        raise InputError(image.path, f"its table of watches is not in the file: {table:#x}")
    return Laid(offset, at + SIZE_AT)
