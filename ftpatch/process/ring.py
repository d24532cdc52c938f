# SPDX-License-Identifier: MIT
"""The ring that BPF programs write accesses to, in the order in which they took place there.

    | consumer's page | producer's page | records | the same records once more |

A record follows eight bytes, whose first four are its length and two flags. The second mapping of
the same memory lets a record that goes over the end be read as if it did not
(kernel/bpf/ringbuf.c).
"""

from __future__ import annotations

import mmap
import os
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.process.bpf import RECORD

__all__ = ["Ring"]

HEAD: Final = 8
"""Bytes before a record."""
BUSY: Final = 1 << 31
"""BPF_RINGBUF_BUSY_BIT: still being written."""


class Ring:
    """Takes records out of a ring, of which ``fd`` is the descriptor and ``size`` the bytes."""

    def __init__(self, fd: int, size: int, record: np.dtype[np.void] = RECORD) -> None:
        self.fd, self._size = fd, size
        self._slot = np.dtype([("length", "<u4"), ("page", "<u4"), ("record", record)])
        page = mmap.PAGESIZE
        self._consumer = mmap.mmap(fd, page, mmap.MAP_SHARED)
        self._held = mmap.mmap(fd, page + 2 * size, mmap.MAP_SHARED, mmap.PROT_READ, offset=page)
        self._at = 0

    def take(self) -> NDArray[np.void]:
        """Take what has been written since: the records, [n]."""
        end = int.from_bytes(self._held[:HEAD], "little")
        count = (end - self._at) // self._slot.itemsize
        place = mmap.PAGESIZE + self._at % self._size
        slots = np.frombuffer(self._held, self._slot, count, place)
        busy = np.flatnonzero(slots["length"] & BUSY)
        out = slots["record"][: busy[0] if len(busy) else count].copy()
        del slots  # else the mapping could not be closed
        self._at += len(out) * self._slot.itemsize
        self._consumer[:HEAD] = self._at.to_bytes(HEAD, "little")
        return out

    def close(self) -> None:
        """Unmap it, and close its descriptor."""
        self._consumer.close()
        self._held.close()
        os.close(self.fd)
