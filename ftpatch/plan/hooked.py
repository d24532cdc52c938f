"""Hooks as they are laid in: a table for the runtime, and what static programs have for slots.

function of libc      jmp hooked_...   |   further on     <-.
laid in               its first instructions, jmp ----------'   behind a pad, for it is called
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from ftpatch.arch.move import Mover
from ftpatch.changes import Changes
from ftpatch.image import Image
from ftpatch.inject.stub import Stub
from ftpatch.plan.displaced import displaced
from ftpatch.plan.hooks import Hooks
from ftpatch.plan.places import Chooser

__all__ = ["LaidHooks", "with_hooks"]

TABLE = struct.Struct("<2Q2I")
"""sealed from and to | how many, 0."""
HOOK = struct.Struct("<Q2I")
"""place | which, kind."""
SLOT, CODE = 0, 1
"""enum hook_kind."""
ALIGN = 16


@dataclass(frozen=True)
class LaidHooks:
    """``starts``: linked addresses of the displaced instructions of ``hooks.code``, ``table`` that
    of struct hook_table."""

    hooks: Hooks
    chooser: Chooser
    pad: bytes
    starts: Sequence[int]
    table: int

    def fill(self, shift: int) -> dict[int, bytes]:
        """What is to stand there, by linked address, ``shift`` bytes further up."""
        rows = [HOOK.pack(slot.place, slot.which, SLOT) for slot in self.hooks.slots]
        filled = {}
        for (which, chosen), start in zip(self.hooks.code, self.starts, strict=True):
            filled[start] = (
                self.pad + self.chooser.moved(chosen, start + shift + len(self.pad)).code
            )
            rows.append(HOOK.pack(start + shift, which, CODE))
        head = TABLE.pack(*self.hooks.sealed, len(rows), 0)
        return filled | {self.table: head + b"".join(rows)}

    def changes(self, image: Image, mover: Mover, stub: Stub, shift: int) -> list[Changes]:
        """The jumps to the runtime, which was linked as ``stub``."""
        return [
            displaced(
                image,
                chosen,
                mover.jump(chosen.address, (stub.address(which.wrapper) or 0) + shift),
            )
            for which, chosen in self.hooks.code
        ]


def with_hooks(
    stub: Stub, page: int, hooks: Hooks, chooser: Chooser, mover: Mover
) -> tuple[Stub, LaidHooks]:
    """The stub with room for hooks, and where they are in it."""
    offsets, end = [], 0
    for _, chosen in hooks.code:
        offsets.append(end)
        end += len(mover.pad + chooser.moved(chosen, chosen.address).code)
        end = (end + ALIGN - 1) // ALIGN * ALIGN
    code_at = 0
    if end:
        stub, code_at = stub.with_code(bytes(end), page)
    size = TABLE.size + HOOK.size * (len(hooks.slots) + len(hooks.code))
    stub, table = stub.with_data(bytes(size), page)
    starts = [code_at + offset for offset in offsets]
    return stub, LaidHooks(hooks, chooser, mover.pad, starts, table)
