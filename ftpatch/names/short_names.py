# SPDX-License-Identifier: MIT
"""Names for where there is little room: without what is long in the names of templates.

std::vector<int, std::allocator<int> >::push_back(int&&)    std::vector<…>::push_back(int&&)
void std::swap<shop::Cart>(shop::Cart&, shop::Cart&)        std::swap<…>(shop::Cart&, shop::Cart&)
core::iter::map::<alloc::vec::Vec<u8>>                      core::iter::map::<…>
std.algorithm.sort!("a < b", 0)                             std.algorithm.sort!(…)
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ftpatch.names.parameters import called_name, name_span

__all__ = ["fitted", "short_name", "without_arguments"]

SHORT = 6
"""Characters of arguments that are not worth leaving out."""
OPERATOR = re.compile(
    r"\boperator ?(<=>|<<=|>>=|->\*|<<|>>|->|[-<>=!+*/%^&|]=|&&|\|\||\+\+|--|[-<>=!+*/%^&|~,])"
)
OPENING = re.compile(r"<|!\(|\boperator")
"""Possible beginnings of arguments."""
NESTING = re.compile(r"->|[][(){}<>]|\boperator")
KINDS = ("thunk to ", " for ")
"""Words before a name that are no type: `non-virtual thunk to`, `transaction clone for`."""
BEFORE = "_:})]"
"""Characters before the arguments of a template, besides letters and digits; elsewhere ``<`` begins
a type of Rust's, as in ``<shop::Cart as Drop>::drop``."""


def short_name(name: str) -> str:
    """The name with an ellipsis for template arguments, and without what a template returns, which
    other functions' names do not have; as it is, where they do not end."""
    short = _replaced(name, _shortened)
    begin, _ = name_span(short)
    before, at = short[:begin], short[begin : begin + 2]
    is_type = not before.endswith(KINDS) and "operator" not in before and at != "(*"
    return short[begin:] if is_type else short


def fitted(name: str, room: int) -> str:
    """A name that ``short_name`` has made, in at most ``room`` columns: without what a template
    returns and the parameters, and then without the outer namespaces."""
    if len(name) <= room:
        return name
    plain = called_name(name)
    if plain != name and len(plain) + len("(…)") <= room:
        return f"{plain}(…)"
    if len(plain) <= room:
        return plain
    if "::" not in plain:
        return f"{plain[: room - 1]}…"
    left = plain[len(plain) - room + 1 :]
    at = left.find("::")
    return f"…{left[at:] if 0 <= at < len(left) // 2 else left}"


def without_arguments(name: str) -> str:
    """The name without template arguments; as it is, where they do not end. What follows a name of
    Rust's in colons has lost these, too: ``map`` of ``map::<u8>``."""
    return _replaced(name, lambda _: "").replace("::::", "::").removesuffix("::")


def _shortened(arguments: str) -> str:
    first = 1 + arguments.startswith("!")
    return (
        arguments if len(arguments) <= SHORT + first + 1 else f"{arguments[:first]}…{arguments[-1]}"
    )


def _replaced(name: str, put: Callable[[str], str]) -> str:
    """The name with something else for each ``<...>`` and ``!(...)``."""
    out: list[str] = []
    at = 0
    while found := OPENING.search(name, at):
        out.append(name[at : found.start()])
        at = found.start()
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
            out.append(put(name[at : last + 1]))
            at = last + 1
        elif not operator:
            out.append(found[0])
            at = found.end()
    return "".join(out) + name[at:]


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
    while found := NESTING.search(name, at):
        operator = OPERATOR.match(name, found.start())
        c = found[0]
        at = operator.end() if operator else found.end()
        if operator or len(c) > 1:
            continue
        if c == closing and not inner and not around:
            return found.start()
        if c in "([{":
            around += 1
        elif c in ")]}":
            around -= 1
        elif not around and opening == "<":
            inner += 1 if c == "<" else -1
    return -1
