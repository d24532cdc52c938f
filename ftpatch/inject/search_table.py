# SPDX-License-Identifier: MIT
"""The table by which unwinders find functions, of a program and of what is laid into it:
.eh_frame_hdr, or the exception index of 32-bit ARM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ftpatch.core.changes import Changes
from ftpatch.elf.eh_frame_hdr import merged_table, table_size
from ftpatch.elf.elf_file import Elf
from ftpatch.elf.exidx import continued, index_size, merged_index, moved
from ftpatch.elf.headers import Segment
from ftpatch.inject.stub import Stub

__all__ = ["SearchTable", "search_table"]


@dataclass(frozen=True)
class SearchTable:
    """A table to be made: ``kind``, the p_type of its program header, 0: there is none; ``size``,
    the most bytes that it takes; ``pack``, which takes the distance of the stub from its link
    address and where the table will be, and returns its bytes; ``changes``, which takes the
    distance, and returns the Changes to the program's own table."""

    kind: int
    size: int
    pack: Callable[[int, int], bytes]
    changes: Callable[[int], Changes]


def search_table(elf: Elf, stub: Stub, hops: Sequence[tuple[int, int]]) -> SearchTable:
    """The table of a program with a stub, and with ``hops``: link address of each, linked address
    of its FDE."""
    if stub.index[1]:
        index, entry = stub.index_rows(), stub.address("unwound_by")
        return SearchTable(
            Segment.PT_ARM_EXIDX,
            index_size(elf, len(index)),
            lambda shift, at: merged_index(elf, moved(index, shift), at),
            lambda shift: Changes.concat([]) if entry is None else continued(elf, entry + shift),
        )
    frame, rows = stub.unwind_rows()
    further = np.array(hops, np.int64).reshape(-1, 2)

    def pack(shift: int, at: int) -> bytes:
        if not stub.unwind:
            return b""
        added = np.concatenate([rows + shift, further + np.array([0, shift])])
        return merged_table(elf, frame + shift, added, at)

    kind = Segment.PT_GNU_EH_FRAME if stub.unwind else 0
    return SearchTable(
        kind, table_size(elf, len(rows) + len(further)), pack, lambda _: Changes.concat([])
    )
