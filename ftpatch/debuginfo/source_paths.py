# SPDX-License-Identifier: MIT
"""Paths of functions in the source, which tell apart what has one name in the symbol table.

Rust's legacy names leave out the arguments of generic functions and the numbers of closures:

    symbol, demangled           shop::most            shop::main::{{closure}}
    path in debug information   shop::most<i32>       shop::main::{closure#0}
    written                     shop::most::<i32>     shop::main::{closure#0}

What stands around an impl is ``{impl#N}`` there, whatever it is of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ftpatch.debuginfo.dies import DIE, children, name_of, origins_of
from ftpatch.names.short_names import without_arguments

__all__ = ["is_path", "path_of", "symbols_for"]

MAX_DEPTH = 256
"""DIEs within one another."""
IMPL = re.compile(r"\{impl#\d+\}")
CLOSURE = re.compile(r"\{closure#\d+\}")
BRACKETS = {"<": 1, "(": 1, "[": 1, "{": 1, ">": -1, ")": -1, "]": -1, "}": -1}


def path_of(die: DIE) -> str:
    """The path of a function in the source: the names of all that is around its declaration, and
    its own."""
    declared = origins_of(die)[-1]
    names = [name_of(one) for one in _around(declared)]
    return "::".join([*filter(None, names), name_of(declared)])


def is_path(written: str, path: str) -> bool:
    """Test whether a path is what is written, by their last parts, back to an impl. Arguments and
    numbers that are not written may be any."""
    mine, theirs = _parts(written), _parts(path)
    for want, have in zip(reversed(mine), reversed(theirs), strict=False):
        if IMPL.fullmatch(have) or want.startswith("<"):
            break
        open_ = "<" not in want and want == without_arguments(have)
        if want != have and not open_ and not (want == "{{closure}}" and CLOSURE.fullmatch(have)):
            return False
    return True


def symbols_for(written: str) -> set[str]:
    """The names that the symbol table may have for what is written."""
    legacy = CLOSURE.sub("{{closure}}", written)
    return {written, legacy, without_arguments(legacy)}


def _parts(name: str) -> list[str]:
    """The parts of a path, without spaces, and with arguments as debug information has them."""
    parts, depth, before = [""], 0, ""
    for char in name.replace(" ", "").replace("::<", "<"):
        depth += 0 if before + char == "->" else BRACKETS.get(char, 0)
        before = char
        if char == ":" and not depth:
            if parts[-1]:
                parts.append("")
        else:
            parts[-1] += char
    return parts


def _around(die: DIE) -> Iterator[DIE]:
    """The DIEs around one, outermost first, but for the unit."""
    at = die.cu.get_top_DIE()
    for _ in range(MAX_DEPTH):
        inner = None
        for child in children(at):
            if child.offset > die.offset:
                break
            inner = child
        if inner is None or inner.offset == die.offset:
            return
        yield inner
        at = inner
