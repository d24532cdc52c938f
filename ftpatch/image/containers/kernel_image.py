"""The kernel as arm64 and riscv64 boot it: an Image (see raw_image.py)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.elf.elf_file import Elf
from ftpatch.elf.symbols import Symbols, no_symbols
from ftpatch.image.container import RawKind
from ftpatch.image.raw_image import HEADER, is_raw_image, read_raw_image

__all__ = ["CONTAINER"]


class KernelImage(RawKind):
    """An Image of a machine that has one."""

    name = "Image"
    order = 10
    is_kernel = True
    head = HEADER

    def begins(self, head: memoryview) -> bool:
        return is_raw_image(np.frombuffer(head[:HEADER], np.uint8))

    def read(self, path: Path, data: NDArray[np.uint8]) -> tuple[Elf, Symbols]:
        raw = read_raw_image(path, data)
        return raw.elf, raw.own.symbols(path) if raw.own else no_symbols(path)


CONTAINER: RawKind = KernelImage()
