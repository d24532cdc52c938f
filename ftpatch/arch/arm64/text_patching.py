# SPDX-License-Identifier: MIT
"""Changes of a kernel to its text on arm64.

    alternative, alt_len > 0    the replacement's instructions; branches out of it, and adrp, count
                                from where they are now
    alternative, alt_len = 0    what a function of the kernel makes of it: see MADE
    static key                  b, or nop

__apply_alternatives, get_alt_insn: arch/arm64/kernel/alternative.c.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.arm64.encode import A64, branch, branch_target, words
from ftpatch.arch.contract import U8, U64
from ftpatch.arch.text_patching import Fields, JumpLabels, PatchedText, Patcher, TextPatching

__all__ = ["TEXT_PATCHING"]

CAPABILITY = 8
"""Offset of the capability's number in struct alt_instr."""
CALLBACK = 1 << 15
"""ARM64_CB_BIT of that number, since v6.1."""
CONDITIONAL = (
    (0xFF000010, 0x54000000, 19),
    (0x7E000000, 0x34000000, 19),
    (0x7E000000, 0x36000000, 14),
)
"""b.cond, cbz and cbnz, tbz and tbnz: mask, value, bits of the distance."""
ADRP_MASK, ADRP = 0x9F000000, 0x90000000
PAGE = 12

NOP = (0xFFFFFFFF, A64.NOP)
MOVZ, MOVK = (0x7F800000, 0x52800000), (0x7F800000, 0x72800000)
B, BR = (A64.B_MASK, A64.B), (0xFFFFFC1F, 0xD61F0000)
STP, ADD, AND = (0x7FC00000, 0x29000000), (0x7F000000, 0x11000000), (0x7F800000, 0x12000000)
STP_PRE = (0x7FC00000, 0x29800000)
ORR, ROR = (0x7F800000, 0x32000000), (0x7FA00000, 0x13800000)
HVC, SMC = (0xFFE0001F, 0xD4000002), (0xFFE0001F, 0xD4000003)
CLEARBHB, ISB = (0xFFFFFFFF, 0xD50322DF), (0xFFFFF0FF, 0xD50330DF)
MADE: Final[dict[str, tuple[tuple[int, int], ...]]] = {
    "alt_cb_patch_nops": (NOP,),
    "kvm_patch_vector_branch": (NOP, STP, STP_PRE, MOVZ, MOVK, B, BR),
    "kvm_update_va_mask": (NOP, AND, ROR, ADD),
    "kvm_get_kimage_voffset": (MOVZ, MOVK),
    "kvm_compute_final_ctr_el0": (MOVZ, MOVK),
    "spectre_v4_patch_fw_mitigation_enable": (NOP,),
    "smccc_patch_fw_mitigation_conduit": (NOP, HVC, SMC),
    "spectre_bhb_patch_loop_mitigation_enable": (NOP, B),
    "spectre_bhb_patch_fw_mitigation_enabled": (NOP, B),
    "spectre_bhb_patch_loop_iter": (NOP, MOVZ, ORR),
    "spectre_bhb_patch_wa3": (NOP, MOVZ, ORR),
    "spectre_bhb_patch_clearbhb": (NOP, CLEARBHB, ISB),
}
"""Functions that make code when the kernel boots, and the instructions that they make: mask and
value. Operands are not compared."""


class _Columns:
    """Alternatives in the text, as columns; ``width`` and ``length`` in bytes."""

    def __init__(self, text: PatchedText, rows: Fields) -> None:
        at = rows.address("orig_offset")
        inside = text.inside(at)
        self.at = at[inside]
        self.code = rows.address("alt_offset")[inside]
        self.width = rows.column("orig_len", "u1")[inside]
        self.length = rows.column("alt_len", "u1")[inside]
        self.capability = rows.at(CAPABILITY, "<u2")[inside] & (CALLBACK - 1)


def _alternatives(text: PatchedText) -> None:
    """Settle all of them; a capability is there for all of its places, or for none."""
    rows = text.table(
        "__alt_instructions", "__alt_instructions_end", "alt_instr",
        ("orig_offset", "alt_offset", "orig_len", "alt_len"),
    )  # fmt: skip
    if not len(rows):
        return
    found = _Columns(text, rows)
    plain = found.length > 0
    for callback, masks in MADE.items():
        chosen = ~plain & (found.code == np.uint64(text.find(callback) or 1))
        _made(text, found.at[chosen], found.width[chosen], masks)
    at, width = found.at[plain], found.width[plain]
    form = _replacements(text, at, found.code[plain], width)
    now = text.now(at, form.shape[1])
    beyond = np.arange(form.shape[1]) >= width[:, None]
    replaced = ((form == now) | beyond).all(axis=1)
    original = ((text.compiled(at, form.shape[1]) == now) | beyond).all(axis=1)
    unique, which = np.unique(found.capability[plain], return_inverse=True)
    told = replaced ^ original
    balance = np.bincount(which, np.where(told, np.where(replaced, 1, -1), 0), len(unique))
    present = (balance >= 0)[which]
    text.settle(at[present], width[present], form[present])
    # One that two capabilities replace has the later one's, and is not told here.
    _, first, number = np.unique(at, return_index=True, return_counts=True)
    single = np.zeros(len(at), bool)
    single[first[number == 1]] = True
    amiss = np.flatnonzero(single & told & (replaced != present))
    for row in amiss.tolist():
        text.reject(int(at[row]), int(width[row]))


def _replacements(text: PatchedText, at: U64, code: U64, width: NDArray[np.int64]) -> U8:
    """The replacement of each, as it is in its place, uint8[n, widest]."""
    number = int(width.max()) // 4 if len(width) else 0
    out = np.zeros((len(at), 4 * number), np.uint8)
    for word in range(number):
        rows = np.flatnonzero(width > 4 * word)
        step = np.uint64(4 * word)
        insn = words(text.file_rows(code[rows] + step, 4))[:, 0]
        moved = _moved(insn, code[rows] + step, at[rows] + step, code[rows], width[rows])
        out[rows, 4 * word : 4 * word + 4] = moved.astype("<u4")[:, None].view(np.uint8)
    return out


def _moved(
    insn: NDArray[np.uint32], was: U64, at: U64, start: U64, width: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """Instructions, linked at ``was``, as they are at ``at``: what goes out of the replacement
    still goes there."""
    out = insn.copy()
    end = start + width.astype(np.uint64)
    for opcode in (A64.B, A64.BL):
        target = branch_target(insn, was)
        rows = (insn & np.uint32(A64.B_MASK) == opcode) & ~((target >= start) & (target <= end))
        out[rows] = branch(opcode, at[rows], target[rows])
    for mask, value, bits in CONDITIONAL:
        field = np.uint32(((1 << bits) - 1) << 5)
        shift = np.uint32(32 - 5 - bits)
        signed = (insn << shift).view(np.int32) >> np.int32(32 - bits)
        target = was + (signed.astype(np.int64) << 2).view(np.uint64)
        rows = (insn & np.uint32(mask) == value) & ~((target >= start) & (target <= end))
        distance = ((target - at).view(np.int64) >> 2).astype(np.uint32) << np.uint32(5)
        out[rows] = ((insn & ~field) | (distance & field))[rows]
    rows = insn & np.uint32(ADRP_MASK) == ADRP
    pages = ((was >> np.uint64(PAGE)) - (at >> np.uint64(PAGE))).view(np.int64)
    low = (insn >> np.uint32(29)) & np.uint32(3)
    high = (insn >> np.uint32(5)) & np.uint32(0x7FFFF)
    moved = (((high << np.uint32(2)) | low).astype(np.int64) + pages).astype(np.uint32)
    built = insn & np.uint32(ADRP_MASK | 0x1F)
    built |= (moved & np.uint32(3)) << np.uint32(29)
    built |= ((moved >> np.uint32(2)) & np.uint32(0x7FFFF)) << np.uint32(5)
    out[rows] = built[rows]
    return out


def _made(
    text: PatchedText, at: U64, width: NDArray[np.int64], masks: Sequence[tuple[int, int]]
) -> None:
    """Settle instructions that a function of the kernel makes, one by one."""
    for word in range(int(width.max()) // 4 if len(width) else 0):
        place = at[width > 4 * word] + np.uint64(4 * word)
        insn = words(text.now(place, 4))[:, 0]
        good = np.zeros(len(place), bool)
        for mask, value in masks:
            good |= insn & np.uint32(mask) == np.uint32(value)
        place = place[good]
        text.settle(place, np.full(len(place), 4), text.now(place, 4))


def _runtime_constants(text: PatchedText) -> None:
    """Settle constants that are variables before the boot: movz and movk of a pointer's four
    parts, lsr by a shift."""
    for section in text.sections("runtime_shift_"):
        at = text.offsets(section)
        value = text.number(text.find(section.removeprefix("runtime_shift_")), 4) & 63
        insn = words(text.compiled(at, 4))[:, 0]  # lsr wd, wn, #shift: immr
        form = (insn & ~np.uint32(0x3F << 16)) | np.uint32(value << 16)
        text.settle(at, np.full(len(at), 4), form.astype("<u4")[:, None].view(np.uint8))
    for section in text.sections("runtime_ptr_"):
        at = text.offsets(section)
        value = text.number(text.find(section.removeprefix("runtime_ptr_")), 8)
        insn = words(text.compiled(at, 16))
        parts = np.array([value >> 16 * part & 0xFFFF for part in range(4)], np.uint32)
        form = (insn & ~np.uint32(0xFFFF << 5)) | (parts << np.uint32(5))
        text.settle(at, np.full(len(at), 16), form.astype("<u4").view(np.uint8))


def _hypervisor(text: PatchedText) -> None:
    """Settle addresses of the hypervisor in its literals, which KVM turns into those of its own
    mapping (kvm_apply_hyp_relocations): of these only the place in the page is compared."""
    at = text.offsets(".hyp.reloc")
    at = at[text.inside(at)]
    mask = np.uint64((1 << PAGE) - 1)
    held = text.now(at, 8).view("<u8")[:, 0] if len(at) else np.zeros(0, np.uint64)
    form = (held & ~mask) | (text.linked(at) & mask)
    text.settle(at, np.full(len(at), 8), form.astype("<u8")[:, None].view(np.uint8))


class _TextPatching:
    patchers: Sequence[Patcher] = (_alternatives, _runtime_constants, _hypervisor)
    breakpoint = (0xD4200080).to_bytes(4, "little")  # brk #4: KPROBES_BRK_IMM
    entry_nops: Sequence[bytes] = (
        bytes.fromhex("e9031eaa1f2003d5"),
        bytes.fromhex("1f2003d51f2003d5"),
    )
    # mov x9, lr; nop, and nop; nop
    branch_nop = A64.NOP.to_bytes(4, "little")
    branch_size = 4

    def jump_labels(self, code: U8, at: U64, target: U64) -> JumpLabels:
        """b, or nop."""
        jump = branch(A64.B, at, target)[:, None].view(np.uint8)
        nop = np.full((len(at), 1), A64.NOP, "<u4").view(np.uint8)
        return JumpLabels(nop, jump, np.full(len(at), 4))

    def jump_target(self, code: bytes, at: int) -> int:
        """b or bl."""
        insn = int.from_bytes(code[:4], "little")
        if insn & A64.B_MASK not in (A64.B, A64.BL):
            return 0
        place = np.array([at], np.uint64)
        return int(branch_target(np.array([insn], np.uint32), place)[0])


TEXT_PATCHING: Final[TextPatching] = _TextPatching()
