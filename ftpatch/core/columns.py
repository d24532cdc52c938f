# SPDX-License-Identifier: MIT
"""Columns of addresses, numbers and texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["addresses", "among", "held", "looked_up", "objects", "stacked", "within"]


def addresses(*values: int) -> NDArray[np.uint64]:
    """Virtual addresses as uint64[n]. They wrap at 2^64, as they do in memory: what a file says can
    lie beyond either end."""
    return np.array([value & 0xFFFF_FFFF_FFFF_FFFF for value in values], np.uint64)


def among(column: NDArray[np.integer], values: Iterable[int]) -> NDArray[np.bool_]:
    """Test which numbers are one of a few values, bool[n]; for a handful np.isin takes ten times as
    long."""
    out = np.zeros(len(column), bool)
    for value in values:
        out |= column == column.dtype.type(value)
    return out


def held(column: NDArray[np.uint64], values: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Test which addresses are one of others, bool[n]; for a few thousand np.isin takes several
    times as long."""
    if not len(values):
        return np.zeros(len(column), bool)
    ordered = np.sort(values)
    row = np.minimum(np.searchsorted(ordered, column), len(ordered) - 1)
    return np.asarray(ordered[row] == column)


def looked_up(table: NDArray[np.uint8], column: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Look each number up in a table, uint8[n]; 0 for those beyond it. To index the table takes
    more than twice as long."""
    found = bytearray(column).translate(table.tobytes().ljust(256, b"\0"))
    return np.frombuffer(found, np.uint8)


def stacked(*parts: NDArray[np.void]) -> NDArray[np.void]:
    """Records of one dtype, one part after the other. (np.concatenate gives numbers of another byte
    order the machine's.)"""
    return np.frombuffer(b"".join(part.tobytes() for part in parts), parts[0].dtype).copy()


def objects(values: Sequence[object]) -> NDArray[np.object_]:
    """Texts, or other objects, as object[n]: each one whole, as pandas and polars take them."""
    out = np.empty(len(values), object)
    out[:] = values
    return out


def within(column: NDArray[np.uint64], bounds: tuple[int, int]) -> NDArray[np.bool_]:
    """Test which of the addresses are in a range, bool[n]: from its start to before its end."""
    return np.asarray((column >= bounds[0]) & (column < bounds[1]))
