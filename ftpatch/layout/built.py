# SPDX-License-Identifier: MIT
"""The folder of what is built from stubs/."""

from __future__ import annotations

from pathlib import Path

__all__ = ["built", "headers"]


def built() -> Path:
    """The folder, with one for each architecture: in the installed package, or beside it in a
    checkout."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "stubs"
    return (inside if inside.is_dir() else package.parent / "stubs") / "built"


def headers() -> Path:
    """The folder of the headers for users' stubs."""
    return built().parent / "include"
