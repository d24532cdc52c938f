# SPDX-License-Identifier: MIT
"""Callees by name or address."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from ftpatch.arch import supports
from ftpatch.core.columns import addresses
from ftpatch.elf.relocatable import STEP, externals
from ftpatch.elf.symbols import Symbols
from ftpatch.errors import UsageError
from ftpatch.ftrace.local_entries import entered_at
from ftpatch.ftrace.sites import Sites
from ftpatch.image import Image
from ftpatch.names.demangle import demangled
from ftpatch.names.named_symbols import FUNCTIONS, Named
from ftpatch.names.suggest import meant

__all__ = ["Callee", "resolve_target"]

NAME = re.compile(r"[A-Za-z_.$][\w.$@]{0,1023}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Callee:
    """``addr`` is its virtual address, ``name`` what the command called it, ``row`` its row in the
    symbol table, -1 where it has none. ``undefined``: the file names it for ftpatch's sake only,
    and another one must define it. ``reads_ops``: with CALL_OPS it follows the site's literal, as
    ftrace_caller does."""

    addr: int
    name: str = ""
    row: int = -1
    undefined: bool = False
    reads_ops: bool = True


def resolve_target(sites: Sites, text: str | None) -> Callee:
    """``SYMBOL`` or ``0xADDR``; without it the image's own ftrace_caller. In a relocatable file the
    symbol may be one that it does not refer to yet.

    Raises UsageError for a symbol that is not there or is ambiguous, and for an address that is no
    code.
    """
    image = sites.image
    if text is None:
        if not len(image.symbols.rows_named("ftrace_caller")):
            raise UsageError(
                image.path,
                "this image has no ftrace_caller",
                "use --to SYMBOL" + (" or --tracer NAME" if image.is_program else ""),
            )
        text = "ftrace_caller"
    elif re.fullmatch(r"0x[0-9a-fA-F]{1,16}", text):
        if image.is_relocatable:
            raise UsageError(
                image.path, f"{text}: a relocatable file has no addresses", "use a symbol"
            )
        return _code(image, Callee(int(text, 16), text))
    text = _spelled(image, text)
    rows = image.symbols.rows_named(text)
    if not len(rows) and image.is_relocatable:
        if not NAME.fullmatch(text):
            raise UsageError(image.path, f"invalid symbol name {text!r}")
        row = len(image.symbols)
        return _outside(sites, Callee(externals(image.elf) + STEP * row, text, undefined=True))
    kinds = image.symbols.type[rows]
    if np.isin(kinds, [Symbols.STT_GNU_IFUNC, Symbols.STT_TLS]).any():
        raise UsageError(image.path, f"{text!r} is not a function that can be called directly")
    values = np.unique(image.symbols.value[rows])
    if not len(values):
        like = Named(image.symbols, FUNCTIONS).like(text)
        hint = meant(like, "use one that the image defines")
        raise UsageError(image.path, f"no such symbol {text!r}", hint)
    if len(values) > 1:
        places = ", ".join(hex(value) for value in values[:4].tolist())
        hint = "" if image.is_relocatable else f"say {places}"
        raise UsageError(
            image.path, f"symbol {text!r} is ambiguous ({len(values)} definitions)", hint
        )
    row = int(rows[0])
    kind = int(image.symbols.section[row])
    ours = image.is_relocatable and row >= len(sites.original.symbols)
    if ours and kind in (Symbols.EXTERNAL, Symbols.SHN_ABS):  # in use or not
        return Callee(externals(image.elf) + STEP * row, text, row, undefined=True)
    callee = Callee(entered_at(image, sites.arch, row), text, row)
    return _outside(sites, callee) if kind == Symbols.EXTERNAL else _code(image, callee)


def _spelled(image: Image, text: str) -> str:
    """A function's name as the symbol table has it. Raises UsageError for one that several have."""
    if len(image.symbols.rows_named(text)):
        return text
    found = Named(image.symbols, FUNCTIONS).find(text)
    places = {int(image.symbols.value[image.symbols.rows_named(one)[0]]): one for one in found}
    if len(places) > 1 and not image.is_relocatable:
        several = ", ".join(f"{at:#x} {demangled(places[at])}" for at in sorted(places)[:4])
        raise UsageError(
            image.path,
            f"symbol {text!r} is ambiguous ({len(places)} definitions)",
            f"use one of {several}",
        )
    if len(found) > 1:
        hint = f"use one of {', '.join(found[:4])}"
        raise UsageError(
            image.path, f"symbol {text!r} is ambiguous ({len(found)} definitions)", hint
        )
    return found[0] if found else text


def _outside(sites: Sites, callee: Callee) -> Callee:
    """A callee that another file defines. Raises UsageError where a site cannot call one."""
    own = callee.name in sites.arch.mcount_names  # a loader knows these, and saves nothing
    if supports(sites.arch.name, "local_entry") and not own:
        raise UsageError(
            sites.image.path,
            f"{callee.name} is in another file: calls there save a register in their caller's "
            "frame, which a site does not have yet",
            "use a function of this file",
        )
    return callee


def _code(image: Image, callee: Callee) -> Callee:
    if image.elf.offset_of(addresses(callee.addr), executable=True)[0] < 0:
        raise UsageError(image.path, f"{callee.name} at {callee.addr:#x} is not code")
    return callee
