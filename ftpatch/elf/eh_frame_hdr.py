# SPDX-License-Identifier: MIT
"""The search table of unwinders, with the functions of a stub among those of the program.

    .eh_frame_hdr   version 1 | encodings 1b 03 3b | &.eh_frame - . | n | (function, FDE) ...
                                                                          from the table's start

Linux Standard Base, "Exception Frame Header".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.byte_order import LITTLE, ByteOrder
from ftpatch.elf.elf_file import Elf
from ftpatch.elf.headers import Segment
from ftpatch.errors import InputError

__all__ = ["merged_table", "read_table", "table_size"]

HEAD = b"\x01\x1b\x03\x3b"
"""Version; .eh_frame as a 4-byte offset, a 4-byte count, rows of two 4-byte offsets from the
table's start. All link editors write these."""
Rows = NDArray[np.int64]


def read_table(
    data: NDArray[np.uint8], address: int, where: str, order: ByteOrder = LITTLE
) -> tuple[int, Rows]:
    """Parse a table at ``address`` with the bytes ``data``, uint8[m]: the address of .eh_frame, and
    rows of (function, FDE), int64[n, 2], all addresses. Raises InputError for other encodings."""
    if len(data) < 12 or data[:4].tobytes() != HEAD:
        raise InputError(where, "unsupported encoding in .eh_frame_hdr")
    if address >= 1 << 62:
        raise InputError(where, ".eh_frame_hdr is at an invalid address")
    words = order.signed(data[: len(data) // 4 * 4], 4)
    count = int(words[2]) & 0xFFFF_FFFF
    if count > (len(words) - 3) // 2:
        raise InputError(where, ".eh_frame_hdr is truncated")
    return address + 4 + int(words[1]), words[3 : 3 + 2 * count].reshape(-1, 2) + address


def table_size(elf: Elf, added: int) -> int:
    """Upper bound of the size of merged_table() with that many more rows."""
    own = elf.segment(Segment.PT_GNU_EH_FRAME)
    return (own.size if own else 0) + len(HEAD) + 8 + 8 * added


def merged_table(elf: Elf, frame: int, added: Rows, address: int) -> bytes:
    """Build the table to be placed at ``address``: the image's own rows and the ``added``, int64[n,
    2] of addresses. ``frame``: address of .eh_frame if the image has no table.

    Raises InputError if an offset overflows.
    """
    own = elf.segment(Segment.PT_GNU_EH_FRAME)
    rows = added
    if own is not None:
        held = elf.contents(own.offset, own.size, ".eh_frame_hdr")
        frame, before = read_table(held, own.address, str(elf.path), elf.order)
        rows = np.concatenate([before, added])
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    words = np.concatenate([[frame - address - 4, len(rows)], (rows - address).reshape(-1)])
    if (np.abs(words) > 0x7FFF_FFFF).any():
        raise InputError(elf.path, "its unwind information is out of range")
    return HEAD + elf.order.rows(words, 4).tobytes()
