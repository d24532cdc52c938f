# SPDX-License-Identifier: MIT
"""Names of addresses as the kernel itself reports them: get_symbol_pos() in kernel/kallsyms.c, on
the kernel's own symbols."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.columns import addresses
from ftpatch.image.kallsyms.own_symbols import read_own_symbols

if TYPE_CHECKING:
    from ftpatch.image import Image

__all__ = ["is_kernel", "own_lookup"]

ALL = 0.25
"""Minimum share of symbols outside of the text that indicates KALLSYMS_ALL."""
MAX_ADDRESS = 0xFFFF_FFFF_FFFF_FFFF
TEXT = (("_stext", "_etext"), ("_sinittext", "_einittext"))


def own_lookup(image: Image, address: int) -> tuple[str, int, int] | None:
    """(name, offset into it, size up to the next symbol, bytes) as this kernel reports it, with an
    empty name if it has none. None if the image carries no symbols of its own."""
    own = read_own_symbols(image.elf, image.relocations) if image.is_kernel else None
    if own is None:
        return None
    # x86-64 up to v6.14: per-CPU symbols are offsets, in the file beside addresses below the text.
    every = np.sort(own.address[own.address >= image.elf.text[:, 0].min(initial=MAX_ADDRESS)])
    last = int(np.searchsorted(every, addresses(address)[0], side="right")) - 1
    if last < 0 or not _is_ksym(image, every, address):
        return "", 0, 0
    start = every[last]
    end = int(np.searchsorted(every, start, side="right"))
    size = int(every[end] - start) if end < len(every) else 0
    row = int((own.address == start).argmax())  # the first of those with this address
    name = own.strings[int(own.name[row]) :][:512].tobytes().split(b"\0")[0]
    return name.decode("utf-8", "backslashreplace"), address - int(start), size


def _is_ksym(image: Image, every: NDArray[np.uint64], address: int) -> bool:
    """is_ksym_addr(): any address of the kernel with KALLSYMS_ALL, else one in its text; any, too,
    if no symbol bounds that."""
    inside, here = np.zeros(len(every), bool), False
    for low, high in TEXT:
        start, end = image.symbols.find(low), image.symbols.find(high)
        if start is None or end is None:
            return True
        inside |= (every >= start) & (every < end)
        here |= start <= address < end
    return here or (float((~inside).mean()) > ALL and is_kernel(image, address))


def is_kernel(image: Image, address: int) -> bool:
    """is_kernel(): test for an address between _stext and _end; if no symbols bound that, in its
    text; without bounds for that either, anywhere."""
    bounds = TEXT if image.symbols.find("_end") is None else (("_stext", "_end"),)
    ranges = [(image.symbols.find(low), image.symbols.find(high)) for low, high in bounds]
    known = [(low, high) for low, high in ranges if low is not None and high is not None]
    return any(low <= address < high for low, high in known) or len(known) < len(ranges)
