# SPDX-License-Identifier: MIT
"""Exceptions that could not pass calls whose return addresses are replaced in a process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from ftpatch.errors import UsageError
from ftpatch.image import Image

__all__ = ["require_no_exceptions", "throws"]

THROWING: Final = (
    b"\0__gxx_personality_v0",
    b"\0_Unwind_RaiseException\0",
    b"\0St9type_info\0",
    b"failed to initiate panic",
)
"""Signs of code that throws, or that cleans up when others do, in what is loaded of a file: names
of .dynstr, and strings of the libraries of C++ and Rust. Every static program of glibc has the
unwinder itself; its name stands in .symtab, which is not loaded."""


def require_no_exceptions(images: Iterable[Image], otherwise: str) -> None:
    """Raise UsageError for an image that may throw, or let pass, exceptions: no unwinder finds
    return_to_handler in memory that belongs to no image, and the process would end. ``otherwise``:
    the hint."""
    for image in images:
        if throws(image):
            raise UsageError(
                image.path,
                "it may throw exceptions, which cannot pass calls whose return is traced",
                otherwise,
            )


def throws(image: Image) -> bool:
    """Test whether what is loaded of a file has one of THROWING."""
    loads = image.elf.loads.astype(np.int64).tolist()
    parts = (image.data[offset : offset + size].tobytes() for _, size, offset in loads)
    return any(name in part for part in parts for name in THROWING)
