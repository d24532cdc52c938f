# SPDX-License-Identifier: MIT
"""Words behind a type: the names of its values, or the bytes that a string can have.

    color=+4(%rdi):u32{0=RED,1=GREEN}   best=%rdi:u64{0=None,*=Some}   name=+8(%rdi):string{16}

Debug information tells them when the probe is made. They are part of its text, so that a report
needs no debug information.
"""

from __future__ import annotations

import re

from ftpatch.core.token import Token
from ftpatch.probe.definition import TYPES, Fetch

__all__ = ["MAX_NAMES", "parse_shown", "shown_text"]

MAX_NAMES = 256
"""Of one type; of one that has more, values are numbers."""
_SHOWN = re.compile(r"([^{}]*)\{([^{}]*)\}")
_NAME = re.compile(r"(-?[0-9]{1,20}|\*)=(\w+)")
OTHER = "*"
"""Stands for all values that have no name of their own."""


def parse_shown(type: Token) -> tuple[Token, tuple[tuple[int, str], ...], int, str]:
    """Split a type from what stands behind it: names by value, the room of a string, and the name
    of all other values. Raises UsageError."""
    found = _SHOWN.fullmatch(type.text)
    if found is None:
        return type, (), 0, ""
    bare, inside = type.cut(0, found.end(1)), type.cut(*found.span(2))
    if bare.text == "string":
        if not re.fullmatch(r"[1-9][0-9]{0,8}", inside.text):
            raise inside.refuse("invalid size of a string", "a number of bytes")
        return bare, (), int(inside.text), ""
    parts = [_NAME.fullmatch(part) for part in inside.text.split(",")]
    names = tuple((int(part[1]), part[2]) for part in parts if part and part[1] != OTHER)
    others = [part[2] for part in parts if part and part[1] == OTHER]
    known = names and bare.text[:1] in ("u", "s") and bare.text in TYPES
    if not known or len(names) + len(others[:1]) < len(parts):
        raise inside.refuse("invalid names of values", "as in u32{0=RED,1=GREEN}")
    return bare, names, 0, "".join(others)


def shown_text(fetch: Fetch) -> str:
    """The words behind the type of a fetch."""
    if fetch.room:
        return f"{{{fetch.room}}}"
    shown = [(str(value), name) for value, name in fetch.names]
    shown += [(OTHER, fetch.other)] if fetch.other else []
    names = ",".join(f"{value}={name}" for value, name in shown)
    return f"{{{names}}}" if names else ""
