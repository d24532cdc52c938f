# SPDX-License-Identifier: MIT
"""Payloads: layer by layer down to what is patched.

bzImage       | setup | decompressor | vmlinux (ELF), compressed | size |
EFI zboot     | PE header | Image, compressed | size | decompressor |
Image.gz      | Image, compressed |
vmlinux.xz    | vmlinux (ELF), compressed |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ftpatch.errors import InputError
from ftpatch.image.compression import MAX_UNPACKED
from ftpatch.image.container import Container, Layer, RawKind
from ftpatch.image.containers import raw_kinds, wrappers

__all__ = ["Payload", "begins_as_image", "bytes_that_tell", "read_payload"]

DEPTH = 4
"""Maximum layers of one file. A gzip'd EFI zboot image has two."""
ELF = b"\x7fELF"


@dataclass(frozen=True)
class Payload:
    """``data``: what is patched. ``layers``: its wrappings, outermost first. ``container``: what it
    is; None if the ELF file inside decides."""

    container: Container | None
    layers: tuple[Layer, ...]
    data: memoryview = field(repr=False)

    @property
    def raw(self) -> RawKind | None:
        """Its container, if it is not an ELF file."""
        # Not isinstance(): asking a protocol takes as long as reading a small ELF header.
        return next((one for one in raw_kinds() if one is self.container), None)


def read_payload(path: Path | str, data: memoryview, limit: int = MAX_UNPACKED) -> Payload:
    """Unwrap the bytes of a file; without layers, ``data`` is the file itself.

    Raises InputError for a container or a stream that is truncated, damaged or not supported, for
    more than ``limit`` bytes inside one, and for more than four layers.
    """
    layers: list[Layer] = []
    while (outer := next((one for one in wrappers() if one.begins(data)), None)) is not None:
        if len(layers) == DEPTH:
            raise InputError(path, f"more than {DEPTH} nested images")
        layer, data = outer.unwrap(path, data, limit)
        limit -= len(data)  # for all layers together
        layers.append(layer)
    elf = data[:4].tobytes() == ELF
    raw = None if elf else next((one for one in raw_kinds() if one.begins(data)), None)
    if raw is not None:
        return Payload(raw, tuple(layers), data)
    if layers and not elf:
        from ftpatch.elf.known_files import what_is

        known = what_is(data)
        if known is not None:
            raise InputError(path, f"unpacks to {known.name}", known.advice)
        raise InputError(path, "unpacks to neither an ELF file nor a supported Image")
    named = (layer.container for layer in layers if layer.container.names_image)
    return Payload(next(named, None), tuple(layers), data)


def begins_as_image(head: memoryview) -> bool:
    """Return whether a file that begins like this (bytes_that_tell() are enough) is an image that
    is no ELF file, or one in a container of its own, whatever is in it."""
    return any(one.begins(head) for one in raw_kinds()) or any(
        one.begins(head) for one in wrappers() if not one.bare
    )


def bytes_that_tell() -> int:
    """Bytes from which every container is recognised that begins_as_image() knows."""
    return max(*(one.head for one in raw_kinds()), *(one.head for one in wrappers()))
