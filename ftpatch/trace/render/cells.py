# SPDX-License-Identifier: MIT
"""Lines built from columns: their parts are matrices of bytes, in which a zero is skipped.

A line consists of the nonzero bytes of its parts; so numbers and names of any length fit into
matrices, and no line is built individually.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Cells", "decimals", "hexadecimals", "lines", "texts"]

ROOM = 1 << 22
"""Maximum size of a matrix of lines (bytes)."""
ZERO, SPACE, MINUS = 48, 32, 45
DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


@dataclass(frozen=True)
class Cells:
    """A part of n lines: rows ``index`` (intp[n]) of ``table`` (uint8[k, w]), or all rows in order
    if there is no index."""

    table: NDArray[np.uint8]
    index: NDArray[np.intp] | None = None

    def rows(self, part: slice) -> NDArray[np.uint8]:
        """Select some of them, uint8[m, w]."""
        return self.table[part] if self.index is None else self.table[self.index[part]]

    def where(self, mask: NDArray[np.bool_], text: bytes = b"") -> Cells:
        """Replace some of them, bool[n], by ``text``."""
        if not mask.any():
            return self
        table = self.rows(slice(None))
        out = np.zeros((len(table), max(table.shape[1], len(text))), np.uint8)
        out[:, : table.shape[1]] = table
        out[mask] = 0
        out[mask, : len(text)] = np.frombuffer(text, np.uint8)
        return Cells(out)


def texts(strings: Sequence[str | bytes], index: NDArray[np.integer] | None = None) -> Cells:
    """Make cells of texts; ``index`` selects each line's, otherwise they are in order."""
    raw = [
        one if isinstance(one, bytes) else one.encode("utf-8", "backslashreplace")
        for one in strings
    ]
    held = np.array(raw or [b""], bytes)
    table = held.view(np.uint8).reshape(len(held), held.itemsize)
    return Cells(table, None if index is None else index.astype(np.intp))


def decimals(values: NDArray[np.integer], *, least: int = 1, width: int = 0) -> Cells:
    """Format numbers, zero-padded to ``least`` digits; or blank-padded to ``width``, if none is
    negative."""
    negative = values < 0
    number = values.astype(np.uint64)
    number = np.where(negative, np.uint64(0) - number, number)
    most = int(number.max()) if len(number) else 0
    signs = int(negative.any())
    digits = max(len(str(most)), least, width - signs)
    out = np.empty((len(number), digits + signs), np.uint8)
    rest = number.astype(np.uint32) if most < 1 << 32 else number
    ten = rest.dtype.type(10)
    for column in range(digits - 1, -1, -1):
        whole = rest // ten
        cell = (rest - whole * ten).astype(np.uint8) + np.uint8(ZERO)
        if column < digits - least:
            blank = SPACE if column >= digits - width else 0
            cell[rest == 0] = blank
        out[:, column + signs] = cell
        rest = whole
    if signs:
        out[:, 0] = np.where(negative, MINUS, 0)
    return Cells(out)


def hexadecimals(values: NDArray[np.integer]) -> Cells:
    """Format numbers like ``%#x``, 0 as 0x0."""
    rest = values.astype(np.uint64)
    most = int(rest.max()) if len(rest) else 0
    digits = max((most.bit_length() + 3) // 4, 1)
    out = np.empty((len(rest), digits + 2), np.uint8)
    out[:, 0], out[:, 1] = ZERO, ord("x")
    for column in range(digits + 1, 1, -1):
        cell = DIGITS[(rest & np.uint64(15)).astype(np.intp)]
        if column < digits + 1:
            cell[rest == 0] = 0
        out[:, column] = cell
        rest = rest >> np.uint64(4)
    return Cells(out)


def lines(count: int, parts: Iterable[bytes | Cells]) -> list[bytes]:
    """Join parts to ``count`` lines; bytes are the same in each line, and no line end is added."""
    held = list(parts)
    width = sum(len(p) if isinstance(p, bytes) else p.table.shape[1] for p in held) + 1
    step = max(1, ROOM // width)
    out: list[bytes] = []
    for first in range(0, count, step):
        last = min(first + step, count)
        matrix = np.empty((last - first, width), np.uint8)
        at = 0
        for part in held:
            if isinstance(part, bytes):
                matrix[:, at : at + len(part)] = np.frombuffer(part, np.uint8)
                at += len(part)
            else:
                rows = part.rows(slice(first, last))
                matrix[:, at : at + rows.shape[1]] = rows
                at += rows.shape[1]
        matrix[:, at] = ord("\n")
        out += matrix[matrix != 0].tobytes().split(b"\n")[:-1]
    return out
