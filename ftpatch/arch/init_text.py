# SPDX-License-Identifier: MIT
"""Text whose sites a kernel's ftrace_init makes NOPs of without comparing them first."""

from __future__ import annotations

from dataclasses import dataclass

from ftpatch.arch import feature, supports

__all__ = ["InitText", "init_text"]


@dataclass(frozen=True, slots=True)
class InitText:
    """Symbols: ``start`` and ``end`` of the text, and ``sign``, which kernels have that do so."""

    start: str
    end: str
    sign: str


def init_text(arch: str) -> InitText | None:
    """That of an architecture; None where every site is compared."""
    if not supports(arch, "init_text"):
        return None
    found: InitText = feature(arch, "init_text")
    return found
