"""What sites are to call, by its name or address."""

from __future__ import annotations

import re

import numpy as np

from ftpatch.columns import addresses
from ftpatch.errors import UsageError
from ftpatch.image.symbols import Symbols
from ftpatch.sites import Sites

__all__ = ["resolve_target"]


def resolve_target(sites: Sites, text: str | None) -> int:
    """Address of ``SYMBOL`` or ``0xADDR``; without it that of the image's own ftrace_caller.

    Raises UsageError for a symbol that is not there or is ambiguous, and for an address that is no
    code.
    """
    image = sites.image
    if text is None:
        found = image.symbols.find("ftrace_caller")
        if found is None:
            raise UsageError(
                image.path,
                "this image has no ftrace_caller",
                "name a callee with --to SYMBOL (there is no --tracer yet)",
            )
        addr = found
    elif re.fullmatch(r"0x[0-9a-fA-F]{1,16}", text):
        addr = int(text, 16)
    else:
        rows = image.symbols.rows_named(text)
        kinds = image.symbols.type[rows]
        if np.isin(kinds, [Symbols.STT_GNU_IFUNC, Symbols.STT_TLS]).any():
            raise UsageError(image.path, f"{text!r} is no function that can be called directly")
        values = np.unique(image.symbols.value[rows])
        if not len(values):
            raise UsageError(image.path, f"no symbol {text!r}", "name one that the image defines")
        if len(values) > 1:
            places = ", ".join(hex(value) for value in values[:4].tolist())
            raise UsageError(image.path, f"{text!r} is {len(values)} functions", f"say {places}")
        addr = int(values[0])
    if image.elf.offset_of(addresses(addr), executable=True)[0] < 0:
        raise UsageError(image.path, f"{text or 'ftrace_caller'} at {addr:#x} is no code")
    return addr
