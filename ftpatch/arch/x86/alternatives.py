# SPDX-License-Identifier: MIT
"""Alternatives of x86: instructions replaced by others where the processor has a feature.

    .altinstructions     instr | replacement | feature | lengths
    text                 original, or replacement with NOPs behind it
                         e8/e9 and rip-relative operands count from where they are now

The kernel also turns runs of NOPs into longer ones, and short jumps. Instructions are compared,
without NOPs. A feature is there or is not: an alternative that differs from most others of its
feature is not accepted. apply_alternatives: arch/x86/kernel/alternative.c.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from ftpatch.arch.contract import U64
from ftpatch.arch.disassemble import engine
from ftpatch.arch.text_patching import PatchedText

__all__ = ["Alternatives"]

INVERTED = 1
"""ALT_FLAG_NOT: where the feature is absent."""
DIRECT_CALL = 2
"""ALT_FLAG_DIRECT_CALL: the call through a pointer becomes one of what that holds."""
INVERTED_OLDER = 1 << 15
"""ALTINSTR_FLAG_INV of the feature, up to v6.4."""
SHOWN_RIP = "(%rip)"
ALL = (1 << 64) - 1
JUMPS = ("jmp", "jmpq", "ret", "retq")


@dataclass(frozen=True, slots=True)
class _Entry:
    replacement: int
    size: int
    feature: int
    flags: int


@dataclass(frozen=True, slots=True)
class _Site:
    """What was found at a place: the entry whose replacement stands there, -1 for the original."""

    at: int
    size: int
    entries: list[_Entry]
    chosen: int


class Alternatives:
    """The patcher, for one word size by its name in ``arch``."""

    def __init__(self, arch: str) -> None:
        self.arch: Final = arch

    def __call__(self, text: PatchedText) -> None:
        """Settle all of them."""
        sites = [
            _Site(at, size, entries, chosen)
            for at, size, entries in _grouped(text)
            if (chosen := self._chosen(text, at, size, entries)) is not None
        ]
        present = _features(sites)
        for site in sites:
            expected = _expected(site, present)
            if site.chosen == expected or self._same(text, site, expected):
                text.accept(site.at, site.size)
            else:
                text.reject(site.at, site.size)

    def _same(self, text: PatchedText, site: _Site, number: int) -> bool:
        """Return whether the expected form and the one that stands there are the same code."""
        form = self._form(text, site.at, site.size, site.entries, number)
        return form == self._now(text, site.at, site.size)

    def _chosen(self, text: PatchedText, at: int, size: int, entries: list[_Entry]) -> int | None:
        """The entry whose replacement stands at a place, -1 for the original, None for neither."""
        now = self._now(text, at, size)
        for number in (*reversed(range(len(entries))), -1):
            if self._form(text, at, size, entries, number) == now:
                return number
        return None

    def _now(self, text: PatchedText, at: int, size: int) -> list[str]:
        return self._normal(text.now(_one(at), size).tobytes(), at, at, size)

    def _form(
        self, text: PatchedText, at: int, size: int, entries: list[_Entry], number: int
    ) -> list[str]:
        """The instructions of an entry, or of the original."""
        if number < 0:
            return self._normal(text.compiled(_one(at), size).tobytes(), at, at, size)
        entry = entries[number]
        if entry.flags & DIRECT_CALL:
            return self._direct(text, at, size)
        code = text.file_code(entry.replacement, entry.size)
        return self._normal(code, entry.replacement, at, size)

    def _direct(self, text: PatchedText, at: int, size: int) -> list[str]:
        """A call of what the pointer holds that the original calls through."""
        insns = _decoded(self.arch, text.compiled(_one(at), size).tobytes())[0]
        if not insns or insns[0].memory is None:
            return ["no call through a pointer"]
        target = text.word(at + insns[0].memory & ALL)
        return [] if target == text.find("nop_func") else [f"0 callq {target:#x}"]

    def _normal(self, code: bytes, start: int, at: int, size: int) -> list[str]:
        """Instructions of ``code``, linked at ``start``, as they are at ``at``: offset and text,
        without NOPs."""
        insns, rest = _decoded(self.arch, code)
        found, skipped = [], 0
        behind = False  # of a jump: what stands there is not executed
        for number, insn in enumerate(insns):
            if insn.offset < skipped or (behind and insn.mnemonic == "int3"):
                continue
            behind = insn.mnemonic in JUMPS
            if insn.is_nop:
                continue
            target, into = insn.target, None
            if target is not None:
                into = target if target <= len(code) else (start + target - at) & ALL
            if insn.mnemonic in JUMPS and into is not None and insn.offset < into <= size:
                over = [one for one in insns[number + 1 :] if one.offset < into]
                if all(one.is_nop or _is_skipped(one, into) for one in over):
                    skipped, behind = into, False
                    continue
            where = insn.operands
            if target is not None and into is not None:
                where = f"+{into}" if into <= size else hex((start + target) & ALL)
            elif insn.memory is not None:
                where = f"{where} [{start + insn.memory & ALL:#x}]"
            found.append(f"{insn.offset} {insn.mnemonic} {where}")
        return found + ([f"not code: {rest}"] if rest else [])


@dataclass(frozen=True, slots=True)
class _Insn:
    """An instruction of code at address 0; ``target``: of a branch, and ``memory``: that it refers
    to by distance, both from there."""

    offset: int
    mnemonic: str
    operands: str
    is_nop: bool
    target: int | None
    memory: int | None


@lru_cache(maxsize=1 << 16)
def _decoded(arch: str, code: bytes) -> tuple[tuple[_Insn, ...], str]:
    """Instructions, and what is none behind them, in hexadecimal. Few of the thousands of
    alternatives differ."""
    insns = list(engine(arch).disasm(code, 0))
    end = sum(insn.size for insn in insns)
    return tuple(map(_insn, insns)), code[end:].hex()


def _insn(insn: Any) -> _Insn:  # noqa: ANN401 - Capstone has no types
    memory, operands = None, insn.op_str
    if SHOWN_RIP in operands:
        memory = (insn.address + insn.size + insn.disp) & ALL
        before, _, after = operands.partition(SHOWN_RIP)
        operands = before.rpartition(" ")[0].rstrip("-0123456789abcdefx*") + after
    is_nop = insn.mnemonic in ("nop", "nopl", "nopw") or (
        insn.mnemonic == "xchgw" and insn.op_str == "%ax, %ax"
    )
    return _Insn(insn.address, insn.mnemonic, operands, is_nop, _target(insn), memory)


def _is_skipped(insn: _Insn, end: int) -> bool:
    """Return whether it is what stands behind a jump to ``end``: int3, or another such jump."""
    if insn.mnemonic in JUMPS and insn.target is not None:
        return insn.offset < insn.target <= end
    return insn.mnemonic == "int3"


def _expected(site: _Site, present: dict[int, bool]) -> int:
    """The entry that the processor's features demand; what stands there if they are not known."""
    if any(entry.feature not in present for entry in site.entries):
        return site.chosen
    enabled = [
        number
        for number, entry in enumerate(site.entries)
        if present[entry.feature] != bool(entry.flags & INVERTED)
    ]
    return enabled[-1] if enabled else -1


def _grouped(text: PatchedText) -> Iterator[tuple[int, int, list[_Entry]]]:
    """Place, size and entries of each, in the order of the table."""
    rows = text.table(
        "__alt_instructions", "__alt_instructions_end", "alt_instr",
        ("instr_offset", "repl_offset", "instrlen", "replacementlen"),
    )  # fmt: skip
    if not len(rows):
        return
    at, code = rows.address("instr_offset"), rows.address("repl_offset")
    feature = rows.at(8, "<u2")
    if rows.offset("instrlen") == 10:
        flags = (feature & INVERTED_OLDER != 0).astype(np.int64)
        feature = feature & (INVERTED_OLDER - 1)
    else:
        flags = rows.at(10, "<u2")
    size, length = rows.column("instrlen", "u1"), rows.column("replacementlen", "u1")
    found: dict[int, tuple[int, list[_Entry]]] = {}
    columns = (at, size, code, length, feature, flags)
    for place, own, where, width, bit, flag in zip(*(c.tolist() for c in columns), strict=True):
        longest, entries = found.get(place, (0, []))
        found[place] = max(own, longest), entries  # of nested ones the outer has more room
        entries.append(_Entry(where, width, bit, flag))
    inside = text.inside(np.array(list(found), np.uint64))
    for (place, (own, entries)), there in zip(found.items(), inside.tolist(), strict=True):
        if there:
            yield place, own, entries


def _features(sites: list[_Site]) -> dict[int, bool]:
    """Whether the processor has each feature, as most places with one entry say."""
    votes: dict[int, Counter[bool]] = defaultdict(Counter)
    for site in sites:
        if len(site.entries) == 1:
            (entry,) = site.entries
            votes[entry.feature][(site.chosen == 0) != bool(entry.flags & INVERTED)] += 1
    return {feature: count.most_common(1)[0][0] for feature, count in votes.items()}


def _one(at: int) -> U64:
    return np.array([at], np.uint64)


def _target(insn: Any) -> int | None:  # noqa: ANN401
    """A direct branch's target."""
    import capstone

    groups = (capstone.CS_GRP_CALL, capstone.CS_GRP_JUMP, capstone.CS_GRP_BRANCH_RELATIVE)
    if any(insn.group(group) for group in groups):
        for operand in insn.operands:
            if operand.type == capstone.CS_OP_IMM:
                return int(operand.imm) & 0xFFFF_FFFF_FFFF_FFFF
    return None
