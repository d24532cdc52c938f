# SPDX-License-Identifier: MIT
"""Unwinding recorded stacks, many at once: each step finds the callers of all of them.

stack    | word | word | ... | return address | ...
           ^ stack pointer     ^ CFA - 8        ^ CFA, the stack pointer of the caller
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.frame_registers import FrameRegisters
from ftpatch.elf.eh_frame import NO_CFA
from ftpatch.elf.unwind_rules import Rules

__all__ = ["EXACT", "PLACE_BITS", "Code", "Copies", "Walked", "unwind"]

EXACT = 1 << 63
"""Marks an address that is reached, and not returned to: of a hit, or where a signal came."""
PLACE_BITS = 16
Words = NDArray[np.uint64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Code:
    """Facts of a process's code: the ``rules`` at an address in memory (None: unknown), and whether
    a signal's handler returns there (``restores``), or may do so, to the kernel's code, which
    is in no file (``is_kernel``); whether a function begins there, or it is a PLT's
    (``begins``); whether it is in a known file, or the kernel's (``has``)."""

    rules: Callable[[int], Rules | None]
    restores: Callable[[int], bool]
    is_kernel: Callable[[int], bool]
    begins: Callable[[int], bool]
    has: Callable[[int], bool]


@dataclass(frozen=True, kw_only=True)
class Copies:
    """n stacks. ``ip`` uint64[n]: where each hit was, with EXACT, or returns to; ``registers``
    uint64[n, r], with these DWARF ``numbers``. ``keys`` int64[m], ascending: places of words,
    in words from the stack pointer on, and above PLACE_BITS the stack's number; ``words``
    uint64[m]."""

    ip: Words
    registers: Words
    numbers: Sequence[int]
    keys: NDArray[np.int64]
    words: Words


@dataclass(frozen=True, kw_only=True)
class Walked:
    """The calls of n stacks, from the innermost on. ``frames`` uint64[n, d]: return addresses in
    memory, those with EXACT as they are, then zeros; ``cut`` bool[n]: there are more."""

    frames: Words
    cut: Mask


class _Stacks:
    """The state of the walks: registers, and which of these are known."""

    def __init__(self, copies: Copies, known: FrameRegisters) -> None:
        self.copies, self.numbers = copies, known
        self.held = np.zeros((len(known.names), len(copies.ip)), np.uint64)
        self.held[list(copies.numbers)] = copies.registers.T
        self.known = np.zeros(self.held.shape, bool)
        self.known[list(copies.numbers)] = True
        self._low = self.held[known.stack].copy()

    def _above(self, rows: NDArray[np.intp], place: tuple[int, int]) -> tuple[Words, Mask]:
        """What is so many bytes above a register, and where that is known."""
        register, distance = place
        return self.held[register, rows] + np.uint64(distance % (1 << 64)), self.known[
            register, rows
        ]

    def read(self, rows: NDArray[np.intp], at: Words, known: Mask) -> tuple[Words, Mask]:
        """The words at some addresses of some stacks, and which of them are recorded; ``known``
        bool[n]: which addresses are."""
        keys, word = self.copies.keys, np.uint64(self.numbers.word)
        apart = at - self._low[rows]
        inside = known & (apart % word == 0) & (apart < word << np.uint64(PLACE_BITS))
        place = np.where(inside, apart // word, np.uint64(0)).astype(np.int64)
        wanted = rows.astype(np.int64) << PLACE_BITS | place
        found = np.searchsorted(keys, wanted)
        inside &= found < len(keys)
        found[~inside] = 0
        if not len(keys):
            return np.zeros(len(rows), np.uint64), np.zeros(len(rows), bool)
        inside &= keys[found] == wanted
        return np.where(inside, self.copies.words[found], np.uint64(0)), inside

    def signalled(self, rows: NDArray[np.intp], shorter: int) -> tuple[Words, Mask]:
        """Where a signal came, and whether it is known."""
        place = (self.numbers.stack, self.numbers.ip - shorter)
        ip, told = self.read(rows, *self._above(rows, place))
        if self.numbers.again is not None:
            stack = self.numbers.stack
            places = (self.numbers.signalled[stack], self.numbers.again)
            both = [self.read(rows, *self._above(rows, (stack, at - shorter))) for at in places]
            told &= both[0][1] & both[1][1] & (both[0][0] == both[1][0])
        return ip | np.uint64(EXACT), told

    def linked(self, rows: NDArray[np.intp], shorter: int) -> Words:
        """What the link register had where a signal came, or where there is none, the place."""
        at = self.numbers.signalled.get(self.numbers.back, self.numbers.ip) - shorter
        held, told = self.read(rows, *self._above(rows, (self.numbers.stack, at)))
        return np.where(told, held & np.uint64(self.numbers.address), np.uint64(0))

    def interrupted(self, rows: NDArray[np.intp], shorter: int = 0) -> tuple[Words, Mask]:
        """Restore what a signal interrupted; return where that was, and whether it is known."""
        stack, where = self.numbers.stack, dict(self.numbers.signalled)
        held = {
            n: self.read(rows, *self._above(rows, (stack, at - shorter))) for n, at in where.items()
        }
        ip, told = self.signalled(rows, shorter)
        for number, (value, there) in held.items():
            self.held[number, rows], self.known[number, rows] = value, there
        return ip, told & self.known[stack, rows]

    def called(
        self, rows: NDArray[np.intp], rules: Rules, ip: int, *, exact: bool
    ) -> tuple[Words, Mask]:
        """Restore the registers of the callers; return where these are returned to, and whether
        that is known. ``rules`` tell of the return address."""
        known = self.numbers
        sp = self.held[known.stack, rows]
        if rules.pointer is not None:
            cfa, there = self.read(rows, *self._above(rows, rules.pointer))
        elif rules.cfa == NO_CFA:  # of a PLT's entry
            cfa, there = self._above(rows, (known.stack, known.in_plt(ip, 0)))
        else:
            cfa, there = self._above(rows, rules.cfa)
        before = cfa - np.uint64(known.room)
        # Or the walk would not end. A function without a frame may have stored its return address.
        ahead = before >= sp if exact else before > sp
        for number, other in rules.moved.items():
            if other in known.vectors:  # which no copy has
                self.known[number, rows] = False
        places = {number: self._above(rows, place) for number, place in rules.pointed.items()}
        back, told = self.held[known.back, rows], there & self.known[known.back, rows]
        for number, at in rules.saved.items():
            if number in known.vectors:
                continue
            if number in places:
                value, read = self.read(rows, *places[number])
            elif at is None:
                self.known[number, rows] = False
                continue
            else:
                value, read = self.read(rows, cfa + np.uint64(at % (1 << 64)), there)
            self.held[number, rows], self.known[number, rows] = value, read
            if number == known.back:
                back, told = value, read & ahead
        self.held[known.stack, rows], self.known[known.stack, rows] = before, there
        return back & np.uint64(known.address), told


def _is_first(rules: Rules, known: FrameRegisters) -> bool:
    """Test whether a function is the first of a thread, which has no return address."""
    absent = known.back not in rules.saved
    return not known.link if absent else rules.saved[known.back] is None


def _is_known(rules: Rules, known: FrameRegisters, *, exact: bool) -> bool:
    """Test whether rules are of a form that is followed. Nothing returns into a PLT."""
    if rules.cfa == NO_CFA and rules.pointer is None and not exact:
        return False
    if known.back not in rules.saved and not exact:
        return False  # what it has called has overwritten the register
    named = [place for place, _ in (rules.pointer or (0, 0), *rules.pointed.values())]
    if rules.cfa != NO_CFA:
        named.append(rules.cfa[0])
    count = len(known.names)
    return all(0 <= one < count and (known.link or one != known.back) for one in named) and all(
        one < count or one in known.vectors for one in rules.saved
    )


def unwind(copies: Copies, code: Code, known: FrameRegisters, depth: int) -> Walked:
    """Find the calls of each stack, ``depth`` of them at most."""
    count = len(copies.ip)
    frames = np.zeros((count, depth), np.uint64)
    cut = np.zeros(count, bool)
    stacks, ip, active = _Stacks(copies, known), copies.ip.copy(), np.arange(count)
    for level in range(depth + 1):
        if level == depth:
            cut[active] = True
            break
        frames[active, level] = ip[active]
        more = [np.empty(0, np.intp)]
        distinct, index = np.unique(ip[active], return_inverse=True)
        order = np.argsort(index, kind="stable")
        parts = np.split(active[order], np.cumsum(np.bincount(index))[:-1])
        for marked, rows in zip(distinct.tolist(), parts if len(active) else (), strict=True):
            at, exact = marked & ~EXACT, bool(marked & EXACT)
            if code.restores(at):
                frames[rows, level] |= np.uint64(EXACT)
                ip[rows], told = stacks.interrupted(rows)
            elif code.is_kernel(at) and not exact:
                told = np.zeros(len(rows), bool)
                for shorter in known.shorter:
                    was, there = stacks.signalled(rows, shorter)
                    there &= ~told
                    both = zip(was[there], stacks.linked(rows[there], shorter), strict=True)
                    there[there] = [
                        code.has(int(one) & ~EXACT) and code.has(int(other)) for one, other in both
                    ]
                    ip[rows[there]], told[there] = stacks.interrupted(rows[there], shorter)
                frames[rows[told], level] |= np.uint64(EXACT)
            else:
                rules = code.rules(at if exact else at - 1)
                if rules is None and known.link and exact and code.begins(at):
                    rules = Rules((known.stack, known.room), {}, None, {})
                if rules is not None and _is_first(rules, known):
                    continue
                if rules is None or not _is_known(rules, known, exact=exact):
                    cut[rows] = True
                    continue
                ip[rows], told = stacks.called(rows, rules, at, exact=exact)
                told &= ip[rows] != 0
            cut[rows[~told]] = True
            more.append(rows[told])
        active = np.sort(np.concatenate(more))
        if not len(active):
            break
    return Walked(frames=frames, cut=cut)
