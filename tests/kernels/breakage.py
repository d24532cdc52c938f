# SPDX-License-Identifier: MIT
"""Kernels broken by hand: each lays bytes into a file that ftrace_init will stumble over, or not.

The tests write these bytes themselves; what becomes of them is for the kernel to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from .independent import MOV_X9_X30, Vmlinux
from .sitecode import nop5

__all__ = ["BREAKAGES", "SITES", "Breakage", "broken"]

Edits = list[tuple[int, bytes]]  # file offset, bytes
Breakage = Callable[[Vmlinux, int], Edits]  # of the site with this number

MFLR_R0 = 0x7C0802A6  # mflr r0
MEDIUM = 0x60420000  # ori 2,2,0, which sets a thread's priority: not the NOP
NOPR = bytes.fromhex("070007000700")  # nopr; nopr; nopr: not the compiler's brcl
CSDB = 0xD503229F  # csdb: a hint like the NOP, and not the NOP
MOVE = 0x0015002C  # move $t0, $ra
IBAR = 0x38728000  # ibar 0: like the NOP, and not the NOP
SAVED = {"arm64": MOV_X9_X30, "ppc64le": MFLR_R0, "loongarch64": MOVE}
HINTS = {"arm64": CSDB, "ppc64le": MEDIUM, "loongarch64": IBAR}
ADD_SP = 0xE28DD004  # add sp, sp, #4
UDF = 0xE7F001F0  # udf #16
NOWHERE = 0x1000  # no kernel maps this
INSIDE = 16  # bytes from a function's entry
SHORT = 100  # records


def _call(ip: int, target: int) -> bytes:
    return b"\xe8" + (target - ip - 5 & 0xFFFFFFFF).to_bytes(4, "little")


def _word(value: int) -> bytes:
    return value.to_bytes(4, "little")


def _at(image: Vmlinux, number: int, distance: int = 0) -> int:
    return image.offset(int(image.sites[number]) + distance)


def nop_for_call(image: Vmlinux, number: int) -> Edits:
    return [(_at(image, number), nop5(image))]


def call_elsewhere(image: Vmlinux, number: int) -> Edits:
    call = _call(int(image.sites[number]), image.address("ftrace_caller"))
    return [(_at(image, number), call)]


def call_past_the_entry(image: Vmlinux, number: int) -> Edits:
    """One byte behind __fentry__."""
    return [(_at(image, number), _call(int(image.sites[number]), image.address("__fentry__") + 1))]


def trap(image: Vmlinux, number: int) -> Edits:
    """int3 in the first byte, as while a running kernel is patched."""
    return [(_at(image, number), b"\xcc")]


def two_sites(image: Vmlinux, number: int) -> Edits:
    """The kernel sorts its table, and stops at the first: of two, it reports the lower."""
    lead, width = image.extent
    other = (number + len(image.sites) // 2) % len(image.sites)
    return [(_at(image, n, -lead), b"\xcc" * (lead or width)) for n in (number, other)]


def move_for_nop(image: Vmlinux, number: int) -> Edits:
    """What the kernel itself makes of a site, before it has made it so."""
    return [(_at(image, number, -image.extent[0]), _word(SAVED[image.arch]))]


def hint_for_nop(image: Vmlinux, number: int) -> Edits:
    return [(_at(image, number, -image.extent[0]), _word(HINTS[image.arch]))]


def second_word(image: Vmlinux, number: int) -> Edits:
    """ftrace_init_nop reads the first word only: the kernel says nothing."""
    return [(_at(image, number, 4 - image.extent[0]), _word(HINTS[image.arch]))]


def other_bytes(image: Vmlinux, number: int) -> Edits:
    """On riscv64 nothing is read: whatever stands there becomes a NOP."""
    return [(_at(image, number, -image.extent[0]), bytes(8))]


def half_a_pad(image: Vmlinux, number: int) -> Edits:
    return [(_at(image, number, 4 - image.extent[0]), bytes(4))]


def short_nops(image: Vmlinux, number: int) -> Edits:
    """gcc's other pad of six bytes."""
    return [(_at(image, number), NOPR)]


def brcl_elsewhere(image: Vmlinux, number: int) -> Edits:
    """Never taken, but not to itself: what the kernel makes of a site."""
    return [(_at(image, number, 2), (4).to_bytes(4, "big"))]


def last_halfword(image: Vmlinux, number: int) -> Edits:
    return [(_at(image, number, 4), (1).to_bytes(2, "big"))]


def brasl(image: Vmlinux, number: int) -> Edits:
    """An enabled site, whose record was not dropped."""
    distance = image.address("ftrace_caller") - int(image.sites[number])
    return [(_at(image, number), b"\xc0\x05" + (distance // 2).to_bytes(4, "big", signed=True))]


def idle_call(image: Vmlinux, number: int) -> Edits:
    """A site that is disabled, and whose record was not dropped."""
    return [(_at(image, number), _word(ADD_SP))]


def bl_elsewhere(image: Vmlinux, number: int) -> Edits:
    return [(_at(image, number), _bl(image, number, image.address("ftrace_caller")))]


def bl_past_the_entry(image: Vmlinux, number: int) -> Edits:
    """One instruction behind __gnu_mcount_nc."""
    return [(_at(image, number), _bl(image, number, image.address("__gnu_mcount_nc") + 4))]


def undefined(image: Vmlinux, number: int) -> Edits:
    """udf, as a kprobe has it there."""
    return [(_at(image, number), _word(UDF))]


def _bl(image: Vmlinux, number: int, target: int) -> bytes:
    distance = target - int(image.sites[number]) - 8
    return _word(0xEB000000 | distance >> 2 & 0xFFFFFF)


def record_in_data(image: Vmlinux, number: int) -> Edits:
    """A record outside of the text: a bug on 6.1, silently skipped later."""
    return _record(image, number, image.address("linux_banner"))


def record_nowhere(image: Vmlinux, number: int) -> Edits:
    return _record(image, number, NOWHERE)


def record_of_zero(image: Vmlinux, number: int) -> Edits:
    """Skipped where null is tested first; on arm64 6.1 it becomes a site at address 4."""
    return _record(image, number, 0)


def record_inside(image: Vmlinux, number: int) -> Edits:
    """In the middle of a function."""
    return _record(image, number, _value(image, number) + INSIDE)


def record_misaligned(image: Vmlinux, number: int) -> Edits:
    return _record(image, number, _value(image, number) + 2)


def record_four_off(image: Vmlinux, number: int) -> Edits:
    """With CALL_OPS not aligned to a literal: call_adjust makes null of it, and 6.12 dies."""
    return _record(image, number, _value(image, number) + 4)


def record_twice(image: Vmlinux, number: int) -> Edits:
    """The next function's record is this one's; the second of the two meets what was made."""
    return _record(image, number + 1, _value(image, number))


def records_swapped(image: Vmlinux, number: int) -> Edits:
    """A table that is not sorted: the kernel sorts it anyway."""
    one, two = _value(image, number), _value(image, number + 1)
    return _record(image, number, two) + _record(image, number + 1, one)


def table_short(image: Vmlinux, number: int) -> Edits:
    """The last records are null."""
    last = range(len(image.sites) - SHORT, len(image.sites))
    return [edit for each in last for edit in _record(image, each, 0)]


def _value(image: Vmlinux, number: int) -> int:
    return int(image.records[image.records != 0][number])


def _record(image: Vmlinux, number: int, value: int) -> Edits:
    """Give a site's record another value: in its relocation, where that has it."""
    index = int(np.flatnonzero(image.records != 0)[number])
    width = image.bits // 8
    slot = image.table[0] + index * width
    rows = image.rela
    hit = np.flatnonzero((rows["offset"] == slot) & (rows["info"] == image.relative_type))
    at = image.offset(slot)
    if len(hit):
        at = image.sections[".rela.dyn"][1] + int(hit[0]) * rows.itemsize + 16  # r_addend
    return [(at, image.packed(value))]


EVERY: list[Breakage] = [
    two_sites, record_in_data, record_nowhere, record_of_zero, record_inside, record_twice,
    records_swapped, table_short,
]  # fmt: skip
ON_SITES: dict[str, list[Breakage]] = {
    "x86": [nop_for_call, call_elsewhere, call_past_the_entry, trap],
    "arm64": [move_for_nop, hint_for_nop, second_word, record_misaligned, record_four_off],
    "riscv64": [other_bytes, half_a_pad],
    "arm": [
        idle_call,
        bl_elsewhere,
        bl_past_the_entry,
        undefined,
        record_misaligned,
        record_four_off,
    ],
    "s390x": [short_nops, brcl_elsewhere, last_halfword, brasl],
    "ppc64le": [move_for_nop, hint_for_nop, second_word, record_misaligned, record_four_off],
    "loongarch64": [move_for_nop, hint_for_nop, second_word, half_a_pad, record_misaligned],
}
BREAKAGES = {arch: [*own, *EVERY] for arch, own in ON_SITES.items()}
SITES = {
    "idle_call",
    "undefined",
    "short_nops",
    "nop_for_call",
    "trap",
    "move_for_nop",
    "hint_for_nop",
    "other_bytes",
    "record_inside",
}
"""These are done to a second site as well, chosen at random."""


@contextmanager
def broken(path: Path, edits: Edits) -> Iterator[None]:
    """The file with the edits; afterwards it is as it was."""
    with path.open("r+b", buffering=0) as file:
        before = []
        for at, new in edits:
            file.seek(at)
            before.append((at, file.read(len(new))))
            assert before[-1][1] != new, "the breakage changes nothing"
            file.seek(at)
            file.write(new)
        try:
            yield
        finally:
            for at, old in reversed(before):
                file.seek(at)
                file.write(old)
