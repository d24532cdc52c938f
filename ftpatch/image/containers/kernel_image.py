# SPDX-License-Identifier: MIT
"""The kernel as arm64 and riscv64 boot it: an Image (see raw_image.py)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ftpatch.image.container import RawKind

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ftpatch.elf.elf_file import Elf
    from ftpatch.elf.symbols import Symbols

__all__ = ["CONTAINER"]


class KernelImage(RawKind):
    """An Image of a machine that has one."""

    name = "Image"
    order = 10
    is_kernel = True
    head = 0x40  # HEADER of raw_image.py, which is not imported for files of other kinds

    def begins(self, head: memoryview) -> bool:
        from ftpatch.image.raw_image import is_raw_image

        return is_raw_image(head)

    def read(self, path: Path, data: NDArray[np.uint8]) -> tuple[Elf, Symbols]:
        from ftpatch.elf.symbols import no_symbols
        from ftpatch.image.raw_image import read_raw_image

        raw = read_raw_image(path, data)
        return raw.elf, raw.own.symbols(path) if raw.own else no_symbols(path)


CONTAINER: RawKind = KernelImage()
