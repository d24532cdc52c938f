# SPDX-License-Identifier: MIT
"""The Image of riscv64: Documentation/arch/riscv/boot-image-header.rst."""

from __future__ import annotations

from typing import Final

from ftpatch.arch.raw_image import RawHeader

__all__ = ["RAW_IMAGE"]

RAW_IMAGE: Final = RawHeader(b"RSC\x05", not_offset=4 << 20)  # of 32-bit kernels; here it is 2 MiB
