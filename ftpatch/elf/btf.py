# SPDX-License-Identifier: MIT
"""Structures of a kernel, from its .BTF section (Documentation/bpf/btf.rst).

    header | types: { name_off, info, size, members[]: { name_off, type, offset } } | strings

A structure is found by its name's offset in the strings, which stands in its type; types are not
read one by one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ftpatch.elf.elf_file import Elf
from ftpatch.errors import InputError

__all__ = ["Btf", "Struct", "read_btf"]

MAGIC = 0xEB9F
HEADER = struct.Struct("<HBBIIIII")
"""magic, version, flags, hdr_len, type_off, type_len, str_off, str_len."""
BTF_KIND_STRUCT = 4
KIND, COUNT = 0x1F000000, 0xFFFF
BITFIELDS = 1 << 31
"""kind_flag: the upper 8 bits of a member's offset are a bitfield's size."""


@dataclass(frozen=True, slots=True)
class Struct:
    """``size`` in bytes; ``offset``: bytes from the start, of each member with a name."""

    size: int
    offset: dict[str, int]


@dataclass(frozen=True)
class Btf:
    """Types of a kernel."""

    elf: Elf
    types: NDArray[np.uint32]
    strings: bytes

    def struct(self, name: str, members: Sequence[str]) -> Struct | None:
        """The structure of that name that has these members; None if there is none."""
        for offset in self._offsets(name):
            starts = np.flatnonzero(self.types == offset)
            starts = starts[starts < len(self.types) - 3]
            starts = starts[(self.types[starts + 1] & KIND) >> 24 == BTF_KIND_STRUCT]
            for start in starts.tolist():
                found = self._struct(start)
                if found is not None and found.offset.keys() >= set(members):
                    return found
        return None

    def _offsets(self, name: str) -> list[int]:
        """Offsets of a name in the strings; one may be the end of another."""
        wanted, found = name.encode() + b"\0", []
        at = self.strings.find(wanted)
        while at >= 0:
            found.append(at)
            at = self.strings.find(wanted, at + 1)
        return found

    def _struct(self, start: int) -> Struct | None:
        """The structure whose type is at word ``start``; None if that is no type."""
        info, size = int(self.types[start + 1]), int(self.types[start + 2])
        count = info & COUNT
        rows = self.types[start + 3 : start + 3 + 3 * count]
        if len(rows) < 3 * count:
            return None
        names, bits = rows[0::3], rows[2::3].astype(np.int64)
        if (names >= len(self.strings)).any():
            return None
        bits = bits & 0xFFFFFF if info & BITFIELDS else bits
        if not size or (bits > 8 * size).any() or (np.diff(bits) < 0).any():
            return None
        pairs = zip(names.tolist(), bits.tolist(), strict=True)
        offset = {self._text(at): bit // 8 for at, bit in pairs}
        return Struct(size, {name: at for name, at in offset.items() if name})

    def _text(self, at: int) -> str:
        return self.strings[at : self.strings.index(b"\0", at)].decode("ascii", "replace")

    @cached_property
    def known(self) -> dict[str, Struct]:
        """Structures that were asked for, by name."""
        return {}

    def require(self, name: str, *members: str) -> Struct:
        """The same. Raises InputError if there is none."""
        found = self.known.get(name)
        if found is None or not found.offset.keys() >= set(members):
            found = self.struct(name, members)
            if found is None:
                listed = ", ".join(members)
                raise InputError(self.elf.path, f"its BTF has no struct {name} with {listed}")
            self.known[name] = found
        return found


def read_btf(elf: Elf) -> Btf | None:
    """Read the .BTF section; None if there is none. Raises InputError for a broken one."""
    section = elf.section(".BTF")
    if section is None:
        return None
    data = elf.contents(section.offset, section.size, ".BTF section").tobytes()
    if len(data) < HEADER.size or HEADER.unpack_from(data)[0] != MAGIC:
        raise InputError(elf.path, "its .BTF section does not begin as one")
    _, _, _, length, types, types_size, strings, strings_size = HEADER.unpack_from(data)
    types, strings = types + length, strings + length
    ends = types + types_size, strings + strings_size
    if max(ends) > len(data) or types_size % 4 or not data[: ends[1]].endswith(b"\0"):
        raise InputError(elf.path, "its .BTF section is cut off")
    words = np.frombuffer(data, "<u4", types_size // 4, types)
    return Btf(elf, words, data[strings : ends[1]])
