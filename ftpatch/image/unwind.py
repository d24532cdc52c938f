"""Where functions begin, by the unwind information: what a stripped program still says.

.eh_frame_hdr (LSB core specification, "Exception Frames") has a sorted table of all functions:

    | 1 | ptr enc | count enc 03 | table enc 3b | eh_frame (4) | count (4) | (start, FDE)... |

with signed 32-bit distances from the section's own address, as every link editor writes it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.image.elf import Elf
from ftpatch.image.skeleton import Segment

__all__ = ["unwind_starts"]

HEAD = bytes([1, 0x1B, 0x03, 0x3B])
"""Version 1; pcrel sdata4; udata4; datarel sdata4."""


def unwind_starts(elf: Elf) -> NDArray[np.uint64]:
    """Start addresses of the functions, uint64[n], sorted; empty without such a table.

    Raises InputError where the table runs out of the file.
    """
    segment = elf.segment(Segment.PT_GNU_EH_FRAME)
    if segment is None or segment.size < 12:
        return np.empty(0, np.uint64)
    raw = elf.contents(segment.offset, segment.size, "unwind table").tobytes()
    if raw[:4] != HEAD:
        return np.empty(0, np.uint64)
    count = min(int.from_bytes(raw[8:12], "little"), (len(raw) - 12) // 8)
    table = np.frombuffer(raw, "<i4", 2 * count, 12).reshape(-1, 2)
    starts = (table[:, 0].astype(np.int64) + np.int64(segment.address)).view(np.uint64)
    return np.sort(starts)
