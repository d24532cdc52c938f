# SPDX-License-Identifier: MIT
"""Callers of stopped threads, by unwind information: what is on a stack now, and not what lies
there yet.

    stack    ... | return address | locals, and what earlier calls left there | return address | ...

A return address that a tracer has replaced is taken from the ret_stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ftpatch.arch import feature
from ftpatch.arch.frame_registers import FrameRegisters
from ftpatch.elf.eh_frame import NO_CFA
from ftpatch.elf.unwind_rules import Rules, UnwindRules
from ftpatch.process.loaded import Loaded
from ftpatch.process.memory_target import MemoryTarget
from ftpatch.process.thread import Thread

__all__ = ["Callers", "Unknown"]

MAX_FRAMES = 1 << 16
"""Maximum number of callers of a thread."""
WORD = 8


class Unknown(Exception):
    """Code without unwind information, or with one of an unknown form."""


class Callers:
    """Finds the callers of stopped threads in ``loaded`` images."""

    def __init__(self, arch: str, target: MemoryTarget, loaded: Sequence[Loaded]) -> None:
        self._registers: FrameRegisters = feature(arch, "frame_registers")
        self._target = target
        self._loaded = [(*one.span, one) for one in loaded]
        self._images = dict[int, UnwindRules]()

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
            rules = self._rules_at(ip if exact else ip - 1)
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

    def _rules_at(self, address: int) -> Rules:
        one = next((one for low, high, one in self._loaded if low <= address < high), None)
        if one is None:
            raise Unknown
        if one.bias not in self._images:
            self._images[one.bias] = UnwindRules(one.file.elf)
        rules = self._images[one.bias].at(address - one.bias)
        if rules is None:
            raise Unknown
        return rules
