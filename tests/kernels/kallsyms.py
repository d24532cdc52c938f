# SPDX-License-Identifier: MIT
"""The kernel's own symbol table, out of its file: the names that ftrace's filters see.

The format is that of scripts/kallsyms.c: names are strings of tokens, addresses are offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .independent import Vmlinux

__all__ = ["Kallsyms"]


class Kallsyms:
    """Names by address, as kallsyms_lookup answers while this kernel runs without KASLR."""

    def __init__(self, image: Vmlinux) -> None:
        count = int(image.array("kallsyms_num_syms", "<u4", 1)[0])
        offsets = image.array("kallsyms_offsets", "<i4", count).astype(np.int64)
        # Without a base (v7.x) an offset counts from its own place.
        relative: NDArray[np.int64]
        places = image.address("kallsyms_offsets") + 4 * np.arange(count, dtype=np.uint64)
        based = image.find("kallsyms_relative_base") is not None
        base = image.word(image.address("kallsyms_relative_base")) if based else 0
        # KALLSYMS_ABSOLUTE_PERCPU (x86-64 up to 6.14): negative offsets count from the base, and
        # the others are per-CPU variables. Without it, offsets are unsigned and count from it.
        if not based:
            self._live = np.arange(count)
            relative = places.astype(np.uint64).view(np.int64) + offsets
        elif (offsets < 0).any() and image.arch == "x86_64":
            self._live = np.flatnonzero(offsets < 0)
            relative = -1 - offsets[self._live]
        else:
            self._live = np.arange(count)
            relative = offsets & 0xFFFFFFFF
        self._addresses = relative.astype(np.uint64) + np.uint64(base)
        assert (np.diff(self._addresses.astype(np.int64)) >= 0).all(), "kallsyms is sorted"

        index = image.array("kallsyms_token_index", "<u2", 256)
        table = image.array("kallsyms_token_table", "u1", int(index[-1]) + 64).tobytes()
        self._tokens = [table[i : table.index(0, i)].decode() for i in index.tolist()]
        # A name has at most 511 tokens and two bytes of length; most have 10.
        start = image.offset(image.address("kallsyms_names"))
        self._packed = image.data[start : start + 64 * count].tobytes()
        self._starts = self._walk(count)

    def _walk(self, count: int) -> list[tuple[int, int]]:
        """Start and length of every packed name, in bytes."""
        packed, at = self._packed, 0
        places = []
        for _ in range(count):
            length = packed[at]
            at += 1
            if length & 0x80:  # from 6.1 on: a second byte of length
                length = length & 0x7F | packed[at] << 7
                at += 1
            places.append((at, length))
            at += length
        return places

    def _name(self, position: int) -> str:
        at, length = self._starts[position]
        return "".join(self._tokens[c] for c in self._packed[at : at + length])[1:]  # [0]: type

    def aliases(self, ips: NDArray[np.uint64]) -> list[list[str]]:
        """All names of the address that `lookup` finds."""
        starts = self._addresses[np.searchsorted(self._addresses, ips, "right") - 1]
        first = np.searchsorted(self._addresses, starts, "left").tolist()
        end = np.searchsorted(self._addresses, starts, "right").tolist()
        return [
            [self._name(int(self._live[place])) for place in range(*bounds)]
            for bounds in zip(first, end, strict=True)
        ]

    def lookup(self, ips: NDArray[np.uint64]) -> list[tuple[str, int, int]]:
        """(name, offset of ip, size) per address; the size reaches to the next symbol."""
        last = np.searchsorted(self._addresses, ips, "right") - 1
        starts = self._addresses[last]
        # Of aliases, kallsyms names the one that its sorting put first.
        first = np.searchsorted(self._addresses, starts, "left")
        ends = self._addresses[np.searchsorted(self._addresses, starts, "right")]
        return [
            (self._name(int(self._live[place])), int(ip - start), int(end - start))
            for place, ip, start, end in zip(first, ips, starts, ends, strict=True)
        ]
