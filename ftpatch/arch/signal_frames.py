# SPDX-License-Identifier: MIT
"""Signal frames on a stack: the places at which threads go on after their handlers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import feature

__all__ = ["SavedAt", "saved_instruction_pointers"]

SavedAt = Callable[[NDArray[np.uint64]], NDArray[np.uint64]]
"""Takes the words of a stack, uint64[n], and returns those that a signal frame has as its
instruction pointer, uint64[m]. It may take other words for one, and overlooks none."""


def saved_instruction_pointers(arch: str, words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The instruction pointers that signal frames among the words of a stack hold, uint64[m].
    Raises InputError for an architecture whose frames are not known."""
    saved_at: SavedAt = feature(arch, "signal_frames")
    return saved_at(words)
