# SPDX-License-Identifier: MIT
"""Parameters in demangled C++ names."""

from __future__ import annotations

import re

__all__ = ["SIGNATURE", "called_name", "name_span", "parameters_in", "unsigned"]

SIGNATURE = re.compile(r"\)( const| volatile| &&?| noexcept| \[clone [^]]*\])*$")
"""Suffix of a name that has parameters."""
BEHIND = re.compile(r"( const| volatile|&| \[clone [^]]*\])*$")
NAMED = re.compile(r"\boperator[^\w(]*$")
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


def called_name(name: str) -> str:
    """A function's name without its parameters, and without a template's return type."""
    begin, end = name_span(name)
    return name[begin:end]


def name_span(name: str) -> tuple[int, int]:
    """Start and end of that in the text."""
    end = len(name) if name.endswith(")") else len(BEHIND.sub("", name))
    if not name[:end].endswith(")"):
        return 0, len(name)
    at = name.find("(")
    if name.count("(") > 1:
        depth = 0
        for at in range(end - 1, -1, -1):
            depth += (name[at] == ")") - (name[at] == "(")
            if not depth:
                break
    end, depth = at, 0
    if " " not in name[:end]:
        return 0, end
    for at in range(end - 1, -1, -1):
        depth += (name[at] in ")>") - (name[at] in "(<")
        if name[at] == " " and depth <= 0 and not NAMED.search(name[:at]):
            return at + 1, end
    return 0, end


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
