# SPDX-License-Identifier: MIT
"""Room for the first injected call, before there is any memory for it, and for the last: what is
mapped between the end of a segment of code and the end of its page.

    | code of a library | nobody's | data ...
                        ^          ^ page

The kernel's own image in the process, the vDSO, ends so too: a static program may have no other. It
is private memory, like any code (vdso(7)).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ftpatch.arch.injected_call import InjectedCall, Step
from ftpatch.elf.elf_file import Elf
from ftpatch.elf.headers import Segment
from ftpatch.errors import InputError
from ftpatch.process.loaded import Loaded
from ftpatch.process.maps import read_maps
from ftpatch.process.memory import opened_memory
from ftpatch.process.memory_target import MemoryTarget
from ftpatch.process.process import Process

__all__ = ["Padding", "lend", "paddings_of"]

PAGE = 4096
VDSO = b"[vdso]"
ALIGN = 16


@dataclass(frozen=True)
class Padding:
    """``size`` executable bytes at an address that belong to no code."""

    address: int
    size: int


def paddings_of(loaded: Sequence[Loaded]) -> list[Padding]:
    """The paddings of the images of a process, the largest first, and that of the vDSO. Raises
    InputError if it has ended, or may not be read."""
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
    out.sort(key=lambda padding: padding.size, reverse=True)
    return [*out, *_vdso_padding(loaded[0].process)] if loaded else out


def _vdso_padding(process: Process) -> list[Padding]:
    """What follows the headers and contents of the vDSO, in its last page."""
    mappings = [one for one in read_maps(process) if one.path == VDSO and one.executable]
    with opened_memory(process, mappings) as memory:
        for one in mappings:
            data, _ = memory.read(one.start, one.end - one.start)
            try:
                end = Elf.read(Path(os.fsdecode(VDSO)), data).end
            except InputError:
                continue
            start = max((end + ALIGN - 1) // ALIGN * ALIGN, len(data) - PAGE)
            if start < len(data) and not data[start:].any():
                return [Padding(one.start + start, len(data) - start)]
    return []


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
