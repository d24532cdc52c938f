# SPDX-License-Identifier: MIT
"""Room for the first injected call, before there is any memory for it, and for the last: what is
mapped between the end of a segment of code and the end of its page.

    | code of a library | nobody's | data ...
                        ^          ^ page
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ftpatch.arch.injected_call import InjectedCall, Step
from ftpatch.elf.headers import Segment
from ftpatch.errors import InputError
from ftpatch.process.loaded import Loaded
from ftpatch.process.memory_target import MemoryTarget

__all__ = ["Padding", "lend", "paddings_of"]

PAGE = 4096
ALIGN = 16


@dataclass(frozen=True)
class Padding:
    """``size`` executable bytes at an address that belong to no code."""

    address: int
    size: int


def paddings_of(loaded: Iterable[Loaded]) -> list[Padding]:
    """The paddings of the images of a process, the largest first."""
    out = []
    for one in loaded:
        for segment in one.file.elf.skeleton.segments:
            if segment.type != Segment.PT_LOAD or not segment.flags & Segment.PF_X:
                continue
            if segment.flags & Segment.PF_W:
                continue
            end = one.bias + segment.address + segment.memory_size
            start = (end + ALIGN - 1) // ALIGN * ALIGN
            out.append(Padding(start, -start % PAGE))
    return sorted(out, key=lambda padding: padding.size, reverse=True)


def lend(
    target: MemoryTarget,
    paddings: Iterable[Padding],
    call: InjectedCall,
    steps: Sequence[Step],
    *,
    make: Callable[[Sequence[Step]], bytes] | None = None,
) -> tuple[int, bytes, bytes]:
    """Choose a padding for an injected call, whose code ``make`` makes in place of InjectedCall's
    own; return its address, the bytes that stand there, and those of the call, as far as they are
    known before. Raises InputError if there is none."""
    code = (make or call.make)(steps)
    size = len(code) + call.tail_size
    for one in paddings:
        held = target.read(one.address, size) if one.size >= size else None
        if held is not None:
            return one.address, held, code
    raise InputError(
        None,
        f"{target.name}: no code of it leaves {size} bytes of its last page unused",
        "trace a copy of the file instead",
    )
