# SPDX-License-Identifier: MIT
"""Text that a kernel itself changes, or looks up by address: no jump may take its place.

Tables lie between two symbols. Each row holds places, mostly as distances from themselves:

    .altinstructions     | place . | replacement . | feature ... | length | ...
    __jump_table         | place . | target . | key |
    __ex_table           | place . | fixup . | ...
    .return_sites        | place . |
    kprobe_blacklist     | address of a function |

How large a row is differs from version to version: the smallest whose places are code is the one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ftpatch.arch import feature

__all__ = ["COMMON", "PROOF", "KernelText", "Table", "kernel_text_of"]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table between the symbols ``begin`` and ``end``, and ``what`` is at its places. ``rows``:
    the sizes that a row can have, ascending, each with the offset of a byte that holds the place's
    length, 0 where one instruction is meant. ``target``: offset of an address that is branched to,
    -1 for none; ``wide``: places are addresses; all in bytes."""

    begin: str
    end: str
    what: str
    rows: Sequence[tuple[int, int]]
    target: int = -1
    wide: bool = False


@dataclass(frozen=True, kw_only=True)
class KernelText:
    """One architecture's. ``tables`` besides those that all have; ``areas``: text that no probe may
    be in, by the symbols of its bounds; ``apart``: a pattern of the names of functions that are
    copied, changed, or run in another mapping. ``relocated(code, at, bounds)``: the first operand
    that the kernel relocates in instructions at ``at``, as text; empty for none; ``bounds``: of the
    image. ``no_tables``: a symbol of kernels that are compiled without jump tables. ``fill`` stands
    behind a jump in what it displaced: kprobes decodes a function from its start."""

    tables: Sequence[Table]
    areas: Sequence[tuple[str, str]]
    apart: str
    relocated: Callable[[bytes, int, tuple[int, int]], str]
    no_tables: str = ""
    fill: bytes = b"\0"


PROOF = "__start___ex_table"
"""A symbol of every kernel: without it others may be missing too."""
COMMON = (
    Table(
        begin="__start___jump_table",
        end="__stop___jump_table",
        what="a static key's branch (__jump_table)",
        rows=((16, 0),),
        target=4,
    ),
    Table(
        begin="__start___ex_table",
        end="__stop___ex_table",
        what="an instruction that may fault (__ex_table)",
        rows=((8, 0), (12, 0)),
        target=4,
    ),
    Table(
        begin="__start___bug_table",
        end="__stop___bug_table",
        what="a BUG or a WARN (__bug_table)",
        rows=((8, 0), (12, 0), (16, 0)),
    ),
)
"""struct jump_entry, exception_table_entry and bug_entry of asm-generic or of the architecture."""


def kernel_text_of(arch: str) -> KernelText:
    """The knowledge of an architecture's kernels. Raises InputError if there is none."""
    found: KernelText = feature(arch, "kernel_text")
    return found
