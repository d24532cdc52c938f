# SPDX-License-Identifier: MIT
"""Injected calls of a program that is held where it begins.

As others, but after the steps comes

poll(NULL, 0, 30000)        if ftpatch is killed, the program goes on after that
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ftpatch.arch.held_call import HeldCall
from ftpatch.arch.injected_call import Step, SystemCall
from ftpatch.arch.x86_64.injected_call import LEAVE, RESTORE, TAIL, UNBLOCK, called, taken

__all__ = ["HELD_CALL"]

RESTING: Final = SystemCall(7, (0, 0, 30000))  # poll


def _rest(steps: Sequence[Step]) -> bytes:
    return taken(steps) + called(RESTING) + RESTORE + UNBLOCK + LEAVE


def _begin(steps: Sequence[Step], address: int) -> bytes:
    return taken(steps) + RESTORE + LEAVE + TAIL.pack(address % (1 << 64), 0)


HELD_CALL: Final = HeldCall(rest=_rest, resting=RESTING, begin=_begin)
