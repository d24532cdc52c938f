# SPDX-License-Identifier: MIT
"""Signal frames on a stack: the signals that threads block again after their handlers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import feature
from ftpatch.arch.signal_frames import SavedAt

__all__ = ["saved_masks"]


def saved_masks(arch: str, words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The masks that signal frames among the words of a stack hold, uint64[m], one bit for each
    signal. Raises InputError for an architecture whose masks are not known."""
    masks_at: SavedAt = feature(arch, "signal_masks")
    return masks_at(words)
