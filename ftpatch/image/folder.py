# SPDX-License-Identifier: MIT
"""Images in a directory: modules by their names, all others by how they begin.

    .../samples   program       ELF: an executable, a shared object or a kernel of a known machine
                  vmlinuz       bzImage, zboot, Image
                  Image.gz      what unpacks to one of these
                  demo.ko.xz    a module
                  notes, a.o    nothing: left out without a word

Relocatable objects are parts of images. An ELF file of another machine is none that is read.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ftpatch.arch import arch_of
from ftpatch.core.byte_order import BIG, LITTLE
from ftpatch.errors import FtpatchError, NoImages
from ftpatch.image.compression import kind_of
from ftpatch.image.decoders import LZ4_LEGACY
from ftpatch.image.first_bytes import beginning
from ftpatch.image.payload import begins_as_image, bytes_that_tell
from ftpatch.io.activity import doing
from ftpatch.io.tree import entries, is_module

__all__ = ["image_paths", "is_image", "no_images"]

HEAD = 1 << 18
"""Bytes of a compressed file to read, to see how its contents begin."""
ELF = b"\x7fELF"
LINKED = (2, 3)
"""ET_EXEC, ET_DYN."""
RELOCATABLE = 1
"""ET_REL."""


def image_paths(root: Path) -> tuple[list[Path], list[FtpatchError]]:
    """Find the images below a directory; also return errors of what could not be read."""
    paths, errors = [], []
    with doing("looking for images"):
        for path, held in entries(root):
            if isinstance(held, FtpatchError):
                errors.append(held)
            elif is_module(path, held) or (stat.S_ISREG(held.st_mode) and is_image(path)):
                paths.append(path)
    return paths, errors


def no_images(root: Path) -> NoImages:
    """The error for a directory without images."""
    return NoImages(
        root,
        "no images in this directory",
        "ftpatch looks for kernels, modules, programs and libraries",
    )


def is_image(path: Path, *, relocatable: bool = False) -> bool:
    """Return whether a regular file begins like a readable image, with ``relocatable`` also a
    relocatable one. What cannot be read counts: reading it will report why."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return True
    enough = bytes_that_tell()
    try:
        with os.fdopen(fd, "rb") as file:
            head = file.read(enough)
            kind = kind_of(memoryview(head))
            if head.startswith(LZ4_LEGACY):
                return True  # only kernels use it; its blocks have 8 MiB
            if kind is not None:
                head = beginning(kind, head + file.read(HEAD), enough)
    except OSError:
        return True
    return _known(head, relocatable)


def _known(head: bytes, relocatable: bool) -> bool:
    if head[:4] != ELF:
        return begins_as_image(memoryview(head))
    order = {1: LITTLE, 2: BIG}.get(head[5]) if len(head) >= 20 else None
    if order is None:
        return False
    kind, number = (order.integer(head[at : at + 2]) for at in (16, 18))
    arch = arch_of(number, {1: 32, 2: 64}.get(head[4], 0))
    known = arch is not None and arch.order == order
    return known and kind in (*LINKED, *[RELOCATABLE] * relocatable)
