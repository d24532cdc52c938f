"""Branches in code: addresses that may be jumped to, whose bytes no jump may take.

A jump over several instructions is wrong where another jump goes to one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import feature
from ftpatch.arch.contract import U8
from ftpatch.arch.disassemble import Instruction

__all__ = ["I64", "Branches", "branched_into", "branches_of", "targets_in"]

I64 = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Branches:
    """``long_targets`` and ``short_targets``: where every far and every near branch in code at an
    address would go, whatever byte instructions begin with; int64, sorted. Of instructions in a
    row: ``has_indirect_jump``, so that a table may lead anywhere in the function; ``is_thunk``:
    they only jump to where a register of who jumps to them says; ``jumps_out``: where jumps, not
    calls, go to that leave the addresses from a low up to a high one."""

    long_targets: Callable[[U8, int], I64]
    short_targets: Callable[[U8, int], I64]
    has_indirect_jump: Callable[[Iterable[Instruction]], bool]
    is_thunk: Callable[[Iterable[Instruction]], bool]
    jumps_out: Callable[[Iterable[Instruction], int, int], set[int]]


def branches_of(arch: str) -> Branches:
    """The branches of an architecture. Raises InputError where they are not known."""
    found: Branches = feature(arch, "branches")
    return found


def targets_in(targets: I64, lows: I64, highs: I64) -> NDArray[np.bool_]:
    """Into which windows, from low up to and without high, one of the sorted targets goes."""
    return np.asarray(np.searchsorted(targets, lows) < np.searchsorted(targets, highs))


def branched_into(instructions: Iterable[Instruction], low: int, high: int) -> bool:
    """Return whether a branch with a fixed target goes to low or behind it, but before high."""
    return any(insn.target is not None and low <= insn.target < high for insn in instructions)
