# SPDX-License-Identifier: MIT
"""Signal frames on a stack: where threads go on after their handlers, and with what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import feature

__all__ = ["AddressesOf", "FindFrames", "SignalFrames", "signal_frames"]


@dataclass(frozen=True, kw_only=True)
class SignalFrames:
    """Columns, uint64[n]: ``at``, the address at which a frame holds the instruction pointer; that
    (``ip``), the stack pointer (``sp``) and the ``mask`` of blocked signals, one bit for each, with
    which the thread goes on; ``back``, the address that the handler returns to, 0 where frames do
    not tell."""

    at: NDArray[np.uint64]
    ip: NDArray[np.uint64]
    sp: NDArray[np.uint64]
    mask: NDArray[np.uint64]
    back: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.at)

    def take(self, rows: NDArray[Any]) -> SignalFrames:
        """Some of them."""
        return SignalFrames(**{one.name: getattr(self, one.name)[rows] for one in fields(self)})


AddressesOf = Callable[[NDArray[np.intp]], NDArray[np.uint64]]
"""Takes rows of words, and returns their addresses."""
FindFrames = Callable[[NDArray[np.uint64], AddressesOf], SignalFrames]
"""Takes words of stacks, uint64[n], in ascending order on each stack, and what tells their
addresses, multiples of 8; returns the frames that are whole among them. It overlooks none, and
takes for one whatever has its form: what handlers have left behind has."""


def signal_frames(arch: str, words: NDArray[np.uint64], addresses_of: AddressesOf) -> SignalFrames:
    """Find what has the form of a signal frame among words of stacks. Raises InputError for an
    architecture whose frames are not known."""
    find: FindFrames = feature(arch, "signal_frames")
    return find(words, addresses_of)
