# SPDX-License-Identifier: MIT
"""Contract of a container: what an image is, or what it lies in.

    Wrapper   bzImage, zboot, a compressed file    by its first bytes   another file is in it
    RawKind   Image                                by its first bytes   no ELF file, but told as one
    ElfKind   vmlinux, module, executable, ...     by its headers       an ELF file

A container is one file of containers/ that ends in ``CONTAINER``. It derives from one of these, and
gives what differs from the values that stand here. A file is unwrapped as long as a wrapper
recognises it; what is left is the first RawKind, else the first ElfKind, that recognises it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from ftpatch.errors import InputError
from ftpatch.image.compression import kind_of, unpack

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ftpatch.elf.elf_file import Elf
    from ftpatch.elf.symbols import Symbols

__all__ = ["Container", "ElfKind", "Layer", "RawKind", "Stream", "Wrapper", "unpack_stream"]


@runtime_checkable
class Container(Protocol):
    """Facts that each of them gives."""

    name: ClassVar[str]
    """Its name in output and messages."""
    order: ClassVar[int]
    """Within its kind, the smallest is tried first."""
    is_kernel: ClassVar[bool] = False
    """True if ``ftrace_init`` reads the table when this boots."""
    is_module: ClassVar[bool] = False
    """True if ftrace reads the table when a kernel loads this."""
    is_program: ClassVar[bool] = False
    """True if it starts as a process: tracers, probes and watches can be injected."""
    is_library: ClassVar[bool] = False
    """True if programs load it."""


@runtime_checkable
class Wrapper(Container, Protocol):
    """A file that wraps another."""

    head: ClassVar[int]
    """Bytes that begins() needs."""
    names_image: ClassVar[bool] = False
    """True if the ELF file inside shares this one's name."""
    bare: ClassVar[bool] = False
    """True if this is a compressed stream and nothing else: it is named after its compression, and
    its contents may be anything."""
    repacks: ClassVar[tuple[str, ...]] = ()
    """Compressions that wrap() makes; with any other the file inside can be read but not
    changed."""
    holds_journal: ClassVar[bool] = True
    """True if the journal lies in the file inside, as if that were not wrapped; False if there is
    no room for it, and it lies behind this one."""

    def begins(self, head: memoryview) -> bool:
        """Return whether a file that begins like this is one."""
        ...

    def unwrap(self, path: Path | str, data: memoryview, limit: int) -> tuple[Layer, memoryview]:
        """Extract the contents, at most ``limit`` bytes. Raises InputError for what is truncated,
        damaged, not supported or larger."""
        ...

    def place(self, path: Path | str, data: memoryview) -> Stream:
        """Find the compressed stream in the whole file. Raises InputError."""
        return Stream(0, len(data))

    def wrap(self, path: Path | str, layer: Layer, inside: memoryview, room: Stream) -> bytes:
        """Return the file of a layer, unsigned, with other contents, whose stream may take the
        ``room`` that it had when the file was built. Raises InputError for what does not fit."""
        raise InputError(path, f"the contents of a {self.name} cannot be changed")


@runtime_checkable
class RawKind(Container, Protocol):
    """An image that is not an ELF file. Its parts are located by content, so commands that change
    the content use the original's layout."""

    head: ClassVar[int]
    """Bytes that begins() needs."""

    def begins(self, head: memoryview) -> bool:
        """Return whether a file that begins like this is one."""
        ...

    def read(self, path: Path, data: NDArray[np.uint8]) -> tuple[Elf, Symbols]:
        """Read the file (uint8[size]) and present it as ELF. Raises InputError."""
        ...


@runtime_checkable
class ElfKind(Container, Protocol):
    """A kind of ELF file."""

    def recognises(self, elf: Elf, symbols: Symbols) -> bool:
        """Return whether the ELF file is one. Raises InputError for damage that leaves it open."""
        ...


@dataclass(frozen=True, slots=True)
class Layer:
    """One wrapping. ``compression``: as kind_of() names it, empty for none; ``offset``, ``size``:
    where in the ``outer`` bytes, all of this file, the file inside or its stream lies."""

    container: Wrapper
    compression: str
    offset: int
    size: int
    outer: memoryview = field(default=memoryview(b""), repr=False, compare=False)

    @property
    def name(self) -> str:
        """The container's name; of a bare stream the compression's."""
        return self.compression if self.container.bare else self.container.name


@dataclass(frozen=True, slots=True)
class Stream:
    """A compressed stream inside: ``offset``, ``size``, and how many bytes it is said to unpack to,
    None where nothing says so."""

    offset: int
    size: int
    unpacked: int | None = None


def unpack_stream(
    container: Wrapper, path: Path | str, data: memoryview, stream: Stream, limit: int
) -> tuple[Layer, memoryview]:
    """Unwrap what a container holds as a compressed stream. Raises InputError."""
    held = data[stream.offset : stream.offset + stream.size]
    kind = kind_of(held)
    if kind is None:
        reason = f"the {container.name}'s payload is not in a kernel compression format"
        raise InputError(path, reason)
    inside = memoryview(unpack(path, held, limit, stream.unpacked)).toreadonly()
    return Layer(container, kind, stream.offset, stream.size, data), inside
