# SPDX-License-Identifier: MIT
"""Libraries of a program that has moved since it was recorded."""

from __future__ import annotations

from pathlib import Path

__all__ = ["moved_along"]


def moved_along(library: Path, program: Path, now: Path) -> Path:
    """The place of a library of a ``program`` that is ``now`` somewhere else: what was in its
    folder, as probed copies of libraries are, has moved along with it if it is there."""
    if program == now or not program.name or not library.is_relative_to(program.parent):
        return library
    moved = now.parent / library.relative_to(program.parent)
    return moved if moved.is_file() else library
