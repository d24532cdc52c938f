"""What a file is. Only this package opens images."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.changes import Changes
from ftpatch.errors import InputError
from ftpatch.image.elf import Elf
from ftpatch.image.kallsyms import Kallsyms, read_kallsyms
from ftpatch.image.program import program_container
from ftpatch.image.relocations import Relocations, read_relocations
from ftpatch.image.symbols import Symbols, dynamic_symbols, read_symbols
from ftpatch.image.vmlinux import is_vmlinux

__all__ = ["Image", "open_image"]


@dataclass(frozen=True)
class Image:
    """An opened image: the ELF file and what container it is."""

    elf: Elf
    container: str
    symbols: Symbols = field(repr=False)

    @property
    def path(self) -> Path:
        """Where it was opened."""
        return self.elf.path

    @property
    def data(self) -> NDArray[np.uint8]:
        """Its bytes, uint8[size]."""
        return self.elf.data

    @property
    def is_kernel(self) -> bool:
        """Whether ``ftrace_init`` will read this image's table."""
        return self.container == "vmlinux"

    @cached_property
    def kallsyms(self) -> Kallsyms:
        """Its symbols in kallsyms' order."""
        return read_kallsyms(self.symbols)

    @cached_property
    def relocations(self) -> Relocations:
        """Its dynamic relocations."""
        return read_relocations(self.elf)

    @cached_property
    def dynamic_symbols(self) -> Symbols:
        """The symbols that its dynamic relocations count by."""
        return dynamic_symbols(self.elf)

    def altered(self, changes: Iterable[Changes], *, old: bool = False) -> Image:
        """This image in memory with Changes applied, or with ``old`` taken back, in that order."""
        return replace(self, elf=self.elf.altered(changes, old=old))


def open_image(path: Path) -> Image:
    """Open an image and say what it is. Raises InputError with the reason in one line."""
    elf = Elf.open(path)
    symbols = read_symbols(elf)
    container = "vmlinux" if is_vmlinux(elf, symbols) else program_container(elf)
    if container is None:
        raise InputError(
            path,
            f"ELF type {elf.skeleton.type} is not supported",
            "give a vmlinux, an executable or a shared library",
        )
    return Image(elf, container, symbols)
