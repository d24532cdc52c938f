# SPDX-License-Identifier: MIT
"""Registers of arguments on loongarch64, where a0 is r4 and fa0 is f0: LoongArch ELF psABI, "DWARF
Register Numbers"."""

from __future__ import annotations

from typing import Final

from ftpatch.arch.flattened_arguments import Flattened

__all__ = ["ARGUMENTS"]

ARGUMENTS: Final = Flattened(a0=4, fa0=32)
