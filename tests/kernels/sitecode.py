# SPDX-License-Identifier: MIT
"""Code at sites, read by Capstone, and what the kernel's own code does with the table."""

from __future__ import annotations

import capstone
import numpy as np
from capstone import arm64_const, x86_const
from numpy.typing import NDArray

from . import loongarch64
from .independent import Vmlinux

__all__ = ["announced", "drop_value", "nop5", "read_sites", "skips_early"]

COUNT_WORDS = b"\0016ftrace: allocating %ld entries"  # KERN_INFO is \001 and 6


def read_sites(
    image: Vmlinux, sites: NDArray[np.uint64]
) -> tuple[NDArray[np.str_], NDArray[np.uint64]]:
    """(state, target) of each site: `nop`, `call` or `unexpected`; a target of 0 is none."""
    if image.arch == "loongarch64":
        return loongarch64.read_sites(image.code(sites, 8), sites)
    states, targets = [], []
    read = READERS.get(image.arch, _x86_site)
    start, width = image.extent
    rows = image.code(sites - np.uint64(start), width)
    nop = b"" if image.pads or image.arch in READERS else nop5(image)
    for ip, row in zip(sites.tolist(), rows, strict=True):
        state, target = read(image.disassembler, row.tobytes(), ip - start, nop)
        states.append(state)
        targets.append(target)
    return np.array(states, dtype="U10"), np.array(targets, dtype=np.uint64)


def _x86_site(cs: capstone.Cs, code: bytes, at: int, nop: bytes) -> tuple[str, int]:
    if code == nop:
        return "nop", 0
    for _, size, mnemonic, operand in cs.disasm_lite(code, at):
        if (size, mnemonic) == (5, "call"):
            return "call", int(operand, 16)
        break
    return "unexpected", 0


def _arm64_site(cs: capstone.Cs, code: bytes, at: int, _: bytes) -> tuple[str, int]:
    text = [f"{mnemonic} {operand}".strip() for _, _, mnemonic, operand in cs.disasm_lite(code, at)]
    match text:
        case ["nop" | "mov x9, x30", "nop"]:
            return "nop", 0
        case ["mov x9, x30", call] if call.startswith("bl #"):
            return "call", int(call[4:], 16)
    return "unexpected", 0


def _riscv64_site(cs: capstone.Cs, code: bytes, at: int, _: bytes) -> tuple[str, int]:
    match list(cs.disasm_lite(code, at)):
        case [(_, _, "c.nop", _), *rest] if [insn[2] for insn in rest] == ["c.nop"] * 3:
            return "nop", 0
        case [(_, 4, "nop", _), (_, 4, "nop", _)]:
            return "nop", 0
        case [(_, 4, "auipc", high), (_, 4, "jalr", low)] if high.startswith("t0, "):
            link, base, offset = low.split(", ")
            if (link, base) == ("t0", "t0"):
                page = int(high.split(", ")[1], 0) << 12 & 0xFFFFFFFF
                page -= (page & 0x80000000) << 1  # a signed word
                return "call", (at + page + int(offset, 0)) % 2**64
    return "unexpected", 0


def _arm_site(cs: capstone.Cs, code: bytes, at: int, _: bytes) -> tuple[str, int]:
    """Behind ``push {lr}``, which no one changes."""
    match [(insn[2], insn[3]) for insn in cs.disasm_lite(code, at)]:
        case [("add", "sp, sp, #4")]:
            return "nop", 0
        case [("bl", target)]:
            return "call", int(target[1:], 16) % 2**32
    return "unexpected", 0


def _s390x_site(cs: capstone.Cs, code: bytes, at: int, _: bytes) -> tuple[str, int]:
    match [(insn[2], insn[3].split(", ")) for insn in cs.disasm_lite(code, at)]:
        case [("brcl", ["0", target])] if int(target, 16) == at:
            return "nop", 0
        case [("brasl", ["%r0", target])]:
            return "call", int(target, 16)
    return "unexpected", 0


def _ppc64le_site(cs: capstone.Cs, code: bytes, at: int, _: bytes) -> tuple[str, int]:
    text = [f"{mnemonic} {operand}".strip() for _, _, mnemonic, operand in cs.disasm_lite(code, at)]
    match text:
        case ["nop" | "mflr 0" | "mflr r0", "nop"]:
            return "nop", 0
        case ["mflr 0" | "mflr r0", call] if call.startswith("bl "):
            return "call", int(call[3:], 16) % 2**64
    return "unexpected", 0


READERS = {
    "arm64": _arm64_site,
    "riscv64": _riscv64_site,
    "s390x": _s390x_site,
    "ppc64le": _ppc64le_site,
    "arm": _arm_site,
}


def nop5(image: Vmlinux) -> bytes:
    """The five-byte NOP that this x86 kernel writes: x86_nops[5]."""
    entry = image.address("x86_nops") + 5 * image.bits // 8
    at = image.offset(image.word(entry))
    return image.data[at : at + 5].tobytes()


def skips_early(image: Vmlinux) -> bool:
    """Whether records are tested before call_adjust, and those outside of the text are skipped.

    That came in v6.15 (and by backport) together with the counting of what is skipped, so it is
    seen by who prints the count: ftrace_init beforehand, or ftrace_process_locs (or what the
    compiler made of it) afterwards.
    """
    _, at, size = image.sections[".rodata"]
    place = image.data[at : at + size].tobytes().index(COUNT_WORDS)
    words = image.sections[".rodata"][0] + place
    return not _mentions(image, "ftrace_init", words)


def _mentions(image: Vmlinux, function: str, wanted: int) -> bool:
    """Whether a function makes an address."""
    symbol = image.symbol(function)
    assert symbol is not None
    start, size = symbol
    at = image.offset(start)
    if image.arch == "loongarch64":
        code = image.data[at : at + size].tobytes()
        return wanted in loongarch64.made_addresses(code, start)
    cs = capstone.Cs(image.disassembler.arch, image.disassembler.mode)
    cs.detail = True
    pages: dict[int, int] = {}  # register: page that adrp or auipc put there
    for insn in cs.disasm(image.data[at : at + size].tobytes(), start):
        if insn.mnemonic == "adrp":
            pages[insn.operands[0].reg] = insn.operands[1].imm
        elif image.arch == "arm64" and insn.mnemonic == "add":
            page, last = pages.get(insn.operands[1].reg), insn.operands[2]
            known = page is not None and last.type == arm64_const.ARM64_OP_IMM
            if known and (page + last.imm) % 2**64 == wanted:
                return True
        elif insn.mnemonic == "movw":
            pages[insn.operands[0].reg] = insn.operands[1].imm
        elif insn.mnemonic == "movt":
            low = pages.get(insn.operands[0].reg, 0)
            if insn.operands[1].imm << 16 | low == wanted:
                return True
        elif image.arch == "arm":
            pass
        elif insn.mnemonic == "larl":
            if insn.operands[1].imm % 2**64 == wanted:
                return True
        elif insn.mnemonic == "addis":  # of r2, which is 32 KiB behind the start of .got
            base = image.sections[".got"][0] + 0x8000
            pages[insn.operands[0].reg] = base + (insn.operands[2].imm << 16)
        elif image.arch == "ppc64le" and insn.mnemonic == "addi":
            page = pages.get(insn.operands[1].reg)
            if page is not None and (page + insn.operands[2].imm - wanted) % 2**32 == 0:
                return True
        elif insn.mnemonic == "auipc":
            pages[insn.operands[0].reg] = insn.address + (insn.operands[1].imm << 12)
        elif image.arch == "riscv64" and insn.mnemonic == "addi":
            page = pages.get(insn.operands[1].reg)
            if page is not None and (page + insn.operands[2].imm - wanted) % 2**32 == 0:
                return True
        elif not image.pads:
            for op in insn.operands:
                rip = op.type == x86_const.X86_OP_MEM and op.mem.base == x86_const.X86_REG_RIP
                made = insn.address + insn.size + op.mem.disp if rip else op.imm
                if made % 2**image.bits == wanted:
                    return True
    return False


def announced(image: Vmlinux) -> int:
    """N of the "ftrace: allocating N entries" that this image will print."""
    records = image.records
    if not skips_early(image):
        return len(records)
    kept = np.zeros(len(records), bool)
    for first, last in (("_stext", "_etext"), ("_sinittext", "_einittext")):
        kept |= (records >= image.address(first)) & (records < image.address(last))
    return int(kept.sum())


def drop_value(image: Vmlinux) -> int:
    """The record that this kernel skips: 0, or what call_adjust makes 0 where that is tested."""
    if skips_early(image):
        return 0
    minus_4 = np.array([2**64 - 4], np.uint64)
    return 2**64 - 4 if image.extent[0] and image.call_adjust(minus_4)[0] == 0 else 0
