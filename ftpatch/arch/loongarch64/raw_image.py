# SPDX-License-Identifier: MIT
"""The Image of loongarch64 (vmlinux.efi): _head in arch/loongarch/kernel/head.S. Its fields stand
where the others have theirs: 0x08 is the entry point, 0x10 the size in memory, 0x18 where it is
loaded; 0x38 has LINUX_PE_MAGIC alone. Kernels are linked into the window of cached physical memory,
CACHE_BASE (arch/loongarch/include/asm/addrspace.h)."""

from __future__ import annotations

from typing import Final

from ftpatch.arch.raw_image import RawHeader

__all__ = ["RAW_IMAGE"]

RAW_IMAGE: Final = RawHeader(b"\xcd\x23\x82\x81", lowest=0x9000_0000_0000_0000)
