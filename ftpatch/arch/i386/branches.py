# SPDX-License-Identifier: MIT
"""Branches of i386."""

from __future__ import annotations

from typing import Final

from ftpatch.arch.branches import Branches
from ftpatch.arch.x86.branches import x86_branches

__all__ = ["BRANCHES"]

BRANCHES: Final[Branches] = x86_branches()
