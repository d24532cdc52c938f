# SPDX-License-Identifier: MIT
"""The records that a module's table must have for its loader, null ones included."""

from __future__ import annotations

from ftpatch.arch import feature, supports

__all__ = ["least_records"]


def least_records(arch: str) -> int:
    """That number: 0 where a table may be empty."""
    if not supports(arch, "least_records"):
        return 0
    least: int = feature(arch, "least_records")
    return least
