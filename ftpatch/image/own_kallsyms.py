"""The symbol table that a kernel carries for itself, which it names addresses by when it reports.

    kallsyms_num_syms       how many
    kallsyms_offsets        32 bits each, in the order of addresses
    kallsyms_relative_base  what offsets count from; without it, from their own place (v7.x)
    kallsyms_names          each: length (one byte, or two with bit 7 set), then tokens
    kallsyms_token_index    256 offsets into kallsyms_token_table, whose strings end with a NUL

The first character of a name is its type. Written by scripts/kallsyms.c; read as by
kallsyms_sym_address() and get_symbol_pos() in kernel/kallsyms.c.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ftpatch.columns import addresses
from ftpatch.errors import InputError

if TYPE_CHECKING:
    from ftpatch.image import Image

__all__ = ["own_lookup"]

ALL = 0.25
"""Share of symbols outside of the text from which on a kernel has KALLSYMS_ALL."""


def own_lookup(image: Image, address: int, relative: int) -> tuple[str, int, int] | None:
    """(name, offset into it, size up to the next symbol, bytes) as this kernel says it, with an
    empty name where it has none. None where the image has no such table, or a damaged one.

    ``relative`` is the machine's R_*_RELATIVE.
    """
    try:
        every, live = _addresses(image, relative)
        last = int(np.searchsorted(every, addresses(address)[0], side="right")) - 1
        if last < 0 or not _is_ksym(image, every, address):
            return "", 0, 0
        start = every[last]
        first = int(np.searchsorted(every, start, side="left"))
        end = int(np.searchsorted(every, start, side="right"))
        size = int(every[end] - start) if end < len(every) else 0
        return _name(image, int(live[first])), address - int(start), size
    except (InputError, LookupError, ValueError):
        return None


def _place(image: Image, symbol: str) -> tuple[int, int]:
    """Address and file offset of a symbol. Raises KeyError where it is not there."""
    address = image.symbols.find(symbol)
    if address is None:
        raise KeyError(symbol)
    return address, int(image.elf.offset_of(addresses(address))[0])


def _addresses(image: Image, relative: int) -> tuple[NDArray[np.uint64], NDArray[np.intp]]:
    """Addresses of the symbols that have one, sorted, and which symbol each is."""
    _, at = _place(image, "kallsyms_num_syms")
    count = int.from_bytes(image.elf.contents(at, 4, "kallsyms_num_syms").tobytes(), "little")
    where, at = _place(image, "kallsyms_offsets")
    raw = image.elf.contents(at, 4 * count, "kallsyms_offsets").tobytes()
    offset = np.frombuffer(raw, "<i4").astype(np.int64)
    live = np.arange(count)
    if image.symbols.find("kallsyms_relative_base") is None:
        place = addresses(where)[0] + 4 * np.arange(count, dtype=np.uint64)
        return place + offset.view(np.uint64), live
    base = addresses(_base(image, relative))[0]
    if 2 * int((offset < 0).sum()) > count:
        # KALLSYMS_ABSOLUTE_PERCPU (x86-64 up to v6.14): the others are per-CPU offsets.
        live = np.flatnonzero(offset < 0)
        return base + (-1 - offset[live]).view(np.uint64), live
    return base + (offset & 0xFFFF_FFFF).view(np.uint64), live


def _base(image: Image, relative: int) -> int:
    address, at = _place(image, "kallsyms_relative_base")
    row = int(image.relocations.at(addresses(address), (relative,))[0])
    addend = int(image.relocations.addend[row]) if row >= 0 else 0
    return addend & 0xFFFF_FFFF_FFFF_FFFF or image.elf.word_at(at)


def _is_ksym(image: Image, every: NDArray[np.uint64], address: int) -> bool:
    """is_ksym_addr(): any address of a kernel with KALLSYMS_ALL, else one in its text."""
    inside = np.zeros(len(every), bool)
    here = False
    for low, high in (("_stext", "_etext"), ("_sinittext", "_einittext")):
        start, end = _place(image, low)[0], _place(image, high)[0]
        inside |= (every >= start) & (every < end)
        here |= start <= address < end
    return here or float((~inside).mean()) > ALL


def _name(image: Image, wanted: int) -> str:
    """Unpack one name. Lengths chain, so all before it are stepped over."""
    _, at = _place(image, "kallsyms_names")
    packed = image.data[max(at, 0) :]
    step = 0
    for _ in range(wanted + 1):
        length, head = int(packed[step]), 1
        if length & 0x80:
            length, head = length & 0x7F | int(packed[step + 1]) << 7, 2
        begin, step = step + head, step + head + length
    _, index_at = _place(image, "kallsyms_token_index")
    _, table_at = _place(image, "kallsyms_token_table")
    raw = image.elf.contents(index_at, 512, "kallsyms_token_index").tobytes()
    index = np.frombuffer(raw, "<u2")
    table = image.data[max(table_at, 0) : max(table_at, 0) + (1 << 16)].tobytes()
    tokens = (table[i : table.index(b"\0", i)] for i in index[packed[begin:step]].tolist())
    return b"".join(tokens)[1:].decode("utf-8", "backslashreplace")
