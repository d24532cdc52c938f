"""Kernels broken by hand: each lays bytes into a copy that ftrace_init will stumble over, or not.

The tests write these bytes themselves; what becomes of them is for the kernel to say.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from .independent import MOV_X9_X30, R_AARCH64_RELATIVE, Vmlinux
from .sitecode import nop5

__all__ = ["BREAKAGES", "Breakage", "break_copy"]

Edits = list[tuple[int, bytes]]  # file offset, bytes

CSDB = 0xD503229F  # csdb: a hint like the NOP, and not the NOP


def _site(image: Vmlinux, name: str) -> int:
    """ip of a function."""
    return int(image.sites[image.names.index(name)])


def _call(ip: int, target: int) -> bytes:
    return b"\xe8" + (target - ip - 5 & 0xFFFFFFFF).to_bytes(4, "little")


def _word(value: int) -> bytes:
    return value.to_bytes(4, "little")


def nop_for_call(image: Vmlinux) -> Edits:
    return [(image.offset(_site(image, "vfs_read")), nop5(image))]


def call_elsewhere(image: Vmlinux) -> Edits:
    ip = _site(image, "vfs_read")
    return [(image.offset(ip), _call(ip, image.address("ftrace_caller")))]


def two_sites(image: Vmlinux) -> Edits:
    """The kernel sorts its table, and stops at the first: of two, it reports the lower."""
    start = 4 if image.arch == "arm64" else 0
    sites = [_site(image, name) - start for name in ("vfs_write", "vfs_open")]
    return [(image.offset(at), b"\xcc" * (start or 5)) for at in sites]


def move_for_nop(image: Vmlinux) -> Edits:
    """What the kernel itself makes of a site, before it has made it so."""
    return [(image.offset(_site(image, "vfs_read") - 4), _word(MOV_X9_X30))]


def hint_for_nop(image: Vmlinux) -> Edits:
    return [(image.offset(_site(image, "vfs_read") - 4), _word(CSDB))]


def second_word(image: Vmlinux) -> Edits:
    """ftrace_init_nop reads the first word only: the kernel says nothing."""
    return [(image.offset(_site(image, "vfs_read")), _word(CSDB))]


def record_in_data(image: Vmlinux) -> Edits:
    """A record outside of the text: a bug on 6.1, silently skipped later."""
    return _record(image, image.address("linux_banner"))


def record_of_zero(image: Vmlinux) -> Edits:
    """Skipped where null is tested first; on arm64 6.1 it becomes a site at address 4."""
    return _record(image, 0)


def _record(image: Vmlinux, value: int) -> Edits:
    """Give vfs_read's record another value: in its relocation, where that has it."""
    index = int(np.flatnonzero(image.records != 0)[image.names.index("vfs_read")])
    width = image.bits // 8
    slot = image.table[0] + index * width
    rows = image.rela
    hit = np.flatnonzero((rows["offset"] == slot) & (rows["info"] == R_AARCH64_RELATIVE))
    at = image.offset(slot)
    if len(hit):
        at = image.sections[".rela.dyn"][1] + int(hit[0]) * rows.itemsize + 16  # r_addend
    return [(at, value.to_bytes(width, "little"))]


Breakage = Callable[[Vmlinux], Edits]
BOTH: list[Breakage] = [two_sites, record_in_data, record_of_zero]
X86: list[Breakage] = [nop_for_call, call_elsewhere, *BOTH]
ARM64: list[Breakage] = [move_for_nop, hint_for_nop, second_word, *BOTH]
RISCV64: list[Breakage] = [record_in_data, record_of_zero]
BREAKAGES = {"arm64": ARM64, "riscv64": RISCV64, "x86": X86}


def break_copy(copy: Path, edits: Edits) -> None:
    with copy.open("r+b") as file:
        for at, new in edits:
            file.seek(at)
            assert file.read(len(new)) != new, "the breakage changes nothing"
            file.seek(at)
            file.write(new)
