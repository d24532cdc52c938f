# SPDX-License-Identifier: MIT
"""The stacks of hits: each different one once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import feature, name_of_machine, supports
from ftpatch.arch.frame_registers import FrameRegisters
from ftpatch.trace.call_frames import Frame, Placed, Stack
from ftpatch.trace.header import Header
from ftpatch.trace.process_code import ProcessCode
from ftpatch.trace.source import Recording
from ftpatch.trace.unwind import EXACT, Walked

__all__ = ["Stacks"]


@dataclass
class Stacks:
    """Different stacks of a recording, by number; both may get more."""

    recording: Recording
    all: list[Stack] = field(default_factory=list)
    _numbers: dict[tuple[int, bool, bytes], int] = field(default_factory=dict)
    _code: dict[int, ProcessCode] = field(default_factory=dict)

    @property
    def headers(self) -> Sequence[Header]:
        """Those of the recording's processes, as they are by now."""
        return cast("Sequence[Header]", self.recording.headers)  # traces have no others

    def arch(self, header: int) -> str:
        """The name of a process's architecture."""
        return name_of_machine(self.headers[header].machine)

    def registers(self, header: int) -> FrameRegisters:
        """The registers of a process, as unwind information has them."""
        found: FrameRegisters = feature(self.arch(header), "frame_registers")
        return found

    def code(self, header: int) -> ProcessCode:
        """The code of a process, as far as its header tells of it by now."""
        now = self.headers[header].objects
        if header not in self._code or self._code[header].objects != now:
            known: FrameRegisters | None = None
            if supports(self.arch(header), "frame_registers"):  # else stacks are named, not unwound
                known = self.registers(header)
            self._code[header] = ProcessCode(self.recording, header, known)
        return self._code[header]

    def number(self, header: int, walked: Walked) -> NDArray[np.int32]:
        """The numbers of the stacks of one process's hits, int32[n]."""
        rows = np.column_stack([walked.frames, walked.cut.astype(np.uint64)])
        whole = np.ascontiguousarray(rows).view(f"V{8 * rows.shape[1]}").ravel()
        distinct, first, index = np.unique(whole, return_index=True, return_inverse=True)
        numbers = np.empty(len(distinct), np.int32)
        for row, (key, at) in enumerate(zip(distinct, first.tolist(), strict=True)):
            held, cut = walked.frames[at], bool(walked.cut[at])
            numbers[row] = self._numbers.setdefault((header, cut, bytes(key)), len(self.all))
            if numbers[row] == len(self.all):
                self.all.append(Stack(header, tuple(held[held > 0].tolist()), cut))
        return numbers[index]

    def frames(self, stack: Stack) -> list[Frame]:
        """The calls of a stack, by name."""
        return self.code(stack.header).frames(np.array(stack.frames, np.uint64))

    def probed(self, stack: Stack, point: Placed) -> Frame:
        """The call that a hit of a point is about."""
        at = (point.ip + self.recording.headers[stack.header].bias) % (1 << 64)
        (frame,) = self.code(stack.header).frames(np.array([at | EXACT], np.uint64))
        return frame

    @property
    def notes(self) -> list[str]:
        """The files that stacks could not be unwound in, one clause each."""
        missing = {text: None for code in self._code.values() for text in code.missing}
        return [f"calls end at code that cannot be read: {text}" for text in missing]
