# SPDX-License-Identifier: MIT
"""Injected tables, located through the stub's configuration."""

from __future__ import annotations

import numpy as np

from ftpatch.errors import InputError
from ftpatch.image import Image
from ftpatch.image.injected import laid_in_at
from ftpatch.inject.runtime import Tracer
from ftpatch.layout import structure, unpack

__all__ = ["file_offset", "injected_table"]


def injected_table(image: Image, tracer: Tracer) -> tuple[int, int] | None:
    """Return the configuration's file offset, and the link address of this tracer's table; None if
    nothing was injected, or something else."""
    at = laid_in_at(image)
    if at is None:
        return None
    size = structure("stub_config").itemsize
    raw = image.elf.contents(at, size, "configuration of its stub").tobytes()
    held = unpack("stub_config", raw)
    return (at, held["probes"]) if held["tracer"] == tracer.number else None


def file_offset(image: Image, address: int, what: str) -> int:
    """Return the file offset of a table. Raises InputError if it is not in the file."""
    offset = int(image.elf.offset_of(np.array([address], np.uint64))[0])
    if offset < 0:
        raise InputError(image.path, f"its table of {what} is not in the file: {address:#x}")
    return offset
