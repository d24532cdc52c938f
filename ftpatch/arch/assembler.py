# SPDX-License-Identifier: MIT
"""Instructions as text to bytes, for an architecture that Keystone lacks."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Assembler"]


class Assembler(Protocol):
    """An architecture's own assembler, of the instructions that its folder uses."""

    def __call__(self, text: str, at: int) -> bytes:
        """One instruction at address ``at``, in the words of GNU as; targets of branches are
        addresses. Raises ValueError for one that it does not know or that cannot be encoded."""
