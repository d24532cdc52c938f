# SPDX-License-Identifier: MIT
"""The rule on functions without a record that should have one."""

from __future__ import annotations

from ftpatch.ftrace.check.broken_rows import Broken
from ftpatch.ftrace.lost_records import find_lost
from ftpatch.ftrace.sites import Sites

__all__ = ["unrecorded"]


def unrecorded(sites: Sites) -> Broken:
    """Functions that begin as those with a record do, and have none."""
    lost = find_lost(sites)
    message = f"the function begins with {lost.what}, but has no record in the table"
    return lost.ip, [message] * len(lost)
