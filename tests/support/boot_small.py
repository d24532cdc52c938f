# SPDX-License-Identifier: MIT
"""A small x86_64 kernel that a boot tracer fits in, and streams as its tracer would send them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

from ftpatch.boot import find_source
from ftpatch.image import open_image
from tests.support.command import ftpatch
from tests.support.elf_writer import (
    PF_R,
    PF_W,
    SHF_ALLOC,
    SHF_WRITE,
    Image,
    Section,
    Segment,
    Symbol,
)
from tests.support.images import FUNCTIONS, STEP, fentry_kernel, section, symbols_at

__all__ = ["BASE", "DATA", "GAP", "STACKS", "bootable", "enabled", "stream"]

BASE = 0xFFFF_FFFF_8100_0000
GAP = 2048
DATA = BASE + 0x20000
STACKS = (0xFFFF_C900_0001_4000, 0xFFFF_C900_0002_4000)
"""Ends of two tasks' stacks."""
MARKER = 0xF7


def bootable(
    gap: int = GAP, *, nosave: bytes | None = bytes(4096), extra: int = 0, sized: bool = True
) -> Image:
    """``gap`` bytes of int3 behind the functions, then one more function; a page for what
    hibernation leaves out, or none; ``extra``: bytes by which the last function before the gap is
    larger than it looks; ``sized``: functions have sizes, which a kernel's own kallsyms lack."""
    image = fentry_kernel()
    text = section(image, ".text")
    end = BASE + len(text.data)
    text.data += b"\xcc" * gap + b"\xc3" * 16
    kept = [s for s in image.symbols if s.name != "_etext"]
    image.symbols = [
        dataclasses.replace(s, size=s.size + extra) if s.name == FUNCTIONS[-1] else s for s in kept
    ]
    image.symbols += [
        Symbol("behind_the_gap", end + gap, 16),
        Symbol("_etext", end + gap + 16, type=0),
        Symbol("an_alias", symbols_at(BASE)["vfs_write"], STEP),
        Symbol("no_site_here", BASE + 40, 8),
        Symbol("an_object", DATA + 4096, 4, type=1, section=".data"),
        Symbol("another", DATA + 4096 + 64, 64, type=1, section=".data"),
    ]
    data = (b"\1" * 4096 if nosave is None else nosave) + b"\1" * 4 + bytes(60) + b"\1" * 64
    if nosave is not None:
        image.symbols += [
            Symbol("__nosave_begin", DATA, type=0, section=".data"),
            Symbol("in_suspend", DATA, 4, type=1, section=".data"),
            Symbol("__nosave_end", DATA + 4096, type=0, section=".data"),
        ]
    if not sized:
        image.symbols = [dataclasses.replace(s, size=0) for s in image.symbols]
    image.sections.append(Section(".data", data, DATA, flags=SHF_ALLOC | SHF_WRITE))
    image.segments.append(Segment((".data",), PF_R | PF_W))
    return image


def enabled(folder: Path, *words: str) -> Path:
    """A kernel with a tracer in it."""
    plain, path = folder / "vmlinux", folder / "vmlinux.boot"
    plain.write_bytes(bootable().build())
    done = ftpatch("enable", plain, "--tracer", "boot", "-o", path, *words)
    assert done.code == 0, done.err
    return path


def stream(image: Path, events: Iterable[tuple[str, int] | tuple[str, int, int]]) -> bytes:
    """What the tracer sends when functions are called with these stack pointers, and return to
    these addresses: by default, to one that is no function's."""
    at, sent = find_source(open_image(image)).at, b""
    for name, sp, *back in events:
        place = symbols_at(BASE)[name] + 5 - at
        sent += bytes([MARKER]) + place.to_bytes(4, "little", signed=True)
        sent += ((back[0] if back else BASE - 64) - at).to_bytes(4, "little", signed=True)
        sent += (sp & (1 << 48) - 1).to_bytes(6, "little")
    return sent
