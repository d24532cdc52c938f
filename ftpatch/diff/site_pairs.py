# SPDX-License-Identifier: MIT
"""Pairs of corresponding sites in two images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import State
from ftpatch.diff.code_text import code_text
from ftpatch.ftrace.sites import Sites

__all__ = ["Pairs", "Row", "literal_offsets", "pair_sites", "table_order"]

Row = tuple[str, int | None, int, str, str, str]
"""kind, address, file offset, symbol, old, new."""


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Rows of the sites that stand for each other, intp[p] each, where something differs: ``code``,
    ``record`` and ``literal`` bool[p] say what. ``removed`` and ``added`` are rows without a
    counterpart. ``moved``: the pairs were found by symbol."""

    before: NDArray[np.intp]
    after: NDArray[np.intp]
    code: NDArray[np.bool_]
    record: NDArray[np.bool_]
    literal: NDArray[np.bool_]
    removed: NDArray[np.intp]
    added: NDArray[np.intp]
    moved: bool

    def __len__(self) -> int:
        return int(self.code.sum() + self.record.sum() + self.literal.sum())

    def rows(self, old: Sites, new: Sites, limit: int | None) -> Iterator[Row]:
        """The differences of at most ``limit`` sites as text, in the order of addresses."""
        places = old.image.kallsyms.places(old.ip[self.before[:limit]])
        literals = literal_offsets(old) if self.literal.any() else old.offset
        rows = zip(places, self.before.tolist(), self.after.tolist(), strict=False)
        for at, (symbol, b, a) in enumerate(rows):
            ip = int(old.ip[b])
            if self.code[at]:
                yield "site", ip, int(old.offset[b]), symbol, _code(old, b), _code(new, a)
            if self.record[at]:
                place = int(old.table_before.offset[old.row[b]])
                yield "record", ip, place, symbol, _record(old, b), _record(new, a)
            if self.literal[at]:
                yield "literal", ip, int(literals[b]), symbol, _literal(old, b), _literal(new, a)

    def unpaired(self, old: Sites, new: Sites) -> Iterator[Row]:
        """Sites that only one of the images has."""
        for kind, sites, rows in (("removed", old, self.removed), ("added", new, self.added)):
            places = sites.image.kallsyms.places(sites.ip[rows])
            for row, symbol in zip(rows.tolist(), places, strict=True):
                text = _code(sites, row)
                old_new = (text, "") if kind == "removed" else ("", text)
                yield kind, int(sites.ip[row]), int(sites.offset[row]), symbol, *old_new

    def groups(self, old: Sites, new: Sites) -> list[tuple[str, str, str, int]]:
        """(kind, old, new, how many) of all differences, the most frequent first."""
        found: Counter[tuple[str, str, str]] = Counter()
        before, after = self.before[self.code], self.after[self.code]
        # Alike in bytes, or calls of one callee: the same text, so one of each is disassembled.
        labels = np.stack([_label(old, before), _label(new, after)], axis=1)
        if len(labels):
            _, first, count = np.unique(labels, axis=0, return_index=True, return_counts=True)
            for at, n in zip(first.tolist(), count.tolist(), strict=True):
                texts = _code(old, int(before[at])), _code(new, int(after[at]))
                found["site", *texts] += n
        for kind, differs, words in (
            ("record", self.record, _record),
            ("literal", self.literal, _literal),
        ):
            rows = zip(self.before[differs].tolist(), self.after[differs].tolist(), strict=True)
            found.update((kind, words(old, b), words(new, a)) for b, a in rows)
        return [(*key, n) for key, n in found.most_common()]


def pair_sites(old: Sites, new: Sites) -> Pairs:
    """Pair by address if most addresses are common to both, else by symbol; where several functions
    share a name, the first with the first."""
    _, before, after = np.intersect1d(old.ip, new.ip, return_indices=True)
    moved = False
    if 2 * len(before) < min(len(old), len(new)) or not _same_names(old, new, before, after):
        before, after = _by_symbol(old, new)
        moved = True
    if moved:
        code = _kind(old, before) != _kind(new, after)
    else:
        k = min(old.code.shape[1], new.code.shape[1])
        width = np.maximum(old.width[before], new.width[after])
        inside = np.arange(k) < width[:, None]
        code = ((old.code[before][:, :k] != new.code[after][:, :k]) & inside).any(axis=1)
    record = old.dropped[before] != new.dropped[after]
    literal = np.zeros(len(before), bool)
    if old.abi.nop_ops and new.abi.nop_ops and not moved:
        sides = [s.image.elf.gather(literal_offsets(s), 8)[0] for s in (old, new)]
        literal = (sides[0][before] != sides[1][after]).any(axis=1)
    removed = np.setdiff1d(np.arange(len(old)), before)
    added = np.setdiff1d(np.arange(len(new)), after)
    rows = np.flatnonzero(code | record | literal)
    return Pairs(
        before=before[rows],
        after=after[rows],
        code=code[rows],
        record=record[rows],
        literal=literal[rows],
        removed=removed,
        added=added,
        moved=moved,
    )


def table_order(old: Sites, new: Sites) -> Iterator[Row]:
    """A row if two tables of the same records have them in another order."""
    first, second = old.table_before, new.table_before
    if len(first.value) != len(second.value) or not np.array_equal(first.offset, second.offset):
        return
    differing = np.flatnonzero(first.value != second.value)
    if len(differing) and np.array_equal(np.sort(first.value), np.sort(second.value)):
        at = int(differing[0])
        places = [of.image.kallsyms.places(of.table_before.value[at : at + 1]) for of in (old, new)]
        was, becomes = (f"{place[0] or 'a record'}, of {len(differing)}" for place in places)
        yield "table", int(first.slot[at]), int(first.offset[at]), "another order", was, becomes


def literal_offsets(sites: Sites) -> NDArray[np.int64]:
    """File offset of each site's literal (CALL_OPS), int64[n]; none in an image without."""
    if not sites.abi.nop_ops:
        return np.empty(0, np.int64)
    return sites.image.elf.offset_of(sites.arch.literal(sites.ip), executable=True)


def _same_names(old: Sites, new: Sites, before: NDArray[np.intp], after: NDArray[np.intp]) -> bool:
    """Return whether most common addresses have one name in both; two builds may share addresses by
    chance."""
    sample = slice(None, None, max(1, len(before) // 256))
    first = old.image.kallsyms.lookup(old.ip[before[sample]])
    second = new.image.kallsyms.lookup(new.ip[after[sample]])
    same = sum(a[:2] == b[:2] for a, b in zip(first, second, strict=True))
    return 2 * same >= len(first)


def _by_symbol(old: Sites, new: Sites) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    rows = {key: row for row, key in enumerate(_keys(new))}
    pairs = [(row, rows[key]) for row, key in enumerate(_keys(old)) if key in rows]
    both = np.array(pairs, np.intp).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _keys(sites: Sites) -> list[tuple[str, int]]:
    """(name, how many of that name lie before) of each site. The offset does not count: another
    build may put a landing pad before the site."""
    seen: Counter[str] = Counter()
    keys = [("", 0)] * len(sites)
    order = np.argsort(sites.ip, kind="stable")
    for row, place in zip(
        order.tolist(), sites.image.kallsyms.lookup(sites.ip[order]), strict=True
    ):
        keys[row] = (place[0], seen[place[0]])
        seen[place[0]] += 1
    return keys


def _label(sites: Sites, rows: NDArray[np.intp]) -> NDArray[np.uint64]:
    """Numbers that are equal for calls of one callee, or for the same bytes."""
    code = np.zeros((len(rows), 8), np.uint8)
    code[:, : sites.code.shape[1]] = sites.code[rows][:, :8]
    code[np.arange(8) >= sites.width[rows][:, None]] = 0
    label = code.view("<u8")[:, 0].copy()
    calls = sites.state[rows] == State.CALL
    # A form of call is its first byte or two, so that only the displacement is left out.
    label[calls] = sites.addr[rows][calls] ^ (sites.width[rows][calls].astype(np.uint64) << 56)
    return label


def _kind(sites: Sites, rows: NDArray[np.intp]) -> NDArray[np.str_]:
    """Describe each site in words that do not depend on addresses."""
    names = np.array(["", *sites.targets.name])
    calls = sites.state[rows] == State.CALL
    at = np.where(calls, sites.targets.index(sites.addr[rows]) + 1, 0)
    words = np.array([state.name for state in State])[sites.state[rows]]
    return np.char.add(np.char.add(words, " "), names[at])


def _code(sites: Sites, row: int) -> str:
    width = int(sites.width[row])
    start = int(sites.ip[row]) - sites.lead
    return code_text(sites, sites.code[row, :width].tobytes(), start)


def _record(sites: Sites, row: int) -> str:
    return "dropped" if sites.dropped[row] else "in the table"


def _literal(sites: Sites, row: int) -> str:
    at = sites.image.elf.offset_of(sites.arch.literal(sites.ip[row : row + 1]))
    held = sites.image.elf.word_at(int(at[0]))
    return "&ftrace_nop_ops" if held == sites.abi.nop_ops else f"{held:#018x}"
