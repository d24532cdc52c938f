# SPDX-License-Identifier: MIT
"""Recorded accesses to a kernel's variables, for reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ftpatch.arch.accesses import READ, WRITE, memory_accesses
from ftpatch.boot.events import Origin
from ftpatch.boot.watchpoints import Accessed, Watched
from ftpatch.core.columns import addresses
from ftpatch.image import Image
from ftpatch.trace.accesses import Access, Variable
from ftpatch.trace.rows import Rows
from ftpatch.trace.source import Data, Recording, SourceKind
from ftpatch.trace.window import Window

__all__ = ["ACCESSES", "BootAccesses"]

ACCESSES = SourceKind(
    what="variable accesses",
    data=Data.ACCESSES,
    default="ksym",
    returns=False,
    no_returns="a boot's accesses have no stacks",
)
"""Accesses of a boot."""
KINDS = {READ: "r", WRITE: "w", READ | WRITE: "rw"}
MAX_FUNCTION = 1 << 20
"""Bytes of a function to disassemble at most."""


class BootAccesses:
    """The accesses of one boot: a source. ``before``: program counters are of the accesses
    themselves; else behind them. ``path``: the kernel as given."""

    kind = ACCESSES
    has_returns = False
    has_stacks = False
    stacks = None
    steps = 0

    def __init__(
        self,
        kernel: Image,
        arch: str,
        watched: Sequence[Watched],
        found: Sequence[Accessed],
        *,
        before: bool,
    ) -> None:
        self._kernel, self._arch, self._found, self._before = kernel, arch, found, before
        self._code: dict[int, dict[int, set[int]]] = {}
        self._places: dict[int, tuple[str, str, str]] = {}
        hits = np.bincount([one.watch for one in found], minlength=len(watched)).tolist()
        self.variables = [_variable(one, number) for one, number in zip(watched, hits, strict=True)]
        origin = Origin(path=kernel.path, image=str(kernel.path), base=0, ticks=False)
        self.recording = Recording(
            headers=[origin], tids=[0], owner=np.zeros(1, np.int32), window=Window()
        )

    def __iter__(self) -> Iterator[Access]:
        for one in self._found:
            function, place, code = self._placed(one.pc)
            watch = self.variables[one.watch]
            kind = "w" if watch.type == "-w-" and not one.reads else code
            kind = kind or ("r" * one.reads + "w" * (not one.reads or one.before != one.after))
            yield Access(
                variable=watch,
                thread=0,
                time=one.events,
                cpu=one.cpu,
                kind=kind,
                ip=one.pc,
                function=function,
                place=place,
                before=one.before,
                after=one.after,
            )

    def _placed(self, pc: int) -> tuple[str, str, str]:
        """Function, place in it, and what the instruction does, as far as the code tells."""
        if pc not in self._places:
            ((name, offset, size),) = self._kernel.kallsyms.lookup(addresses(pc))
            if not self._before and not offset and pc:  # the end of what precedes it
                ((name, offset, size),) = self._kernel.kallsyms.lookup(addresses(pc - 1))
                offset += 1
            if not name or offset > size:
                self._places[pc] = (hex(pc), hex(pc), "")
            else:
                place = f"{name}+{offset:#x}/{size:#x}"
                kinds = list(self._kinds(pc - offset, size).get(pc, ()))
                kind = KINDS.get(kinds[0], "") if len(kinds) == 1 else ""
                self._places[pc] = (name, place, kind)
        return self._places[pc]

    def _kinds(self, start: int, size: int) -> dict[int, set[int]]:
        """Map each program counter that a function's access may leave to what it does."""
        if start not in self._code:
            offset = int(self._kernel.elf.offset_of(addresses(start), executable=True)[0])
            found: dict[int, set[int]] = {}
            if offset >= 0 and not self._before:
                code = self._kernel.data[offset : offset + min(size, MAX_FUNCTION)].tobytes()
                for one in memory_accesses(self._arch, code, start):
                    for at in {one.end, one.start if one.repeats else one.end}:
                        if one.kind:
                            found.setdefault(at, set()).add(one.kind)
            self._code[start] = found
        return self._code[start]

    def accesses(self) -> BootAccesses:
        """All of them."""
        return self

    def rows(self) -> Iterator[Rows]:
        """None."""
        return iter(())

    def hits(self) -> None:
        """None."""

    def sums(self, header: int | None = None) -> None:
        """None."""

    def tally(self) -> None:
        """None."""

    def notes(self) -> list[str]:
        """Remarks of formats."""
        return list(self.recording.remarks)

    def close(self) -> None:
        """Do nothing."""


def _variable(one: Watched, hits: int) -> Variable:
    size = f"/{one.size:#x}" if one.size else ""
    return Variable(
        header=0,
        line=one.line,
        symbol=one.symbol,
        place=f"{one.symbol}+{one.offset:#x}{size}",
        address=one.address,
        offset=one.offset,
        length=one.length,
        type="r" * one.reads + "-" * (not one.reads) + ("w" if one.writes else "-") + "-",
        hits=hits,
        missed=0,
        refusal=0,
        note="",
        meant=True,
    )
