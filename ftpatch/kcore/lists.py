# SPDX-License-Identifier: MIT
"""Lists and hashes in a kernel's memory, which may be damaged: every walk has an end."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ftpatch.elf.btf import Btf, read_btf
from ftpatch.errors import InputError
from ftpatch.kcore.in_core import InCore

__all__ = ["Memory"]

MAX_WALK = 1 << 20
"""Maximum number of entries that a walk follows."""
WORD = 8


class Memory:
    """Structures of a kernel in a core, laid out as its BTF has it. Raises InputError for a kernel
    without BTF."""

    def __init__(self, kernel: InCore) -> None:
        btf = read_btf(kernel.file.elf)
        if btf is None:
            hint = "use a vmlinux built with CONFIG_DEBUG_INFO_BTF"
            raise InputError(
                kernel.path, "no .BTF section, which has the kernel's structures", hint
            )
        self.kernel = kernel
        self.btf: Btf = btf

    def symbol(self, name: str) -> int:
        """Address of a symbol in the running kernel; 0 if this kernel has none of that name."""
        at = self.kernel.file.symbols.find(name)
        return 0 if at is None else self.kernel.above(at)

    def word(self, address: int) -> int:
        """Read a word; 0 where the core does not have it."""
        return self.kernel.core.word(address, WORD) or 0

    def member(self, address: int, struct: str, name: str) -> int:
        """Read a pointer, or a word, of a structure; 0 where the core does not have it."""
        return self.word(address + self.btf.require(struct, name).offset[name])

    def linked(self, head: int, struct: str, node: str) -> Iterator[int]:
        """The structures on a list_head whose ``node`` links them."""
        offset = self.btf.require(struct, node).offset[node]
        seen, at = 0, self.word(head) if head else 0
        while at and at != head and seen < MAX_WALK:
            yield at - offset
            seen, at = seen + 1, self.word(at)

    def chained(self, first: int, struct: str, node: str) -> Iterator[int]:
        """The structures on an hlist, of which ``first`` is the head's pointer."""
        offset = self.btf.require(struct, node).offset[node]
        seen, at = 0, first
        while at and seen < MAX_WALK:
            yield at - offset
            seen, at = seen + 1, self.word(at)

    def heads(self, table: int, count: int) -> list[int]:
        """The first pointers of a table of hlist heads."""
        held, there = self.kernel.core.read(table, count * WORD)
        words = np.where(there, held, 0).astype(np.uint8).view("<u8").tolist()
        return [word for word in words if word]
