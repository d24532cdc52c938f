# SPDX-License-Identifier: MIT
"""Remarks of ``status``: what its counts do not tell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ftpatch.cli.paint import Line, warn
from ftpatch.names.demangle import demangled

if TYPE_CHECKING:
    from ftpatch.ftrace.sites import Sites

__all__ = ["abi_lines", "remarks"]

FEW = 5
"""Functions without a record that are named."""


def remarks(sites: Sites, number: int) -> Iterator[Line]:
    """Functions that lost their record, of which there are ``number``; pads that are too short; a
    program that does not start."""
    from ftpatch.ftrace.lost_records import find_lost
    from ftpatch.ftrace.short_pads import too_short
    from ftpatch.image.injected import gone_entry

    if number:
        lost = find_lost(sites)
        few = ", ".join(map(demangled, lost.names(sites)[:FEW])) + ", ..." * (len(lost) > FEW)
        have = "1 function has" if len(lost) == 1 else f"{len(lost)} functions have"
        yield warn(have), f" {lost.what} but no record: {few}; see `ftpatch check`"
    if short := too_short(sites):
        yield short
    if gone_entry(sites.image):
        what = "the entry point" if sites.image.is_program else "the address in DT_INIT"
        yield warn(f"nothing is left at {what}"), "; see `ftpatch check`"


def abi_lines(sites: Sites) -> list[str]:
    """Return what the image says of its sites."""
    abi = sites.abi
    symbols = sites.image.symbols
    callee = next((n for n in sites.arch.mcount_names if symbols.find(n) == abi.mcount), "")
    callee = f"{callee} at {abi.mcount:#x}".strip()
    said = ["compiled in: a pad" if abi.pad else f"compiled in: a call to {callee}"]
    if abi.prefix:
        said.append(f"records point {abi.prefix} bytes before the function")
    if abi.nop:
        said.append(f"its own NOP: {abi.nop.hex(' ')}")
    if abi.nop_ops:
        said.append(f"CALL_OPS: a literal before each function, ftrace_nop_ops at {abi.nop_ops:#x}")
    if abi.kernel:
        drop = sites.arch.drop(abi)
        said.append(
            "records cannot be dropped" if drop is None else f"a dropped record holds {drop:#x}"
        )
    if sites.unexecuted:
        said.append(f"{sites.unexecuted} pads lie entirely before their function and are no sites")
    return said
