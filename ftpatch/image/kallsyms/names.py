# SPDX-License-Identifier: MIT
"""The names of a kernel's own symbols, all at once.

    packed    | 04 | 54 5f e3 78 | 83 01 | 74 ...          length, tokens; length, tokens
    tokens      "T" "_" "te" "xt"         "t" ...          the first character is the type
    names     | 0 |  _ t e x t   | 0 |   ...

Each packed byte becomes a piece of the result: a token's string, without the type where it comes
first; a NUL for the (first) byte of a length. kallsyms_expand_symbol() in kernel/kallsyms.c.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.image.kallsyms.tables import Tables

__all__ = ["read_names"]

LIMIT = 1 << 25
"""Maximum total size of names; those of 200,000 symbols have 5 MB."""


def read_names(
    data: NDArray[np.uint8], tables: Tables
) -> tuple[NDArray[np.uint8], NDArray[np.uint32], NDArray[np.uint8]] | None:
    """Unpack the n symbols' types (ASCII, as nm prints them) uint8[n], where their names begin
    uint32[n], and the names, each between NUL bytes, uint8[m]. None if the result is not valid
    names."""
    packed = data[tables.names : tables.end]
    string = tables.index.astype(np.int64)
    size = np.diff(string, append=string[-1:]) - 1  # of each token, without its NUL
    size[-1] = (tables.tokens[string[-1] :] == 0).argmax()
    # What each packed byte becomes: where that begins in the tokens, and how many bytes it has.
    start, count = string[packed], size[packed]
    head = tables.first - tables.names
    if (count[head] == 0).any():
        return None
    kind = tables.tokens[start[head]]
    start[head] += 1
    count[head] -= 1
    wide = np.flatnonzero(np.diff(head + tables.length, prepend=0) - tables.length == 2)
    count[head[wide] - 1] = 0
    nul = head - 1
    nul[wide] -= 1
    start[nul], count[nul] = string[1] - 1, 1
    end = np.cumsum(count)
    if end[-1] > LIMIT:
        return None
    source = np.repeat((start - end + count).astype(np.int32), count)  # fits: LIMIT
    source += np.arange(len(source), dtype=np.int32)
    text = np.append(tables.tokens[source], np.uint8(0))
    return kind, end[nul].astype(np.uint32), text
