# SPDX-License-Identifier: MIT
"""The link address of an image without headers: the one at which its pointers fit.

A kernel is full of pointers to strings, in the words of its data or, where those are filled at
boot, in the addends of its relocations, which are words of the file as well. A string begins after
a NUL byte. In kernels, a fifth of all pointers lead to one; after moving all by 64 KiB, a third of
those still do by chance.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["find_link_base"]

STEP = 1 << 16
"""Minimum alignment of a kernel in bytes (arm64: Documentation/arch/arm64/booting.rst requires 2
MiB and, before v5.8, an offset of 512 KiB; riscv64: 2 MiB)."""
BUCKET = 21
"""log2 of the bucket size in which pointers are counted, to see where most of them lead."""
SAMPLE = 4096
"""Pointers to test at each address."""
LETTERS = 4
"""Minimum printable characters at a string's start."""
TYPES = 1 << 12
"""All relocation types are below."""
LEAST = 32
"""Minimum strings that the best address must lead to, and twice as many as the second best."""


def find_link_base(data: NDArray[np.uint8], memory: int, lowest: int) -> int | None:
    """Virtual address of the first byte of ``data`` (uint8[size], little-endian words of 8 bytes),
    which takes ``memory`` bytes at run time, ``lowest`` or above. None if no address stands out."""
    size = len(data)
    if size < 8 or memory >> BUCKET > size:
        return None
    word: NDArray[np.uint64] = data[: size // 8 * 8].view("<u8")
    # A word before a small number may be a relocation's place, before its type: not a pointer.
    place = np.append((word[1:] > 0) & (word[1:] < TYPES), False)
    pointer = word[(word >= np.uint64(lowest)) & ~place]
    if not len(pointer):
        return None
    # Find where in memory most of them lead, within the space that the image takes.
    bucket, count = np.unique(pointer >> np.uint64(BUCKET), return_counts=True)
    space = np.uint64((max(memory, size) >> BUCKET) + 2)
    until = np.append(0, np.cumsum(count))
    share = until[np.searchsorted(bucket, bucket + space)] - until[:-1]
    first = bucket[int(share.argmax())]
    pointer = pointer[(pointer >> np.uint64(BUCKET)) - first < space]
    if not len(pointer):
        return None
    some = np.random.default_rng(0)  # tables are periodic, and many pointers lead to one place
    pointer = np.unique(pointer[some.integers(len(pointer), size=4 * SAMPLE)])
    pointer = some.permutation(pointer)[:SAMPLE]
    low = int(first) << BUCKET
    bases = range(max(low - int(space << np.uint64(BUCKET)), lowest), low + (1 << BUCKET), STEP)
    scores = [_strings(data, pointer, base) for base in bases]
    order = np.argsort(scores)
    best = scores[order[-1]]
    if best < LEAST or (len(order) > 1 and best < 2 * scores[order[-2]]):
        return None
    return bases[int(order[-1])]


def _strings(data: NDArray[np.uint8], pointer: NDArray[np.uint64], base: int) -> int:
    """Count the pointers that lead to a string, if the data begins at ``base``."""
    at = (pointer - np.uint64(base)).view(np.int64)
    at = at[(at > 0) & (at < len(data) - LETTERS)]
    at = at[data[at - 1] == 0]
    for letter in range(LETTERS):
        at = at[data[at + letter] - 32 < 95]
    return len(at)
