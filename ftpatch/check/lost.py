"""The rule on functions without a record that should have one."""

from __future__ import annotations

from ftpatch.check.rows import Broken
from ftpatch.lost import find_lost
from ftpatch.sites import Sites

__all__ = ["unrecorded"]


def unrecorded(sites: Sites) -> Broken:
    """Functions that begin as those with a record do, and have none."""
    lost = find_lost(sites)
    message = f"the function begins with {lost.what}, and the table has no record of it"
    return lost.ip, [message] * len(lost)
