# SPDX-License-Identifier: MIT
"""Accessors of a watched variable: the function, and whether its instruction reads or writes.

x86 data breakpoints trap after the instruction (SDM vol. 3, section 18.3.1.2). So the accessor is
the instruction that ends at the recorded address, with its function disassembled from the start.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ftpatch.arch import arch_of
from ftpatch.arch.accesses import READ, WRITE, memory_accesses
from ftpatch.inject.displaced import Displaced
from ftpatch.trace.address_names import Places
from ftpatch.trace.reader import Opened
from ftpatch.trace.symbolize import Program
from ftpatch.watch.read_accesses import Recorded

__all__ = ["Accessor", "Accessors"]

MAX_FUNCTION = 1 << 20
"""Bytes of a function to disassemble at most."""
KINDS = {READ: "r", WRITE: "w", READ | WRITE: "rw"}


@dataclass(frozen=True)
class Accessor:
    """``function``: its name, or ``PROGRAM+OFFSET`` if unknown; ``place``: with offset and size;
    ``kind``: ``r``, ``w``, ``rw``, or empty if the code does not tell."""

    function: str
    place: str
    kind: str


class Accessors:
    """Looks up the functions of accesses, each once."""

    def __init__(self, trace: Opened) -> None:
        self._trace = trace
        self._recording, self._places = trace.recording, Places(trace.recording, str)
        self._known: dict[tuple[int, int], Accessor] = {}
        self._code: dict[tuple[Program, int], dict[int, set[int]]] = {}
        self._displaced: dict[Program, Displaced] = {}

    def of(self, access: Recorded) -> Accessor:
        """Look up the accessor."""
        key = access.process, access.ip
        if key not in self._known:
            self._known[key] = self._find(*key)
        return self._known[key]

    def kind(self, access: Recorded) -> str:
        """``r``, ``w``, ``rw``; empty if neither the watch, nor the code, nor a changed value
        tells."""
        if access.watch.type == "-w-":
            return "w"
        told = "" if access.late else self.of(access).kind
        return told or ("w" if access.before != access.after else "")

    def _find(self, process: int, ip: int) -> Accessor:
        recording = self._recording
        program = recording.program_of(process)
        at = (ip - recording.headers[process].bias) % (1 << 64)
        at = self._undisplaced(process, program, at)
        # The recorded address is a function's start: it was called through the variable, or repeats
        # its first instruction; the instruction before it does not continue there.
        for address in (at, (at - 1) % (1 << 64)):
            (name,), starts, known = program.lookup(np.array([address], np.uint64))
            start = int(starts[0])
            if known[0] and (address < at or start == at):
                size = program.size(start)
                place = f"{name}+{at - start:#x}" + (f"/{size:#x}" if size else "")
                return Accessor(name, place, self._kind(program, start, size, at))
        place = self._places.linked(process, at)
        return Accessor(place, place, "")

    def _undisplaced(self, process: int, program: Program, at: int) -> int:
        """The address in its function of what a probe displaced; any other as it is."""
        if program.image is None or not self._trace.headers[self._trace.runs[process][0]].together:
            return at
        if program not in self._displaced:
            self._displaced[program] = Displaced(program.image)
        return self._displaced[program].behind(at) or at

    def _kind(self, program: Program, start: int, size: int, at: int) -> str:
        key = program, start
        if key not in self._code:
            self._code[key] = self._kinds(program, start, min(size or at - start, MAX_FUNCTION))
        kinds = list(self._code[key].get(at, ()))
        return KINDS.get(kinds[0], "") if len(kinds) == 1 else ""

    def _kinds(self, program: Program, start: int, size: int) -> dict[int, set[int]]:
        """Map each address that can be recorded to what the instructions ending there do."""
        displaced = self._displaced.get(program)
        image = displaced.before if displaced else program.image
        assert image is not None
        skeleton = image.elf.skeleton
        arch = arch_of(skeleton.machine, skeleton.elf_class)
        offset = int(image.elf.offset_of(np.array([start], np.uint64), executable=True)[0])
        if arch is None or offset < 0:
            return {}
        code = image.data[offset : offset + size].tobytes()
        out: dict[int, set[int]] = {}
        for one in memory_accesses(arch.name, code, start):
            for at in {one.end, one.start if one.repeats else one.end}:
                if one.kind:
                    out.setdefault(at, set()).add(one.kind)
        return out
