# SPDX-License-Identifier: MIT
"""Kernels that test a record for null before ftrace_call_adjust, skip those that are not in their
text, and do not count them.

    table begins with nulls   scripts/sorttable.c has put those of overridden weak functions there
    words of a warning        "Extra allocated pages for ftrace: %lu with %lu skipped"

Either is a sign: architectures whose tables sorttable.c leaves alone have the second one only.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.image import Image

__all__ = ["skips_null"]

SKIPPED: Final = b"Extra allocated pages for ftrace: "


def skips_null(image: Image, value: NDArray[np.uint64]) -> bool:
    """Return whether the kernel of an image, whose table has these values, does so."""
    if (value[:1] == 0).any():
        return True
    if not image.is_kernel:
        return False
    words = image.elf.section(".rodata")
    places = [(words.offset, words.size)] if words else image.elf.loads[:, [2, 1]].tolist()
    parts = (image.elf.data[start : start + size].tobytes() for start, size in places)
    return any(SKIPPED in part for part in parts)
