# SPDX-License-Identifier: MIT
"""Tables that were injected into a program, found again by its stub's configuration."""

from __future__ import annotations

import numpy as np

from ftpatch.errors import InputError
from ftpatch.image import Image
from ftpatch.image.injected import laid_in_at
from ftpatch.inject.runtime import Tracer
from ftpatch.layout import structure, unpack

__all__ = ["file_offset", "injected_table"]


def injected_table(image: Image, tracer: Tracer) -> tuple[int, int] | None:
    """File offset of the configuration, and link address of the table that this tracer's has; None
    where nothing was inserted, or something else."""
    at = laid_in_at(image)
    if at is None:
        return None
    size = structure("stub_config").itemsize
    raw = image.elf.contents(at, size, "configuration of its stub").tobytes()
    held = unpack("stub_config", raw)
    return (at, held["probes"]) if held["tracer"] == tracer.number else None


def file_offset(image: Image, address: int, what: str) -> int:
    """File offset of a table. Raises InputError for one that is outside of it."""
    offset = int(image.elf.offset_of(np.array([address], np.uint64))[0])
    if offset < 0:
        raise InputError(image.path, f"its table of {what} is not in the file: {address:#x}")
    return offset
