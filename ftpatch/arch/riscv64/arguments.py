# SPDX-License-Identifier: MIT
"""Registers of arguments on riscv64: RISC-V psABI, "DWARF Register Numbers"."""

from __future__ import annotations

from typing import Final

from ftpatch.arch.flattened_arguments import Flattened

__all__ = ["ARGUMENTS"]

ARGUMENTS: Final = Flattened(a0=10, fa0=42)
