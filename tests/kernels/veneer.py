# SPDX-License-Identifier: MIT
"""The branch that sites call where ftrace_caller is out of their reach (ppc64le: 32 MB)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .independent import Vmlinux

__all__ = ["VENEER_SIZE", "out_of_reach", "reads_as_veneer"]

VENEER_SIZE = 4
REACH = {"ppc64le": 1 << 25}  # bytes, either way
FILLED = (bytes(4), bytes.fromhex("00000060"))  # nop


def out_of_reach(image: Vmlinux, sites: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which sites cannot call ftrace_caller."""
    if image.arch not in REACH:
        return np.zeros(len(sites), bool)
    distance = (np.uint64(image.address("ftrace_caller")) - sites).view(np.int64)
    limit = REACH[image.arch]
    return np.asarray((distance < -limit) | (distance >= limit))


def reads_as_veneer(original: Vmlinux, patched: Vmlinux, at: int) -> bool:
    """Whether Capstone reads a branch to ftrace_caller at an address where there was a filler that
    no function has."""
    place = np.array([at], np.uint64)
    (branch,) = patched.disassembler.disasm_lite(patched.code(place, 4)[0].tobytes(), at)
    assert branch[2] == "b" and int(branch[3], 16) % 2**64 == original.address("ftrace_caller")
    assert original.code(place, 4)[0].tobytes() in FILLED
    table, _ = original._symbols
    functions = table[table["info"] & 15 == 2]  # STT_FUNC
    inside = (functions["value"] <= at) & (at < functions["value"] + functions["size"])
    assert not inside.any()
    return True
