# SPDX-License-Identifier: MIT
"""An opened image: its ELF file, its container, its symbols."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import arch_of
from ftpatch.core.changes import Changes, Kind
from ftpatch.core.journal import Block, read_blocks
from ftpatch.elf.elf_file import Elf, map_file
from ftpatch.elf.headers import Section, Skeleton
from ftpatch.elf.known_files import elf_words, supported
from ftpatch.elf.relocatable import lay_out, lay_out_symbols, module_name
from ftpatch.elf.relocations import Relocations, read_relocations
from ftpatch.elf.symbols import Symbols, dynamic_symbols, read_symbols
from ftpatch.errors import InputError, UsageError
from ftpatch.image.boot_relocations import BootRelocations, read_boot_relocations
from ftpatch.image.container import Container, Layer, RawKind
from ftpatch.image.containers import elf_kinds
from ftpatch.image.kallsyms.kallsyms import Kallsyms, read_kallsyms
from ftpatch.image.kallsyms.own_symbols import read_own_symbols
from ftpatch.image.pe import unsigned_size
from ftpatch.image.prefetch import payload_of
from ftpatch.image.signature import signature_size
from ftpatch.image.wrapping import blocks_behind, carrier

__all__ = ["Image", "open_image"]


@dataclass(frozen=True)
class Image:
    """An opened image: the ELF file, its container, and the ``layers`` of the file that it was read
    from, outermost first."""

    elf: Elf
    container: Container
    symbols: Symbols = field(repr=False)
    layers: tuple[Layer, ...] = field(default=(), repr=False)

    @property
    def path(self) -> Path:
        """The path that was opened."""
        return self.elf.path

    @property
    def data(self) -> NDArray[np.uint8]:
        """Its bytes, uint8[size]."""
        return self.elf.data

    @property
    def kind(self) -> str:
        """Its container with an article."""
        name = self.container.name
        return f"{'an' if name[0] in 'Iaeiou' else 'a'} {name}"

    @property
    def is_kernel(self) -> bool:
        """True if ``ftrace_init`` will read this image's table."""
        return self.container.is_kernel

    @property
    def is_module(self) -> bool:
        """True if a kernel loads it as a module."""
        return self.container.is_module

    @property
    def is_program(self) -> bool:
        """True if it starts as a process."""
        return self.container.is_program

    @property
    def is_library(self) -> bool:
        """True if programs load it."""
        return self.container.is_library

    @property
    def compression(self) -> str:
        """The compression of a file that is a compressed stream, empty for any other."""
        return self.layers[0].compression if self.layers and self.layers[0].container.bare else ""

    def require_writable(self) -> None:
        """Raise UsageError for an image in another file that can only be read: by its compression,
        a module in a kernel's container, and one that was changed before it was packed, so that its
        journal is in the way of what a decompressor reads."""
        fixed = any(one.compression not in one.container.repacks for one in self.layers)
        if fixed or (self.carrier is not None and (self.is_relocatable or self._inside)):
            raise UsageError(
                self.path,
                f"{self.kind} in another file cannot be changed",
                f"extract it first: `ftpatch extract {self.path} -o FILE`",
            )

    @cached_property
    def end(self) -> int:
        """End of its bytes (offset), without a signature that follows them. Raises InputError for
        one that extends into a module."""
        if isinstance(self.container, RawKind) and not self.layers:
            return unsigned_size(self.data.data)
        if not self.is_relocatable:
            return len(self.data)
        end = len(self.data) - signature_size(self.path, self.data)
        if end < self.elf.end:
            raise InputError(self.path, "its module signature overlaps the module")
        return end

    @property
    def carrier(self) -> Layer | None:
        """The layer that its journal lies behind; None if it lies in the image itself."""
        return carrier(self.layers)

    @property
    def signed(self) -> bool:
        """True if the file ends with a signature, of a module or for UEFI."""
        if self.end < len(self.data):
            return True
        outer = self.layers[0].outer if self.layers else memoryview(b"")
        return unsigned_size(outer) < len(outer)

    @cached_property
    def blocks(self) -> list[Block]:
        """Its journal, the latest block first. Raises InputError for one that contradicts
        itself."""
        behind: list[Block] = []
        if self.carrier is not None:
            behind = blocks_behind(self.path, self.carrier, len(self.data))
        return behind or self._inside

    @property
    def built(self) -> bytes:
        """The file as it was before a journal that lies behind it; empty without one."""
        return self.blocks[-1].packed if self.carrier is not None and self.blocks else b""

    @cached_property
    def _inside(self) -> list[Block]:
        return read_blocks(self.path, self.data[: self.end])

    @cached_property
    def module_name(self) -> str:
        """A kernel module's name, as lsmod prints it; empty for anything else."""
        return module_name(self.elf) if self.is_module else ""

    @property
    def is_relocatable(self) -> bool:
        """True if it is relocatable: its calls and records are relocations."""
        return self.elf.skeleton.type == Skeleton.ET_REL

    @property
    def has_table(self) -> bool:
        """True if a kernel's ftrace will process this image's table: at boot, or on insmod."""
        return self.is_kernel or self.is_module

    @cached_property
    def kallsyms(self) -> Kallsyms:
        """Its symbols in kallsyms order."""
        return read_kallsyms(self.symbols)

    @cached_property
    def relocations(self) -> Relocations:
        """Its dynamic relocations."""
        return read_relocations(self.elf)

    @cached_property
    def boot_relocations(self) -> BootRelocations:
        """The relocations that a kernel's decompressor applies; empty where none follow it."""
        last = self._inside[-1] if self._inside else None
        end = self.end if last is None else last.length - len(last.cut)
        return read_boot_relocations(self.elf, end if self.is_kernel else 0)

    @cached_property
    def dynamic_symbols(self) -> Symbols:
        """The symbols that its dynamic relocations refer to."""
        return dynamic_symbols(self.elf)

    def laid_out_as(self, original: Image) -> Image:
        """Return this image with the original's layout, if that is located by content, which
        commands change."""
        if not isinstance(self.container, RawKind):
            return self
        elf = replace(self.elf, skeleton=original.elf.skeleton)
        return replace(self, elf=elf, symbols=original.symbols)

    def altered(
        self, changes: Iterable[Changes], *, old: bool = False, length: int | None = None
    ) -> Image:
        """Return this image in memory with Changes applied, or with ``old`` reverted, in that
        order; ``length`` is its size then (bytes), if that determines where it ends."""
        blocks = list(changes)
        elf = self.elf.altered(blocks, old=old)
        if isinstance(self.container, RawKind) and old:  # located by the old content
            raw = _raw(self.container, elf.path, elf.data[:length])
            return replace(raw, elf=replace(raw.elf, data=elf.data))
        if isinstance(self.container, RawKind) or not any(
            (block.kind == Kind.HEADER).any() for block in blocks
        ):
            return replace(self, elf=elf)
        return self.holding(elf.data, mapped=elf.mapped)  # the headers have changed

    def holding(self, data: NDArray[np.uint8], *, mapped: bool = False) -> Image:
        """Open a file as if it contained ``data``, uint8[size]."""
        image = _image(Elf.read(self.path, data, mapped=mapped))
        return replace(image, layers=self.layers)


def open_image(path: Path) -> Image:
    """Open an image and identify it. Raises InputError with the reason in one line."""
    data, mapped = map_file(path)
    payload = payload_of(path, data.data)
    inside = np.frombuffer(payload.data, np.uint8)
    if payload.raw is not None:
        return replace(_raw(payload.raw, path, inside), layers=payload.layers)
    if not payload.layers:
        return _image(Elf.read(path, data, mapped=mapped))
    image = replace(_image(Elf.read(path, inside)), layers=payload.layers)
    return _named(replace(image, container=payload.container or image.container))


def _raw(kind: RawKind, path: Path, data: NDArray[np.uint8]) -> Image:
    elf, symbols = kind.read(path, data)
    return Image(elf, kind, symbols)


def _image(read: Elf) -> Image:
    arch = arch_of(read.skeleton.machine, read.skeleton.elf_class)
    if arch is not None and arch.order != read.order:
        reason = f"{elf_words(read.data.data)}, which is not supported"
        raise InputError(read.path, reason, supported(read.data.data))
    elf = lay_out(read)
    symbols = read_symbols(elf)
    container = next((one for one in elf_kinds() if one.recognises(elf, symbols)), None)
    if container is None:
        raise InputError(
            elf.path,
            f"{elf_words(elf.data.data)} (ELF type {elf.skeleton.type}) is not supported",
            "use a vmlinux, a module, an executable or a shared library",
        )
    image = Image(elf, container, symbols)
    if image.is_relocatable:
        return replace(image, symbols=lay_out_symbols(elf, symbols))
    return _named(image)


def _named(image: Image) -> Image:
    """Without a symbol table, use the names in the kernel's own kallsyms. A position-independent
    kernel may have dynamic symbols all the same, which name hardly anything."""
    kept = any(section.type == Section.SHT_SYMTAB for section in image.elf.sections)
    if not image.is_kernel or (len(image.symbols) and kept):
        return image
    own = read_own_symbols(image.elf, image.relocations)
    return image if own is None else replace(image, symbols=own.symbols(image.path))
