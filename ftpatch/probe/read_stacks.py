# SPDX-License-Identifier: MIT
"""The stacks of probes' events (enum trace_calls of stubs/runtime/trace.h).

| values | count, cut | registers | count words, each with its place |     to be unwound
| values | count, cut | the stack's first words | count return addresses |  frame pointers
| values | count, cut | x30 | x29 - sp | count return addresses |          the same on arm64
| values | count, cut | ra | s0 - 16 - sp | count return addresses |      the same on riscv64
| values | count, cut | LR | 16(r1) | count return addresses |             the same on ppc64le
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.layout import constants
from ftpatch.probe.trace_probes import Probe
from ftpatch.trace.reader import Opened
from ftpatch.trace.stack_copies import COPY_ROOM, copied_words, unwound
from ftpatch.trace.stacks import Stacks
from ftpatch.trace.unwind import EXACT, Walked

__all__ = ["HitStacks", "long_words", "stack_room"]

TOP = constants["CALLS_TOP"]
CUT = constants["CALLS_CUT"]
COUNT = CUT - 1
Block = NDArray[np.uint64]


def stack_room(probe: Probe) -> int:
    """The most words that a stack of a probe takes in an event; 0 if it has none."""
    stack = probe.definition.stack
    if stack is None:
        return 0
    return 1 + TOP + stack.depth if stack.frames else COPY_ROOM


def long_words(probes: list[Probe], number: NDArray[np.uint32], words: Block) -> NDArray[np.uint16]:
    """Return how many words of stacks follow each of ``words``, uint16[k, n], where it may begin an
    event of the probe ``number`` (their count, if of none), behind the values."""
    out = np.zeros(words.shape, np.uint16)
    for row, probe in enumerate(probes):
        if probe.definition.stack is None:
            continue
        fixed = probe.before + probe.words
        chunk, at = np.nonzero(number == row)
        there = at + 1 + fixed < words.shape[1]
        chunk, at = chunk[there], at[there]
        out[chunk, at] = _stack_words(probe, words[chunk, at + 1 + fixed])
    return out


def _stack_words(probe: Probe, first: Block) -> NDArray[np.uint16]:
    """The words that stacks take, by the first one of each; 0 for one that cannot be."""
    stack = probe.definition.stack
    assert stack is not None
    if not stack.frames:
        return copied_words(first)
    held = first & np.uint64(COUNT)
    most = np.uint64(stack.depth)
    return np.where(held > most, np.uint64(0), held + np.uint64(1 + TOP)).astype(np.uint16)


class HitStacks:
    """The stacks of a recording's hits; ``known`` has each different one."""

    def __init__(self, trace: Opened) -> None:
        self.known = Stacks(trace.recording)

    def numbers(self, header: int, probe: Probe, caller: Block, block: Block) -> NDArray[np.int32]:
        """Find the stacks of n events of the process of a ``header``, by its number: their numbers,
        int32[n]. ``caller`` as in a Group; ``block`` uint64[n, room]: what follows their values."""
        reader = _Reader(self.known, header, self.known.headers[header].bias)
        return self.known.number(header, reader.walked(probe, caller, block))


class _Reader:
    """Reads the stacks of events of one process."""

    def __init__(self, stacks: Stacks, header: int, bias: int) -> None:
        self._stacks, self._header, self._bias = stacks, header, bias
        self._frames = stacks.registers(header)
        self._code = stacks.code(header).unwound

    def walked(self, probe: Probe, caller: Block, block: Block) -> Walked:
        """Find the calls that led to the events."""
        stack = probe.definition.stack
        assert stack is not None
        count = (block[:, 0] & np.uint64(COUNT)).astype(np.int64)
        cut = (block[:, 0] & np.uint64(CUT)) > 0
        ip = caller
        if not probe.returns:
            at = (probe.ip + self._bias) % (1 << 64)
            ip = np.full(len(block), at | EXACT, np.uint64)
        if stack.frames:
            return self._walked(probe, ip, block, count, cut)
        return unwound(self._stacks, self._header, ip, block, stack.depth)

    def _walked(
        self,
        probe: Probe,
        ip: Block,
        block: Block,
        count: NDArray[np.int64],
        cut: NDArray[np.bool_],
    ) -> Walked:
        """Add where the hit was, and the caller that no frame pointer leads to yet, or any more."""
        stack = probe.definition.stack
        assert stack is not None
        words = block[:, 1 + TOP :]
        found = np.where(np.arange(words.shape[1]) < count[:, None], words, np.uint64(0))
        frames = np.column_stack([ip, found])
        if not len(ip):
            return Walked(frames=frames[:, : stack.depth], cut=cut)
        if self._frames.link:
            at = self._unchained(int(ip[0])) if self._frames.chained else 1
            linked = np.full(len(ip), at > 0)
            if not self._frames.chained:
                linked = self._linked(probe, int(ip[0]), block[:, 1], block[:, 2])
            linked &= block[:, at] > 0
            frames = np.column_stack([frames, np.zeros(len(ip), np.uint64)])
            frames[linked, 2:] = frames[linked, 1:-1]
            frames[linked, 1] = block[linked, at]
        elif (row := self._bare(probe, int(ip[0]))) >= 0:
            frames = np.column_stack([ip, block[:, 1 + row], found])
        lengths = np.count_nonzero(frames, axis=1)
        cut = cut | (lengths > stack.depth)
        return Walked(frames=frames[:, : stack.depth], cut=cut)

    def _unchained(self, ip: int) -> int:
        """Which word of the top has the return address at a place, where the chain does not lead
        before a function has a frame, and behind that: in its register (1) or stored (2); 0 where
        it leads there."""
        if not ip & EXACT:
            return 0
        rules, known = self._code.rules(ip & ~EXACT), self._frames
        if rules is None:
            return int(self._code.begins(ip & ~EXACT))
        if rules.cfa != (known.stack, 0):
            return 0 if known.back in rules.saved else 1
        return 2 if known.back in rules.saved else 1

    def _linked(self, probe: Probe, ip: int, link: Block, apart: Block) -> NDArray[np.bool_]:
        """Tell which of n hits at a place have the return address in its register (``link``
        uint64[n]) alone, or have no frame pointer yet, though it is on the stack; ``apart``
        uint64[n]: from the stack pointer to where the frame pointer is."""
        out = np.zeros(len(apart), bool)
        if not ip & EXACT:
            return out
        rules, known = self._code.rules(ip & ~EXACT), self._frames
        if rules is None:
            out[:] = self._code.begins(ip & ~EXACT)
        elif known.back not in rules.saved:  # or no longer, beside a record that is still in use
            out[:] = rules.saved.get(known.frame) != -2 * known.word
        else:
            frame, (register, distance) = rules.saved.get(known.frame), rules.cfa
            if frame is not None and register == known.stack:
                out = apart != np.uint64((frame + distance) % (1 << 64))
                out &= self._is_fresh(ip & ~EXACT, link)
        return out

    def _is_fresh(self, at: int, link: Block) -> NDArray[np.bool_]:
        """Tell which of n hits at a place, behind where the register was stored, have it as it was:
        code that keeps no frame pointers gets here also after it has called others."""
        before = self._code.rules(at - 1)  # of the instruction before
        if before is not None and self._frames.back not in before.saved:
            return np.ones(len(link), bool)
        (one,) = self._stacks.code(self._header).frames(np.array([at | EXACT], np.uint64))
        if not one.known or not one.size:
            return np.zeros(len(link), bool)
        into = link - np.uint64(at - one.offset)
        return np.asarray((into == 0) | (into > np.uint64(one.size)), bool)

    def _bare(self, probe: Probe, ip: int) -> int:
        """Which of the stack's first words is the return address at a place, -1 for none."""
        exact = bool(ip & EXACT)
        rules = self._code.rules((ip & ~EXACT) - (not exact))
        if rules is None:
            return 0 if exact and not probe.offset and probe.symbol is not None else -1
        register, distance = rules.cfa
        row = distance // self._frames.word - 1
        return row if register == self._frames.stack and row < TOP else -1
