# SPDX-License-Identifier: MIT
"""Identity and state of a file."""

from __future__ import annotations

import os

__all__ = ["file_id"]


def file_id(held: os.stat_result) -> tuple[int, int, int, int]:
    """Identify a file: replacing it, or writing to it, changes the tuple."""
    return held.st_dev, held.st_ino, held.st_size, held.st_mtime_ns
