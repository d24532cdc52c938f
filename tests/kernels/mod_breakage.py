# SPDX-License-Identifier: MIT
"""Modules broken by hand: edits to dummy.ko that ftrace or the loader will mind, or not."""

from __future__ import annotations

import struct
from collections.abc import Callable

from .modfile import ModuleFile, Record
from .trees import ARCHES

__all__ = ["ALWAYS_REFUSED", "KEPT", "MODULE_BREAKAGES", "ModuleBreakage", "module_breakages"]

ModuleBreakage = Callable[[ModuleFile, Record], None]

NOP5 = {"EM_X86_64": "0f1f440000", "EM_386": "3e8d742600"}
MOVE = {"EM_AARCH64": "e9031eaa", "EM_PPC64": "a602087c", "EM_LOONGARCH": "2c001500"}
"""mov x9, x30; mflr r0; move $t0, $ra."""
HINT = {"EM_AARCH64": "9f2203d5", "EM_PPC64": "00004260", "EM_LOONGARCH": "00807238"}
"""csdb; ori 2,2,0; ibar 0."""
NEUTRAL = {"EM_X86_64": 0, "EM_386": 1}  # R_X86_64_NONE; R_386_32 of no symbol adds 0
ADD_SP, POP_LR, BL = "04d08de2", "0040bde8", 0xEBFFFFFE
"""add sp, sp, #4; pop {lr}; bl of itself, which a relocation has for its place."""
INSIDE = 16  # bytes
FAR = 1 << 30  # bytes behind a section


def _site(module: ModuleFile, record: Record) -> int:
    """File offset of the code: with CALL_OPS two NOPs stand before the function."""
    return module.at(record.section, record.value) + (8 if module.call_ops else 0)


def nop_for_call(module: ModuleFile, record: Record) -> None:
    module.put(_site(module, record), bytes.fromhex(NOP5[module.machine]))
    call = module.relocation_at(record.section, record.value + 1)
    place = module.at(record.section, record.value + 1)
    kept = struct.unpack_from("<i", module.data, place)[0]
    module.point(call, 0, NEUTRAL[module.machine], kept if call.addend is None else 0, place)


def nop_under_its_relocation(module: ModuleFile, record: Record) -> None:
    """x86_64's loader wants zeros where it writes; i386's adds."""
    module.put(_site(module, record), bytes.fromhex(NOP5[module.machine]))


def call_elsewhere(module: ModuleFile, record: Record) -> None:
    call = module.relocation_at(record.section, record.value + 1)
    addend = -4 if call.addend is None else call.addend
    place = module.at(record.section, record.value + 1)
    module.point(call, module.symbol("ether_setup"), call.type, addend, place)


def idle_call(module: ModuleFile, record: Record) -> None:
    """A site that is disabled, and whose record was not dropped."""
    _without_a_call(module, record, ADD_SP)


def pop_for_call(module: ModuleFile, record: Record) -> None:
    """What kernels before v5.18 made of a site."""
    _without_a_call(module, record, POP_LR)


def _without_a_call(module: ModuleFile, record: Record, code: str) -> None:
    place = module.at(record.section, record.value)
    call = module.relocation_at(record.section, record.value)
    held = struct.unpack("<i", bytes.fromhex(code))[0]
    module.point(call, 0, 0, held, place)  # R_ARM_NONE


def bl_elsewhere(module: ModuleFile, record: Record) -> None:
    call = module.relocation_at(record.section, record.value)
    place = module.at(record.section, record.value)
    module.point(call, module.symbol("ether_setup"), call.type, BL - (1 << 32), place)


def move_for_nop(module: ModuleFile, record: Record) -> None:
    module.put(_site(module, record), bytes.fromhex(MOVE[module.machine]))


def hint_for_nop(module: ModuleFile, record: Record) -> None:
    module.put(_site(module, record), bytes.fromhex(HINT[module.machine]))


def second_word(module: ModuleFile, record: Record) -> None:
    module.put(_site(module, record) + 4, bytes.fromhex(HINT[module.machine]))


def other_bytes(module: ModuleFile, record: Record) -> None:
    module.put(_site(module, record), bytes(8))


def short_nops(module: ModuleFile, record: Record) -> None:
    """nopr; nopr; nopr for the compiler's brcl."""
    module.put(_site(module, record), bytes.fromhex("070007000700"))


def brcl_elsewhere(module: ModuleFile, record: Record) -> None:
    module.put(_site(module, record) + 2, (4).to_bytes(4, "big"))


def record_in_data(module: ModuleFile, record: Record) -> None:
    """Into strings, where the loader changes nothing."""
    names = (s.name for s in module.sections if s.name.startswith(".rodata.str"))
    section = module.section(next(names, ".rodata"))
    written = {r.offset for r in module.relocations(section)}
    places = range(0, 64 * INSIDE, 8)
    free = (at for at in places if not any(at - 8 < r < at + 16 for r in written))
    module.redirect(record, section, next(free))


def record_inside(module: ModuleFile, record: Record) -> None:
    """In the middle of a function, where the loader changes nothing: no bytes would be known."""
    written = {r.offset for r in module.relocations(record.section)}
    places = range(record.value + INSIDE, record.value + 64 * INSIDE, 8)
    free = (at for at in places if not any(at - 8 < r < at + 16 for r in written))
    module.redirect(record, record.section, next(free))


def record_far(module: ModuleFile, record: Record) -> None:
    """Behind everything that belongs to the module."""
    module.redirect(record, record.section, FAR)


def record_twice(module: ModuleFile, record: Record) -> None:
    other = next(r for r in module.records if r.section == record.section and r != record)
    module.redirect(other, record.section, record.value)


def record_of_zero(module: ModuleFile, record: Record) -> None:
    """A relocation without a symbol: null where that is tested before call_adjust."""
    module.point(record.entry, 0, record.entry.type, 0, record.slot)


def records_swapped(module: ModuleFile, record: Record) -> None:
    other = next(r for r in module.records if r.section == record.section and r != record)
    module.redirect(other, record.section, record.value)
    module.redirect(record, record.section, other.value)


def table_short(module: ModuleFile, record: Record) -> None:
    """The last slot is cut off, with its relocation."""
    module.shorten(module.table, module.word)
    module.shorten(module.relocation_table(module.table), 24 if module.wide else 8)


def table_cut(module: ModuleFile, record: Record) -> None:
    """The last slot is cut off; its relocation would write behind the table."""
    module.shorten(module.table, module.word)


EVERY: list[ModuleBreakage] = [
    record_in_data, record_inside, record_far, record_twice, record_of_zero, records_swapped,
    table_short,
]  # fmt: skip
X86: list[ModuleBreakage] = [nop_for_call, nop_under_its_relocation, call_elsewhere]
MODULE_BREAKAGES: dict[str, list[ModuleBreakage]] = {
    "x86_64": [*X86, *EVERY, table_cut],
    "i386": [*X86, *EVERY],
    "arm64": [move_for_nop, hint_for_nop, second_word, *EVERY],
    "riscv64": [other_bytes, *EVERY],
    "s390x": [short_nops, brcl_elsewhere, *EVERY],
    "ppc64le": [move_for_nop, hint_for_nop, second_word, *EVERY],
    "loongarch64": [move_for_nop, hint_for_nop, second_word, *EVERY],
    "arm": [idle_call, pop_for_call, bl_elsewhere, *EVERY],
}
KEPT = "keep_records"
"""And one that ftpatch makes, by --keep-records."""


def module_breakages(arch: str) -> list[str]:
    """The names of all of an architecture, by Debian's word for it."""
    rows = MODULE_BREAKAGES.get(ARCHES.get(arch, arch))
    if rows is None:
        return []
    return [*(breakage.__name__ for breakage in rows), KEPT]


ALWAYS_REFUSED = {"nop_for_call", "call_elsewhere", "move_for_nop", "hint_for_nop", "short_nops",
                  "brcl_elsewhere", "idle_call", "pop_for_call", "bl_elsewhere"}  # fmt: skip
