# SPDX-License-Identifier: MIT
"""Parameters in demangled C++ names."""

from __future__ import annotations

import re

__all__ = ["SIGNATURE", "parameters_in", "unsigned"]

SIGNATURE = re.compile(r"\)( const| volatile| &&?| noexcept| \[clone [^]]*\])*$")
"""Suffix of a name that has parameters."""
BRACKETS = {"(": 1, "[": 1, "{": 1, "<": 1, ")": -1, "]": -1, "}": -1, ">": -1}


def unsigned(name: str) -> str:
    """Return a name without its parameters."""
    found = _signature(name)
    return name if found is None else name[: found[0]]


def parameters_in(name: str) -> int | None:
    """Count the parameters in a name, but not the ``...`` of others; None if it has none."""
    found = _signature(name)
    if found is None:
        return None
    inner = name[found[0] + 1 : found[1]]
    parts, depth = [""], 0
    for before, char in zip(f" {inner}", inner, strict=False):
        depth += 0 if before + char == "->" else BRACKETS.get(char, 0)
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return sum(part.strip() not in ("", "...") for part in parts)


def _signature(name: str) -> tuple[int, int] | None:
    """The places of the parentheses around the parameters."""
    match = SIGNATURE.search(name)
    if match is None:
        return None
    depth = 0
    for at in range(match.start(), -1, -1):
        depth += (name[at] == ")") - (name[at] == "(")
        if not depth:
            return at, match.start()
    return None
