"""Addresses as a column."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["addresses"]


def addresses(*values: int) -> NDArray[np.uint64]:
    """Virtual addresses as uint64[n]. They wrap at 2^64, as they do in memory: what a file says can
    lie beyond either end."""
    return np.array([value & 0xFFFF_FFFF_FFFF_FFFF for value in values], np.uint64)
