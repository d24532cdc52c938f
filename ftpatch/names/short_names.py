# SPDX-License-Identifier: MIT
"""Names for where there is little room: without what is long in the names of templates.

std::vector<int, std::allocator<int> >::push_back(int&&)    std::vector<…>::push_back(int&&)
core::iter::map::<alloc::vec::Vec<u8>>                      core::iter::map::<…>
std.algorithm.sort!("a < b", 0)                             std.algorithm.sort!(…)
"""

from __future__ import annotations

import re

__all__ = ["short_name"]

ELLIPSIS = "…"
SHORT = 4
"""Characters of arguments that are not worth leaving out."""
OPERATOR = re.compile(
    r"\boperator ?(<=>|<<=|>>=|->\*|<<|>>|->|[-<>=!+*/%^&|]=|&&|\|\||\+\+|--|[-<>=!+*/%^&|~,])"
)
BEFORE = "_:})]"
"""Characters before the arguments of a template, besides letters and digits; elsewhere ``<`` begins
a type of Rust's, as in ``<shop::Cart as Drop>::drop``."""


def short_name(name: str) -> str:
    """The name with an ellipsis for template arguments; as it is, where they do not end."""
    out: list[str] = []
    at = 0
    while at < len(name):
        operator = OPERATOR.match(name, at)
        if operator:
            out.append(operator[0])
            at = operator.end()
            if name.startswith(" <", at):
                out.append(" ")
                at += 1
        if (operator and name.startswith("<", at)) or _begins(name, at):
            first = at + 1 + (name[at] == "!")
            last = _end(name, first, name[first - 1])
            if last < 0:
                return name
            inner = name[first:last]
            out.append(name[at:first] + (inner if len(inner) <= SHORT else ELLIPSIS) + name[last])
            at = last + 1
        elif not operator:
            out.append(name[at])
            at += 1
    return "".join(out)


def _begins(name: str, at: int) -> bool:
    if name.startswith("!(", at):
        return True
    if not at or not name.startswith("<", at) or name.startswith("<impl ", at):
        return False
    return name[at - 1].isalnum() or name[at - 1] in BEFORE


def _end(name: str, at: int, opening: str) -> int:
    """Where what was opened is closed, -1 for nowhere. In parentheses < and > may be anything."""
    closing = ">" if opening == "<" else ")"
    inner = around = 0
    while at < len(name):
        operator = OPERATOR.match(name, at)
        if operator:
            at = operator.end()
            continue
        if name.startswith("->", at):
            at += 2
            continue
        c = name[at]
        if c == closing and not inner and not around:
            return at
        if c in "([{":
            around += 1
        elif c in ")]}":
            around -= 1
        elif not around and c == "<" and opening == "<":
            inner += 1
        elif not around and c == ">" and opening == "<":
            inner -= 1
        at += 1
    return -1
