# SPDX-License-Identifier: MIT
"""Code as people read it."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ftpatch.arch.disassemble import disassemble
from ftpatch.core.columns import addresses
from ftpatch.ftrace.sites import Sites

__all__ = ["code_text", "to_instruction", "whole_instructions"]

NEAR = 4096
"""Bytes behind a symbol within which instructions are counted from it."""
MAX_INSN = 16
"""Bytes of the longest instruction (x86: 15)."""


def code_text(sites: Sites, code: bytes, address: int) -> str:
    """Capstone's reading of ``code`` at ``address``; branch targets by name, bytes that are no
    instruction in hexadecimal."""
    texts, done = [], 0
    for mnemonic, operands, target, size in _read(sites.arch.name, code, address):
        if target is not None:
            operands = _name(sites, target)
        texts.append(f"{mnemonic} {operands}".rstrip())
        done += size
    if done < len(code):
        texts.append(f".byte {code[done:].hex(' ')}")
    if len(texts) > 1 and len(set(texts)) == 1:
        return f"{texts[0]} (x{len(texts)})"
    return "; ".join(texts)


def whole_instructions(sites: Sites, start: int, end: int) -> tuple[int, int]:
    """The range of addresses widened to whole instructions, counted from the symbol before it;
    as it was where no symbol is near or Capstone loses the thread."""
    name, offset, _ = sites.image.kallsyms.lookup(addresses(start))[0]
    if not name or offset > NEAR:
        return start, end
    first = start - offset
    at = sites.image.elf.offset_of(addresses(first))
    code, _ = sites.image.elf.gather(at, end - first + MAX_INSN)
    begins = [i.address for i in disassemble(sites.arch.name, code[0].tobytes(), first)]
    before = [address for address in begins if address <= start]
    after = [address for address in begins if address >= end]
    return (before[-1], after[0]) if before and after else (start, end)


def to_instruction(sites: Sites, start: int, end: int) -> tuple[int, int]:
    """A range of addresses that begins with an instruction, widened to the end of its last."""
    at = sites.image.elf.offset_of(addresses(start))
    code, _ = sites.image.elf.gather(at, end - start + MAX_INSN)
    ends = [i.address + i.size for i in disassemble(sites.arch.name, code[0].tobytes(), start)]
    return start, next((at for at in ends if at >= end), end)


@lru_cache(maxsize=4096)
def _read(arch: str, code: bytes, address: int) -> list[tuple[str, str, int | None, int]]:
    return [(i.mnemonic, i.operands, i.target, i.size) for i in disassemble(arch, code, address)]


def _name(sites: Sites, target: int) -> str:
    at = np.searchsorted(sites.targets.addr, addresses(target)[0])
    if at < len(sites.targets.addr) and int(sites.targets.addr[at]) == target:
        return sites.targets.name[int(at)]
    if sites.blocks and sites.image.elf.offset_of(addresses(target))[0] >= sites.blocks[-1].length:
        return f"{target:#x} (inserted)"
    name, offset, _ = sites.image.kallsyms.lookup(addresses(target))[0]
    if not name:
        return hex(target)
    return f"{name}+{offset:#x}" if offset else name
