# SPDX-License-Identifier: MIT
"""A kernel's dealings with its own text: places in its tables, and areas that allow no probe.

A jump takes the place of whole instructions. Where a table names one of them, the kernel would
overwrite the jump, look for the instruction at another address, or branch into what is displaced.
"""

from __future__ import annotations

import re
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.kernel_text import AREAS, COMMON, PROOF, KernelText, Table
from ftpatch.errors import UsageError
from ftpatch.ftrace.sites import Sites
from ftpatch.image import Image

__all__ = ["OwnText"]

BLACKLIST = ("__start_kprobe_blacklist", "__stop_kprobe_blacklist")
"""Addresses of functions (NOKPROBE_SYMBOL)."""
TEXTS = (("_stext", "_etext"), ("_sinittext", "_einittext"))
"""Bounds of code, for core_kernel_text()."""
IMAGE = ("_text", "_end")
WORD = 8
MIN_CODE = 0.75
"""Share of a table's places that are code: an Image does not tell all of it."""
CONSTANTS = ((b"__start_runtime_ptr_", True), (b"__start_runtime_shift_", False))
"""Begins of the names of tables of constants that the kernel writes into its code: pointers, and
how far something is shifted (RUNTIME_CONST of include/asm-generic/vmlinux.lds.h)."""
CONSTANT = "a constant that the kernel writes there (runtime_const)"
SITE = "an ftrace site (__mcount_loc)"
RELOCATED = "an address that KASLR relocates"
INTO = "a branch of the kernel's own leads there"
SYMBOLS = "use a vmlinux with symbols"


class OwnText:
    """One kernel's. Raises UsageError if its symbols do not tell of its tables."""

    def __init__(self, sites: Sites, text: KernelText) -> None:
        self._sites, self._image, self._text = sites, sites.image, text
        self._found: dict[str, int] = {}
        if self._find(PROOF) == 0:
            raise UsageError(self._image.path, "its symbols do not name its tables", SYMBOLS)

    def against_function(self, start: int) -> str:
        """Explain in a clause why no place in the function at an address can have a probe; empty if
        one can."""
        if not any(self._find(low) <= start < self._find(high) for low, high in TEXTS):
            return "it is outside of the kernel's text"
        symbol, why = self._text.taken
        if symbol and self._find(symbol):
            return why
        for low, high in (*AREAS, *self._text.areas):
            if self._find(low) <= start < self._find(high):
                return f"it is in text without probes ({low})"
        if start in self._blacklist:
            return "its function is on kprobes' blacklist"
        symbols = self._image.symbols
        rows = np.flatnonzero(symbols.value == np.uint64(start))
        names = list(symbols.names(rows[symbols.type[rows] == symbols.STT_FUNC]))
        if names and all(re.fullmatch(self._text.apart, name) for name in names):
            return f"{names[0]} is copied, changed or run elsewhere"
        return ""

    def against(self, start: int, code: bytes) -> str:
        """Explain what the kernel does with instructions at an address; empty for nothing."""
        low, high = np.uint64(start), np.uint64(start + len(code))
        for what, (begin, end, target) in self._places.items():
            if ((begin < high) & (end > low)).any():
                return f"{what} is there"
            if ((target > low) & (target < high)).any():
                return INTO
        if len(self._image.boot_relocations.place):
            return ""  # all of them are among the places
        told = self._text.relocated(code, start, (self._find(IMAGE[0]), self._find(IMAGE[1])))
        return f"KASLR relocates {told}" if told else ""

    @cached_property
    def _blacklist(self) -> frozenset[int]:
        low, high = map(self._find, BLACKLIST)
        image, arch = self._image, self._sites.arch
        at = np.arange(low, high - WORD + 1, WORD, dtype=np.uint64)
        held = _words(image, at)
        row = image.relocations.at(at, (arch.relative,))
        if (row >= 0).any():
            added = image.relocations.addend[np.maximum(row, 0)].astype(np.int64)
            held = np.where(row >= 0, added.view(np.uint64), held)
        return frozenset(held.tolist())

    @cached_property
    def _places(self) -> dict[str, tuple[NDArray[np.uint64], ...]]:
        """Starts, ends and targets, uint64, by what is there."""
        sites = self._sites
        ip = sites.ip - np.uint64(sites.lead)
        end = ip + sites.width.astype(np.uint64)
        out: dict[str, tuple[NDArray[np.uint64], ...]] = {SITE: (ip, end, ip[:0])}
        lists = self._image.boot_relocations
        out[RELOCATED] = lists.place, lists.place + lists.width.astype(np.uint64), ip[:0]
        place = self._image.relocations.place
        out[f"{RELOCATED} (.rela.dyn)"] = place, place + np.uint64(WORD), ip[:0]
        places = [self._constants(begin, pointer=pointer) for begin, pointer in CONSTANTS]
        place, end = (np.concatenate(columns) for columns in zip(*places, strict=True))
        out[CONSTANT] = place, end, ip[:0]
        for table in (*COMMON, *self._text.tables):
            out[table.what] = self._read(table)
        return out

    def _constants(
        self, begin: bytes, *, pointer: bool
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Starts and ends of what the tables whose names begin so tell of; a row is a distance."""
        symbols = self._image.symbols
        every = np.arange(len(symbols))
        place = [np.empty(0, np.uint64)]
        for name in symbols.names(every[symbols.begin(every, [begin])]):
            low, high = self._find(name), self._find(name.replace("start", "stop", 1))
            place.append(_targets(self._image, np.arange(low, high, 4, dtype=np.uint64)))
        found = np.concatenate(place)
        return found, found + np.uint64(self._text.constant if pointer else 1)

    def _read(self, table: Table) -> tuple[NDArray[np.uint64], ...]:
        """Starts, ends and targets of a table. Raises UsageError for an unknown form of it."""
        low, high = self._find(table.begin), self._find(table.end)
        none = np.empty(0, np.uint64)
        if not 0 < low < high:
            return none, none, none
        for size, length in table.rows:
            at = np.arange(low, high - size + 1, size, dtype=np.uint64)
            place = _words(self._image, at) if table.wide else _targets(self._image, at)
            code = self._image.elf.offset_of(place, executable=True) >= 0
            if len(table.rows) > 1 and ((high - low) % size or code.mean() < MIN_CODE):
                continue
            wide = np.ones(len(at), np.uint64)
            if length:
                held, _ = self._image.elf.gather(
                    self._image.elf.offset_of(at + np.uint64(length)), 1
                )
                wide = np.maximum(held[:, 0].astype(np.uint64), np.uint64(1))
            target = none
            if table.target >= 0:
                target = _targets(self._image, at + np.uint64(table.target))
            return place, place + wide, target
        reason = f"the form of its table {table.begin.removeprefix('__start_')} is unknown"
        raise UsageError(self._image.path, reason, "probe functions with a site, at their entry")

    def _find(self, name: str) -> int:
        if name not in self._found:
            self._found[name] = self._image.symbols.find(name) or 0
        return self._found[name]


def _words(image: Image, at: NDArray[np.uint64]) -> NDArray[np.uint64]:
    held, _ = image.elf.gather(image.elf.offset_of(at), WORD)
    return image.elf.order.unsigned(held, WORD)


def _targets(image: Image, at: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """What distances of four bytes lead to, each from itself."""
    held, _ = image.elf.gather(image.elf.offset_of(at), 4)
    distance = image.elf.order.signed(held, 4)
    found: NDArray[np.uint64] = at + distance.view(np.uint64)
    return found
