# SPDX-License-Identifier: MIT
"""Exceptions that could not pass calls whose return addresses are replaced in a process."""

from __future__ import annotations

from typing import Final

import numpy as np

from ftpatch.image import Image

__all__ = ["CANNOT_PASS", "throws"]

CANNOT_PASS: Final = "it may throw exceptions, which cannot pass calls whose return is traced"
"""The reason where they would end the process."""

THROWING: Final = (
    b"\0__gxx_personality_v0",
    b"\0_Unwind_RaiseException\0",
    b"\0St9type_info\0",
    b"failed to initiate panic",
)
"""Signs of code that throws, or that cleans up when others do, in what is loaded of a file: names
of .dynstr, and strings of the libraries of C++ and Rust. Every static program of glibc has the
unwinder itself; its name stands in .symtab, which is not loaded."""


def throws(image: Image) -> bool:
    """Test whether what is loaded of a file has one of THROWING."""
    loads = image.elf.loads.astype(np.int64).tolist()
    parts = (image.data[offset : offset + size].tobytes() for _, size, offset in loads)
    return any(name in part for part in parts for name in THROWING)
