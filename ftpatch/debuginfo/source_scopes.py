# SPDX-License-Identifier: MIT
"""Names at a place of a program: its function, parameters, locals and globals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ftpatch.debuginfo.debug_info import DebugInfo
from ftpatch.debuginfo.declarations import INNER, SCOPES
from ftpatch.debuginfo.dies import DIE, below, children, name_of, origins_of, text_of
from ftpatch.debuginfo.scanning import CODED, entries
from ftpatch.debuginfo.source_paths import path_of
from ftpatch.errors import UsageError

__all__ = ["Scopes", "functions_at", "linkage_name", "source_name"]

BLOCKS = {"DW_TAG_lexical_block", "DW_TAG_inlined_subroutine", "DW_TAG_try_block"}
INLINED = "DW_TAG_inlined_subroutine"
VALUES = {"DW_TAG_formal_parameter", "DW_TAG_variable"}
SPLIT = ("DW_AT_dwo_name", "DW_AT_GNU_dwo_name")
MAX_DEPTH = 256
"""Blocks within blocks."""


def functions_at(info: DebugInfo, address: int) -> list[DIE]:
    """The functions whose code has a link address: several if they were merged. Raises UsageError
    for a unit whose entries are in a file of their own."""
    unit = info.unit_at(address)
    if unit is None:
        return []
    top = info.dwarf.get_CU_at(unit).get_top_DIE()
    for tags in (SCOPES, INNER):
        found = [
            die
            for die in entries(top, "DW_TAG_subprogram", tags, CODED)
            if info.covers(die, address)
        ]
        if found:
            return found
    for name in SPLIT:
        if name in top.attributes:
            reason = f"the debug information of this function is in {text_of(top, name)}"
            raise UsageError(info.path, reason, "compile it without -gsplit-dwarf")
    return []


def source_name(die: DIE) -> str:
    """The name that the source gives to what a DIE declares."""
    return next((name for one in origins_of(die) if (name := name_of(one))), "")


def linkage_name(die: DIE) -> str:
    """The symbol of a function, its name if debug information tells none."""
    for one in origins_of(die):
        for attribute in ("DW_AT_linkage_name", "DW_AT_MIPS_linkage_name"):
            if name := text_of(one, attribute):
                return name
    return source_name(die)


@dataclass(frozen=True, kw_only=True)
class Scopes:
    """The names at a link address in a ``function``. At its ``entry`` there are parameters and
    globals only."""

    info: DebugInfo
    function: DIE
    address: int
    entry: bool

    def inlined(self) -> tuple[int, ...]:
        """The inlined calls around the address, by their offsets, outermost first."""
        return tuple(one.offset for one in self._blocks() if one.tag == INLINED)

    def locals(self) -> Iterator[DIE]:
        """Parameters and variables, innermost first, as far as the function goes that was
        inlined."""
        for block in reversed(self._blocks()):
            rows = [one for one in children(block) if one.tag in VALUES]
            if self.entry:
                rows = [one for one in rows if one.tag == "DW_TAG_formal_parameter"]
            yield from reversed(rows)
            if block.tag == INLINED:
                return

    def later(self, name: str) -> bool:
        """Test whether the function has such a variable, but not at the address."""
        return any(
            one.tag in VALUES and source_name(one) == name for one in below(self.function, BLOCKS)
        )

    def globals(self, name: str) -> Iterator[DIE]:
        """Variables of the unit by name, also of namespaces: of these alone if they are written, as
        in ``shop::stock``."""
        *around, last = name.split("::")
        top = self.function.cu.get_top_DIE()
        for one in entries(top, "DW_TAG_variable", SCOPES):
            if source_name(one) != last:
                continue
            if not around or path_of(one).split("::")[-len(around) - 1 : -1] == around:
                yield one

    def _blocks(self) -> list[DIE]:
        """The function, and the blocks around the address in it, outermost first."""
        found = [self.function]
        while not self.entry and len(found) < MAX_DEPTH:
            inner = next(
                (
                    one
                    for one in children(found[-1])
                    if one.tag in BLOCKS and self.info.covers(one, self.address)
                ),
                None,
            )
            if inner is None:
                break
            found.append(inner)
        return found
