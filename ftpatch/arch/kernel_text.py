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
from ftpatch.arch.move import Mover, mover_of

__all__ = ["AREAS", "COMMON", "PROOF", "KernelText", "Table", "kernel_mover_of", "kernel_text_of"]


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


def _nothing(code: bytes, at: int, bounds: tuple[int, int]) -> str:
    """Code has distances alone, or literals whose relocations tell of them."""
    return ""


@dataclass(frozen=True, kw_only=True)
class KernelText:
    """One architecture's. ``tables`` besides those that all have; ``areas``: likewise text that no
    probe may be in, by the symbols of its bounds; ``apart``: a pattern of the names of functions
    that are copied, changed, or run in another mapping. ``relocated(code, at, bounds)``: the first
    operand that the kernel relocates in instructions at ``at``, as text; empty for none, which is
    all that kernels with distances alone have; ``bounds``: of the image. ``no_tables``: a symbol of
    kernels that are compiled without jump tables. ``fill`` stands behind a jump in what it
    displaced: kprobes decodes a function from its start. ``mover``: that of kernels, where the
    jumps of the one of programs are too short; ``taken``: a symbol of kernels in which its register
    is not free, and a clause that says so. ``constant``: bytes of code with a pointer that the
    kernel writes there, from the place on that its tables tell."""

    tables: Sequence[Table]
    apart: str
    areas: Sequence[tuple[str, str]] = ()
    relocated: Callable[[bytes, int, tuple[int, int]], str] = _nothing
    no_tables: str = ""
    fill: bytes = b"\0"
    constant: int = 8
    mover: Mover | None = None
    taken: tuple[str, str] = ("", "")


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
AREAS = (
    ("__kprobes_text_start", "__kprobes_text_end"),
    ("__noinstr_text_start", "__noinstr_text_end"),
    ("__cpuidle_text_start", "__cpuidle_text_end"),
    ("__entry_text_start", "__entry_text_end"),
    ("__irqentry_text_start", "__irqentry_text_end"),
)
"""Text of all kernels that kprobes do not allow a probe in (include/asm-generic/vmlinux.lds.h)."""


def kernel_text_of(arch: str) -> KernelText:
    """The knowledge of an architecture's kernels. Raises InputError if there is none."""
    found: KernelText = feature(arch, "kernel_text")
    return found


def kernel_mover_of(arch: str) -> Mover:
    """The mover of instructions of an architecture's kernels. Raises InputError if there is
    none."""
    return kernel_text_of(arch).mover or mover_of(arch)
