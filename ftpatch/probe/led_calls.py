# SPDX-License-Identifier: MIT
"""System calls of one image of a process that are led to the runtime, by stubs near it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ftpatch.arch import Arch, feature
from ftpatch.arch.led_call import LedCall
from ftpatch.arch.move import mover_of
from ftpatch.core.changes import NO_OWNER, Changes, Kind
from ftpatch.process.loaded import Loaded
from ftpatch.process.memory_target import in_memory

__all__ = ["Led", "NearCalls"]


@dataclass(frozen=True)
class Led:
    """Code for an area, and the Changes to memory that lead there. ``gates``: where a call is asked
    for, by the address of its instruction; ``spans``: bounds of the code from the load of its
    number to that."""

    code: bytes
    changes: Changes
    gates: dict[int, int]
    spans: list[tuple[int, int]]


class NearCalls:
    """The stubs of an image's system calls, ``size`` bytes. ``calls``: bounds of each, from the
    load of its number to its end (link addresses)."""

    def __init__(self, loaded: Loaded, arch: Arch, calls: Sequence[tuple[int, int]]) -> None:
        self._loaded, self._calls, self._mover = loaded, calls, mover_of(arch.name)
        self._led: LedCall = feature(arch.name, "led_call")
        self.size = len(calls) * self._led.size

    def make(self, at: int, asked: int) -> Led:
        """Make them for an address; ``asked``: the runtime's function, in memory."""
        loaded, led = self._loaded, self._led
        code, gates, spans = bytearray(self.size), dict[int, int](), list[tuple[int, int]]()
        starts = np.array([low for low, _ in self._calls], np.uint64)
        offset = loaded.file.elf.offset_of(starts, executable=True)
        old, new = (np.zeros((len(starts), led.jump), np.uint8) for _ in range(2))
        for row, ((low, high), place) in enumerate(zip(self._calls, offset.tolist(), strict=True)):
            held = loaded.image.data[place : place + high - low].tobytes()
            start, stub = loaded.above(low), at + row * led.size
            made = led.make(held, start, stub, asked)
            code[stub - at : stub - at + len(made.code)] = made.code
            jump = self._mover.jump(start, stub)
            old[row] = np.frombuffer(held, np.uint8)[: led.jump]
            new[row] = np.frombuffer(jump, np.uint8)
            # The instruction that makes the call is the last one.
            call = start + len(held) - 2
            gates[call] = stub + made.gate
            spans.append((start, call))
        changes = Changes.of(Kind.CODE, offset, old, new, NO_OWNER)
        return Led(bytes(code), in_memory(changes, loaded), gates, spans)
