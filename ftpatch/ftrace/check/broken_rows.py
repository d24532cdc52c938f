# SPDX-License-Identifier: MIT
"""Rows that break an invariant, as columns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.ftrace.sites import Sites

__all__ = ["Broken", "broken"]

Broken = tuple[NDArray[np.uint64], list[str]]
"""Addresses, uint64[m], and what is wrong at each."""


def broken(sites: Sites, mask: NDArray[np.bool_], message: str) -> Broken:
    """The sites of a mask, bool[n], with one message for all."""
    ip = sites.ip[mask]
    return ip, [message] * len(ip)
