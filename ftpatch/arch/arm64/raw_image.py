# SPDX-License-Identifier: MIT
"""The Image of arm64: Documentation/arch/arm64/booting.rst."""

from __future__ import annotations

from typing import Final

from ftpatch.arch.raw_image import RawHeader

__all__ = ["RAW_IMAGE"]

RAW_IMAGE: Final = RawHeader(b"ARM\x64")
