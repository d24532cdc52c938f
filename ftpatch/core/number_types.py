# SPDX-License-Identifier: MIT
"""The types of recorded values: those of kernel/trace/trace_probe.c, and floats."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["FLOATS", "SIGNED", "TYPES"]

TYPES: Mapping[str, int] = MappingProxyType(
    {f"{sign}{8 * width}": width for sign in "usx" for width in (1, 2, 4, 8)}
    | {"f32": 4, "f64": 8, "string": 0, "symbol": 8}
)
"""Width of each type in bytes; a string's varies."""
SIGNED = frozenset(kind for kind in TYPES if re.fullmatch(r"s\d+", kind))
"""The types of signed numbers."""
FLOATS = frozenset(["f32", "f64"])
"""IEEE 754's binary32 and binary64: float and double."""
