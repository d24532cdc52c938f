# SPDX-License-Identifier: MIT
"""A kernel in a core: its vmlinux, with the text that is in memory in place of the file's.

    file     | headers | text  | data | .init.text  | symbols ...
    core     |         | text' |      | (freed)     |
    image    | headers | text' | data | .init.text  | symbols ...

What the kernel frees once it has booted stays the file's, and is not compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.elf.build_id import build_id
from ftpatch.errors import InputError, UsageError
from ftpatch.ftrace.filter import Selection, expand, linked, select_sites
from ftpatch.ftrace.sites import Sites, read_sites, reread
from ftpatch.image import Image, open_image
from ftpatch.kcore.core_file import Core, open_core

__all__ = ["InCore", "Part", "open_in_core"]

MASK = (1 << 64) - 1
INIT = ("__init_begin", "__init_end")
"""Symbols around what free_initmem() frees."""


@dataclass(frozen=True, slots=True)
class Part:
    """A range of text: its link address, its offset in the file, its size (bytes)."""

    address: int
    offset: int
    size: int


@dataclass(frozen=True, kw_only=True)
class InCore:
    """A kernel in a core. ``file``: as the file has it; ``bias``: by how much it was moved when it
    booted (KASLR)."""

    core: Core = field(repr=False)
    file: Image = field(repr=False)
    bias: int

    @property
    def path(self) -> Path:
        """The path of its vmlinux."""
        return self.file.path

    @property
    def release(self) -> str:
        """Its release, as uname prints it."""
        return self.core.info.get("OSRELEASE", "")

    def above(self, address: int) -> int:
        """Turn a link address into one of the running kernel."""
        return (address + self.bias) & MASK

    def below(self, address: int) -> int:
        """Turn an address of the running kernel into a link address."""
        return (address - self.bias) & MASK

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """Its text that is not freed after the boot, by address; without what lies before _stext,
        which is not executed any more."""
        found = self.file.symbols
        begin, end, first = (found.find(name) or 0 for name in (*INIT, "_stext"))
        elf = self.file.elf
        rows = [
            (at, size) for at, size in elf.text.tolist() if at >= first and not begin <= at < end
        ]
        offsets = elf.offset_of(np.array([at for at, _ in rows], np.uint64)).tolist()
        pairs = zip(rows, offsets, strict=True)
        return tuple(Part(at, offset, size) for (at, size), offset in pairs if offset >= 0)

    @property
    def image(self) -> Image:
        """The image with the text that is in the core. Raises InputError."""
        return self._held[0]

    @property
    def missing(self) -> int:
        """Bytes of text that the core does not have. Raises InputError."""
        return sum(size for _, size in self.holes)

    @property
    def holes(self) -> list[tuple[int, int]]:
        """Link address and size of each piece of text that the core does not have. Raises
        InputError."""
        found = []
        for part, there in zip(self.parts, self._held[1], strict=True):
            edges = np.flatnonzero(np.diff(np.concatenate([[True], there, [True]]))).tolist()
            pairs = zip(edges[0::2], edges[1::2], strict=True)
            found += [(part.address + first, end - first) for first, end in pairs]
        return found

    @cached_property
    def _held(self) -> tuple[Image, tuple[NDArray[np.bool_], ...]]:
        image = self.file.altered([])  # private pages: only those that are written to are copied
        read = []
        for part in self.parts:
            held, there = self.core.read(self.above(part.address), part.size)
            place = image.data[part.offset : part.offset + part.size]
            np.copyto(place, held, where=there & (place != held))
            read.append(there)
        if not any(there.any() for there in read):
            raise InputError(self.core.path, "none of the kernel's text is in it")
        return image, tuple(read)

    @cached_property
    def sites_of_file(self) -> Sites:
        """The sites as the file has them. Raises InputError."""
        return read_sites(self.file)

    @cached_property
    def sites(self) -> Sites:
        """The sites that are in the core, as they stand in its memory; those of functions that are
        freed after the boot are left out. Callees without a name are at addresses of the running
        kernel. Raises InputError."""
        whole = reread(self.sites_of_file, self.image)
        read = _rows(whole, self._in_core(whole))
        targets = read.targets
        pairs = zip(targets.name, targets.addr.tolist(), strict=True)
        name = tuple(hex(self.above(at)) if name == hex(at) else name for name, at in pairs)
        return replace(read, targets=replace(targets, name=name))

    def _in_core(self, sites: Sites) -> NDArray[np.bool_]:
        """Test which sites' code was read from the core, bool[n]."""
        found = np.zeros(len(sites), bool)
        for part, there in zip(self.parts, self._held[1], strict=True):
            at = sites.offset - part.offset
            inside = (at >= 0) & (at < part.size)
            found[inside] = there[at[inside]]
        return found

    def select(self, selection: Selection) -> NDArray[np.bool_]:
        """Mask of the sites that are selected, bool[n], by addresses of the running kernel. Raises
        UsageError for a pattern that matches nothing, and where nothing is selected."""
        here, was = linked(expand(selection), self.bias)
        missing = set[str]()
        mask = select_sites(self.sites, here, missing)
        if missing:
            from ftpatch.ftrace.filter import unmatched

            text = min(missing)
            raise unmatched(was.get(text, text), [self.sites], regex=selection.regex)
        if not mask.any():
            raise UsageError(self.path, "the filters select no site", "see `ftpatch list --core`")
        return mask


def open_in_core(path: Path, core: Path) -> InCore:
    """Open a vmlinux and a core of that kernel. Raises InputError for what cannot be read, and for
    the core of another kernel."""
    file = open_image(path)
    if not file.is_kernel:
        raise InputError(
            path, f"{file.kind}, and a core is compared with a kernel", "use a vmlinux"
        )
    opened = open_core(core)
    own, other = build_id(file.elf), opened.info.get("BUILD-ID", "")
    if not other:
        reason = "its VMCOREINFO has no BUILD-ID, which kernels have since 5.9"
        raise InputError(core, reason, "the vmlinux cannot be told from another")
    if own != other:
        release = opened.info.get("OSRELEASE", "another kernel")
        have = f"has {own}" if own else "has none"
        raise InputError(
            core,
            f"its kernel is {release}, build-id {other}, and {path} {have}",
            "use the vmlinux of that build",
        )
    linked_at = file.symbols.find("_stext")
    try:
        booted_at = int(opened.info.get("SYMBOL(_stext)", ""), 16)
    except ValueError:
        raise InputError(core, "its VMCOREINFO does not say where the kernel is") from None
    if linked_at is None:
        reason = "no symbol _stext, which tells by how much the kernel was moved"
        raise InputError(path, reason, "use a vmlinux with symbols")
    return InCore(core=opened, file=file, bias=(booted_at - linked_at) & MASK)


def _rows(sites: Sites, mask: NDArray[np.bool_]) -> Sites:
    """Some of the sites, with all of their callees."""
    return replace(
        sites,
        row=sites.row[mask],
        ip=sites.ip[mask],
        offset=sites.offset[mask],
        code=sites.code[mask],
        state=sites.state[mask],
        addr=sites.addr[mask],
        width=sites.width[mask],
        got=sites.got[mask],
        placed=sites.placed[mask],
        dropped=sites.dropped[mask],
    )
