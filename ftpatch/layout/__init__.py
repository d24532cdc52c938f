# SPDX-License-Identifier: MIT
"""Structures and constants that Python shares with the runtime in C, as the compiler laid them out.

The files beside this one are made of stubs/layout.c by `make -C stubs`: one for each architecture.
What is asked for without an architecture is the same on all.
"""

from __future__ import annotations

from ftpatch.layout.structures import constants, offset_of, pack, structure, texts, unpack

__all__ = ["constants", "offset_of", "pack", "structure", "texts", "unpack"]
