# SPDX-License-Identifier: MIT
"""Branches in code: addresses that may be jumped to, whose bytes a jump must not overwrite.

A jump over several instructions is unsafe if another branch targets one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import feature
from ftpatch.arch.contract import U8
from ftpatch.arch.disassemble import Instruction

__all__ = ["I64", "Branches", "branched_into", "branches_of", "jumps_out", "targets_in"]

I64 = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Branches:
    """``long_targets`` and ``short_targets``: targets of every possible far and near branch in code
    at an address, decoded at every byte; int64, sorted. For a sequence of instructions:
    ``has_indirect_jump``: a table may lead anywhere in the function; ``is_thunk``: they only jump
    to where a caller's register points; ``jumps_out``: targets of jumps, not calls, outside the
    given addresses; ``near``: the range of a short branch plus one instruction (bytes).

    Where data lies among code: ``read``: the instructions of a function at an address that control
    may reach, None if one cannot be decoded; ``begins``: addresses at which one of them begins that
    may be separated from those before. Of two instruction sets bit 0 of the address says which.

    ``executed``: addresses of possible instructions that others execute where these are, sorted;
    None where there are none."""

    long_targets: Callable[[U8, int], I64]
    short_targets: Callable[[U8, int], I64]
    has_indirect_jump: Callable[[Iterable[Instruction]], bool]
    is_thunk: Callable[[Iterable[Instruction]], bool]
    jumps_out: Callable[[Iterable[Instruction], int, int], set[int]]
    near: int
    read: Callable[[bytes, int], list[Instruction] | None] | None = None
    begins: Callable[[bytes, int], set[int]] | None = None
    executed: Callable[[U8, int], I64] | None = None


def branches_of(arch: str) -> Branches:
    """The branches of an architecture. Raises InputError if they are not supported."""
    found: Branches = feature(arch, "branches")
    return found


def targets_in(targets: I64, lows: I64, highs: I64) -> NDArray[np.bool_]:
    """Test which windows, from low up to but not including high, contain one of the sorted
    targets."""
    return np.asarray(np.searchsorted(targets, lows) < np.searchsorted(targets, highs))


def branched_into(instructions: Iterable[Instruction], low: int, high: int) -> bool:
    """Return whether a branch with a fixed target goes to low or beyond, but below high."""
    return any(insn.target is not None and low <= insn.target < high for insn in instructions)


def jumps_out(
    is_call: Callable[[Instruction], bool],
) -> Callable[[Iterable[Instruction], int, int], set[int]]:
    """Make what Branches has of that name, where ``is_call`` tells calls from jumps."""

    def found(instructions: Iterable[Instruction], low: int, high: int) -> set[int]:
        return {
            insn.target
            for insn in instructions
            if insn.target is not None and not low <= insn.target < high and not is_call(insn)
        }

    return found
