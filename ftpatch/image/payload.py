# SPDX-License-Identifier: MIT
"""Payloads of bootable kernel images: layer by layer down to ELF or Image.

bzImage       | setup | decompressor | vmlinux (ELF), compressed | size |
EFI zboot     | PE header | Image, compressed | size | decompressor |
Image.gz      | Image, compressed |
vmlinux.xz    | vmlinux (ELF), compressed |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ftpatch.arch.raw_image import raw_images
from ftpatch.errors import InputError
from ftpatch.image.bzimage import bzimage_stream, is_bzimage
from ftpatch.image.compression import LIMIT, kind_of, unpack
from ftpatch.image.zboot import is_zboot, zboot_stream
from ftpatch.io.known_files import what_is

__all__ = ["Layer", "Payload", "begins_as_image", "read_payload"]

DEPTH = 4
"""Layers that one file may have. A gzip'd EFI zboot image has two."""
ELF = b"\x7fELF"
MAGIC_AT = 0x38


@dataclass(frozen=True, slots=True)
class Layer:
    """One wrapping. ``container``: bzImage, zboot, or empty for a compressed file; ``compression``:
    as kind_of() names it; ``offset``, ``size``: where in the outer bytes the stream lies."""

    container: str
    compression: str
    offset: int
    size: int


@dataclass(frozen=True)
class Payload:
    """``data``: what is patched. ``layers``: what stood around it, outermost first.
    ``container``: bzImage or Image; empty where the ELF file inside must say what it is."""

    container: str
    layers: tuple[Layer, ...]
    data: memoryview = field(repr=False)


def read_payload(path: Path | str, data: memoryview, limit: int = LIMIT) -> Payload:
    """Unwrap the bytes of a file ; without layers, ``data`` is the file itself.

    Raises InputError for a container or a stream that is truncated, damaged or not supported, for
    more than ``limit`` bytes inside one, and for more than four layers.
    """
    layers: list[Layer] = []
    while (found := _layer(path, data)) is not None:
        if len(layers) == DEPTH:
            raise InputError(path, f"more than {DEPTH} nested images")
        layer, size = found
        stream = data[layer.offset : layer.offset + layer.size]
        data = memoryview(unpack(path, stream, limit, size)).toreadonly()
        limit -= len(data)  # for all layers together
        layers.append(layer)
    if data[MAGIC_AT : MAGIC_AT + 4].tobytes() in raw_images():
        return Payload("Image", tuple(layers), data)
    if layers and data[:4].tobytes() != ELF:
        known = what_is(data)
        if known is not None:
            raise InputError(path, f"unpacks to {known.name}", known.advice)
        raise InputError(path, "unpacks to neither an ELF file nor a supported Image")
    boxed = any(layer.container == "bzImage" for layer in layers)
    return Payload("bzImage" if boxed else "", tuple(layers), data)


def begins_as_image(head: memoryview) -> bool:
    """Return whether a file that begins like this (592 bytes are enough) is an Image, or a kernel
    in a container of its own, whatever is in it."""
    return (
        head[MAGIC_AT : MAGIC_AT + 4].tobytes() in raw_images()
        or is_bzimage(head)
        or is_zboot(head)
    )


def _layer(path: Path | str, data: memoryview) -> tuple[Layer, int | None] | None:
    """The outermost layer, and how many bytes it says that it unpacks to."""
    if (boxed := bzimage_stream(path, data)) is not None:
        return _inner(path, data, "bzImage", boxed[0], boxed[1]), boxed[2]
    if (booting := zboot_stream(path, data)) is not None:
        return _inner(path, data, "zboot", *booting), None
    kind = kind_of(data)
    return None if kind is None else (Layer("", kind, 0, len(data)), None)


def _inner(path: Path | str, data: memoryview, container: str, offset: int, size: int) -> Layer:
    kind = kind_of(data[offset : offset + size])
    if kind is None:
        raise InputError(path, f"the {container}'s payload is not in a kernel compression format")
    return Layer(container, kind, offset, size)
