# SPDX-License-Identifier: MIT
"""Callers of stopped threads, by unwind information: what is on a stack now, and not what lies
there yet.

    stack    ... | return address | locals, and what earlier calls left there | return address | ...

A return address that a tracer has replaced is taken from the ret_stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import feature
from ftpatch.arch.frame_registers import FrameRegisters
from ftpatch.elf.eh_frame import NO_CFA, frame_of, saved_at, size_of_fde
from ftpatch.elf.eh_frame_hdr import read_table
from ftpatch.elf.headers import Segment
from ftpatch.errors import InputError
from ftpatch.process.loaded import Loaded
from ftpatch.process.memory_target import MemoryTarget
from ftpatch.process.thread import Thread

__all__ = ["Callers", "Unknown"]

MAX_FRAMES = 1 << 16
"""Maximum number of callers of a thread."""
WORD = 8
Table = NDArray[np.int64]


class Unknown(Exception):
    """Code without unwind information, or with one of an unknown form."""


@dataclass(frozen=True)
class _Rules:
    """The CFA, and where registers are saved, as ``saved_at`` has them."""

    cfa: tuple[int, int]
    saved: Mapping[int, int | None]


class Callers:
    """Finds the callers of stopped threads in ``loaded`` images."""

    def __init__(self, arch: str, target: MemoryTarget, loaded: Sequence[Loaded]) -> None:
        self._registers: FrameRegisters = feature(arch, "frame_registers")
        self._target = target
        self._loaded = [(*one.span, one) for one in loaded]
        self._tables = dict[int, Table]()
        self._rules = lru_cache(maxsize=None)(self._rules_at)

    def of(self, thread: Thread, replaced: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        """Yield the address of each caller of a thread, and where that lies on the stack;
        ``replaced``: the true return addresses by the places of those that are not; where they are
        in a register, by the stack pointers at which their functions were entered. Raises Unknown
        where that cannot be told."""
        known, ip = self._registers, thread.ip
        held = {
            number: int(thread.registers[name])
            for number, name in enumerate(known.names)
            if name in (thread.registers.dtype.names or ())
        }
        exact = True
        for _ in range(MAX_FRAMES):
            if self._target.read(ip, len(known.restorer)) == known.restorer:
                sp = held[known.stack]
                held = {number: self._word(sp + at) for number, at in known.signalled.items()}
                exact, ip = True, self._word(sp + known.ip)
                yield ip, sp + known.ip
                continue
            rules = self._rules(ip if exact else ip - 1)
            register, distance = rules.cfa
            if rules.cfa == NO_CFA:
                cfa = known.in_plt(ip, held[known.stack])
            elif register in held:
                cfa = held[register] + distance
            else:
                raise Unknown
            at_back = rules.saved.get(known.back, None)
            if at_back is not None:
                place = cfa + at_back
            elif known.link and exact and known.back not in rules.saved:
                place = held[known.stack]  # not saved yet, or again in its register
            else:
                return  # the first function of a thread
            for number, at in rules.saved.items():
                if at is None:
                    held.pop(number, None)
                else:
                    held[number] = self._word(cfa + at)
            ip = replaced.get(cfa if known.link else place, held[known.back] & known.address)
            held[known.stack] = cfa
            exact = False
            if not ip:
                return
            yield ip, place
        raise Unknown

    @property
    def address(self) -> int:
        """The bits of a return address that are not its signature."""
        return self._registers.address

    def _word(self, address: int) -> int:
        held = self._target.read(address, WORD)
        if held is None:
            raise Unknown
        return int.from_bytes(held, "little")

    def _rules_at(self, address: int) -> _Rules:
        one = next((one for low, high, one in self._loaded if low <= address < high), None)
        if one is None:
            raise Unknown
        table = self._table(one)
        link = address - one.bias
        row = int(np.searchsorted(table[:, 0], link, "right")) - 1
        if row < 0:
            raise Unknown
        start, frame = table[row].tolist()
        try:
            cfi = frame_of(one.file.elf, frame)
            if cfi is None or link >= start + size_of_fde(one.file.elf, frame):
                raise Unknown
            return _Rules(*saved_at(cfi, link))
        except (InputError, IndexError, KeyError, ValueError):
            raise Unknown from None

    def _table(self, one: Loaded) -> Table:
        """Functions and their FDEs, by link address."""
        if one.bias not in self._tables:
            elf = one.file.elf
            own = elf.segment(Segment.PT_GNU_EH_FRAME)
            try:
                if own is None:
                    raise Unknown
                held = elf.contents(own.offset, own.size, ".eh_frame_hdr")
                _, rows = read_table(held, own.address, str(elf.path))
            except InputError:
                raise Unknown from None
            self._tables[one.bias] = rows
        return self._tables[one.bias]
