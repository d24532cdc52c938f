# SPDX-License-Identifier: MIT
"""Kprobes of a kernel in a core: kprobe_table, a hash of them by address.

    kprobe_table[64] -> kprobe { addr, pre_handler, symbol_name } -> ...
    optimized_kprobe { kprobe, optinsn.insn }: a jump to a slot of its own

Probes that share an address hang on one kprobe, whose handler is aggr_pre_handler.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ftpatch.kcore.lists import Memory

__all__ = ["Kprobe", "read_kprobes"]

BUCKETS = 64
"""KPROBE_TABLE_SIZE of kernel/kprobes.c."""
AGGREGATE = "aggr_pre_handler"


@dataclass(frozen=True, slots=True)
class Kprobe:
    """``address`` in the running kernel; ``slot``: where a jump in its place goes, 0 if none."""

    address: int
    slot: int


def read_kprobes(memory: Memory) -> Iterator[Kprobe]:
    """All of them. Raises InputError for a kernel whose structures are not as expected."""
    table = memory.symbol("kprobe_table")
    if not table:
        return
    optimized = memory.btf.struct("optimized_kprobe", ("kp", "optinsn"))
    slots = memory.btf.struct("arch_optimized_insn", ("insn",))
    aggregate = memory.symbol(AGGREGATE)
    for first in memory.heads(table, BUCKETS):
        for at in memory.chained(first, "kprobe", "hlist"):
            address = memory.member(at, "kprobe", "addr")
            handler = memory.member(at, "kprobe", "pre_handler")
            slot = 0
            if optimized and slots and aggregate and handler == aggregate:
                slot = memory.word(at + optimized.offset["optinsn"] + slots.offset["insn"])
            yield Kprobe(address, slot)
