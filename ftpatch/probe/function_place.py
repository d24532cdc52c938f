# SPDX-License-Identifier: MIT
"""Places as probes name them: functions, offsets in these, addresses; and the function that a
filter's ``within()`` names.

sell    sell+4    shop::Cart::add(int)    0x11b0    libc.so.6:malloc
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from ftpatch.core.token import SYMBOL, Token, read_number
from ftpatch.names.spelling import is_glob
from ftpatch.probe.definition import Within
from ftpatch.probe.event_names import Pattern

__all__ = ["LIBRARY", "LINE", "WITHIN", "is_library", "is_wild", "parse_place", "parse_within"]

OFFSET_LIMIT = (1 << 32) - 1
"""Maximum offset from a function's start in bytes: UINT_MAX in ``trace_kprobe_create``."""
RETURN = "%return"
LINE = re.compile(r"(?:([^:()<>%\s]+):)?([^:()<>%\s]+):([1-9][0-9]*)")
"""A place in the source, ``src/cart.c:120``; of a library, behind its name."""
CPP = re.compile(r"(?=.*(::|[<(]))[^\W\d(].*|\(anonymous.*|<.*>::.*")
"""A name as written in C++ and Rust: ``shop::Cart::add``, ``max<int>(int,int)``, ``<shop::Cart as
Drop>::drop``."""
LIBRARY = re.compile(r"([^:()<>%\s]+):(?!:)")
"""The library before a function, as uprobe_events have PATH:OFFSET."""
WITHIN = re.compile(r"\b(?P<word>within)\s*\(")
"""The test of a filter, up to its function."""
POINTER = re.compile(r"(?<=[\w>*&]) ?\*(?=\s*(?:[,)*&>]|const\b))")
"""In parentheses: the `*` of a type."""
_PARAMETERS = re.compile(r"(?<=[\w>\])])\([^()]+\)")
_FORM = "as in within(main)"


def is_wild(text: str) -> bool:
    """Test whether a FUNC is a wildcard. In a C++ name's parameters, the `*` behind a type is that
    of a pointer."""
    if CPP.fullmatch(text):
        text = _PARAMETERS.sub(lambda found: POINTER.sub("", found[0]), text)
    return is_glob(text)


def is_library(name: str, names: Collection[str], path: Path) -> bool:
    """Test whether a probe means a library by its ``name``: one of ``names``, or a path, from the
    current directory on if it is relative, to the file at ``path``."""
    if name in names or name == str(path):
        return True
    if "/" not in name:
        return False
    try:
        return Path(name).resolve() == path.resolve() or Path(name).samefile(path)
    except OSError:
        return False


def parse_place(
    word: Token, returns: bool, pattern: Pattern
) -> tuple[bool, str | None, int, int | None]:
    """Parse the location: whether it is at a return, symbol (or ``pattern``), offset, address.
    Raises UsageError."""
    percent = word.text.find("%")
    if percent >= 0:
        if word.text[percent:] != RETURN:
            raise word.cut(percent).refuse(
                "invalid probed address suffix", f"the only one is {RETURN}"
            )
        returns = True
    place = word.cut(0, percent) if percent >= 0 else word
    address = read_number(place.text)
    if address is not None:
        return returns, None, 0, address
    if pattern is Pattern.REGEX and place.text.isprintable():
        return returns, place.text, 0, None
    free = CPP.fullmatch(place.text) or (pattern is Pattern.GLOB and is_wild(place.text))
    sign = re.search(r"\+(?=\w*$)" if free else r"[+-]", place.text)
    symbol = place.text[: sign.start()] if sign else place.text
    if not (free and symbol.isprintable()) and not SYMBOL.fullmatch(symbol):
        hint = "use FUNC, FUNC+OFFSET or 0xADDRESS"
        raise place.refuse("invalid probed address or symbol", hint)
    offset = read_number(place.text[sign.end() :]) if sign else 0
    if offset is None or offset > OFFSET_LIMIT or (sign and sign[0] == "-"):
        hint = "use a 32-bit offset after the `+`"
        raise place.refuse("invalid probed address or symbol", hint)
    if returns and offset:
        raise place.refuse("retprobe address must be a function entry", f"write {symbol}")
    return returns, symbol, offset, None


def parse_within(word: Token) -> Within:
    """Parse the parentheses of ``within(FUNC)`` and what is between them. Raises UsageError."""
    inner = word.cut(1, len(word.text) - 1)
    text = inner.text
    inner = inner.cut(len(text) - len(text.lstrip()), len(text.rstrip()))
    if not inner.text:
        raise word.refuse("no function in within()", _FORM)
    library = LIBRARY.match(inner.text)
    place = inner.cut(library.end()) if library else inner
    if LINE.fullmatch(inner.text):
        raise inner.refuse("within() takes a function, not a line", _FORM)
    if is_glob(place.text) and not CPP.fullmatch(place.text):
        raise inner.refuse("within() takes one function, not a wildcard", _FORM)
    returns, symbol, offset, address = parse_place(place, False, Pattern.NONE)
    if returns or offset:
        raise inner.refuse("within() takes a function, not a place in it", f"write {symbol}")
    return Within(symbol, address or 0, library[1] if library else "", inner)
