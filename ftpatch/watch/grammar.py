# SPDX-License-Identifier: MIT
"""Requests to watch: ``SYMBOL[+OFFSET]:OPS`` of ksym_trace_filter, and ``w@SYMBOL[+OFFSET][:LEN]``.

For the first form, ``parse_ksym_trace_str`` in v2.6.33's kernel/trace/trace_ksym.c lists malformed
requests; the tracer answers EINVAL to all, here each has its own message. OPS are three characters
in fixed positions: ``r`` reads, ``w`` writes, ``x`` execution, ``-`` not. The second form is that
of the wprobe events proposed for the kernel (patches to Documentation/trace/wprobetrace.rst). In
both, SYMBOL may be a C++ name as in the source, which contains ``::``, or a link address, as for
wprobe events; members and elements may follow, as in ``carts[1].total``. ``LIB:`` before it
names a library.

Behind either form may be words of a probe: ``stack[(DEPTH)]`` and ``if FILTER``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ftpatch.core.stack_word import is_stack, read_stack
from ftpatch.core.token import SYMBOL, Token, read_number, words_of
from ftpatch.debuginfo.source_names import splits
from ftpatch.errors import UsageError

__all__ = ["ADDRESS", "CLEAR", "EVERY", "LENGTHS", "Request", "parse_watch"]

CLEAR = "---"
"""The type of a request to stop watching."""
EVERY = "*"
"""The symbol of a request to clear all watches: ``*:---``."""
LENGTHS = (1, 2, 4, 8)
"""Lengths that a breakpoint may watch: the LENn fields of DR7 (SDM vol. 3, section 18.2.4)."""
PLACES = "rwx"
_FORM = "use SYMBOL:rw-, SYMBOL:-w- or w@SYMBOL"
_TODAY = re.compile(r"([rwx-]*|[^@:]{1,3}(?=@[^:]*(:[0-9]*)?\Z))@")
"""The second form's prefix. Symbol names may contain ``@`` too, as in ``environ@GLIBC_2.2.5``, but
they do not consist of these letters alone, and no number follows the colon."""
_COLON = re.compile(r"(?<!:)(?<!\[abi):(?!:)")
"""The separator; in ``shop::names[abi:cxx11]`` no colon is one."""
_LIBRARY = re.compile(r"[^:@]*[./][^:@]*")
"""A library's path, file name or DT_SONAME: a dot or a slash is in each."""
ADDRESS = re.compile(r"0[xX][0-9a-fA-F]{1,16}")
"""A link address in place of a symbol."""
_CPP = re.compile(r"(?=.*[:<\[(])(?:[^\W\d]|\()[^+%=]*")
"""A C++ name, such as ``(anonymous namespace)::cart<int>::total`` or ``sell(int)::calls``."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request: ``offset`` and ``length`` in bytes, None for a length not given; ``type`` is
    ``rw-``, ``-w-`` or ``r--``, or ``---``, which clears; ``library`` that has the symbol, by a
    name of it, empty for the program; ``filter``: what stands behind ``if``;
    ``stack``: how many of the calls that led there are recorded."""

    symbol: str
    offset: int
    length: int | None
    type: str
    library: str = ""
    filter: Token | None = None
    stack: int = 0

    @property
    def place(self) -> str:
        """The symbol, with its library."""
        return f"{self.library}:{self.symbol}" if self.library else self.symbol


def parse_watch(text: str) -> Request:
    """Parse a request. Raises UsageError with the rule that the text breaks."""
    whole = Token.of(text)
    if not whole.text:
        raise UsageError(None, "empty request", _FORM)
    words = words_of(whole.text)
    ends = [word.start for word in words[1:] if word.text == "if" or is_stack(word)]
    if not ends:
        return _place(whole)
    place = whole.cut(0, len(whole.text[: ends[0]].rstrip()))
    found = _place(place)
    stack, filter = _behind(whole, [word for word in words if word.start >= ends[0]])
    if found.type == CLEAR:
        raise whole.cut(ends[0]).refuse("what is cleared records nothing", f"write {place.text}")
    return replace(found, stack=stack, filter=filter)


def _behind(whole: Token, words: Sequence[Token]) -> tuple[int, Token | None]:
    """The depth of stacks, 0 for none, and the filter, behind place and type."""
    depth = 0
    for word in words:
        if word.text == "if":
            filter = whole.cut(word.stop)
            filter = filter.cut(len(filter.text) - len(filter.text.lstrip()))
            if not filter.text:
                raise word.refuse("no filter behind it", "as in if new < 10")
            if not filter.text.isprintable():
                raise filter.refuse("characters that cannot be printed", "leave them out")
            return depth, filter
        if not is_stack(word):
            raise word.refuse("neither stack nor if", "as in stock:rw- stack if new < 10")
        if depth:
            raise word.refuse("stack is given twice", "leave one out")
        stack = read_stack(word)
        if stack.frames:
            hint = "write stack, or stack(DEPTH)"
            raise word.refuse("stacks of watches are unwound, not walked", hint)
        depth = stack.depth
    return depth, None


def _place(whole: Token) -> Request:
    """Parse place and type."""
    if whole.text == f"{EVERY}:{CLEAR}":
        return Request(EVERY, 0, None, CLEAR)
    today = _TODAY.match(whole.text)
    place = whole.cut(today.end()) if today else whole
    library, place = _library(place, given=1 - bool(today))
    colons = [found.start() for found in _COLON.finditer(place.text)]
    if len(colons) > 1:
        hint = "`:` separates the symbol from the operators"
        raise place.cut(colons[1]).refuse("more than one `:`", hint)
    last = place.cut(colons[0] + 1) if colons else None
    name = place.cut(0, colons[0]) if colons else place
    if today:
        type = _prefix(whole.cut(0, today.end() - 1))
        return Request(*_symbol(name), _length(last), type, library)
    if last is None:
        raise whole.refuse("no `:` in the request", _FORM)
    type = _operators(last)
    return Request(*_symbol(name), None, type, library)


def _library(place: Token, *, given: int) -> tuple[str, Token]:
    """The library before a symbol, and the rest. ``given``: colons that have to follow; behind a
    symbol, a number is a length."""
    colons = [found.start() for found in _COLON.finditer(place.text)]
    if not given and colons and read_number(place.text[colons[-1] + 1 :]) is not None:
        given = 1
    if len(colons) != given + 1 or not _LIBRARY.fullmatch(place.text[: colons[0]]):
        return "", place
    return place.text[: colons[0]], place.cut(colons[0] + 1)


def _symbol(place: Token) -> tuple[str, int]:
    """Symbol and offset (bytes)."""
    name, plus, digits = place.text.partition("+")
    if not name:
        raise place.refuse("no symbol in the request", _FORM)
    whole = place.cut(0, len(name))
    begins = [one.name.text for one in splits(whole)[-1:]]
    known = any(form.fullmatch(one) for one in (name, *begins) for form in (SYMBOL, ADDRESS, _CPP))
    if not known or not name.isprintable():
        hint = "use SYMBOL or SYMBOL+OFFSET"
        raise whole.refuse("invalid symbol", hint)
    offset = read_number(digits) if plus else 0
    if offset is None:
        hint = "use a number of bytes, as in table+16"
        raise place.cut(len(name) + 1).refuse("invalid offset", hint)
    return name, offset


def _length(token: Token | None) -> int | None:
    length = read_number(token.text) if token else None
    if token and length not in LENGTHS:
        raise token.refuse("invalid length", "use 1, 2, 4 or 8 bytes")
    return length


def _operators(token: Token) -> str:
    """Validate OPS."""
    text = token.text
    _check_letters(token, PLACES + "-")
    if len(text) < len(PLACES):
        hint = "use three characters, such as rw- or -w-, or --- to clear"
        raise token.refuse("missing operator", hint)
    if len(text) > len(PLACES):
        raise token.refuse("too many operators", "use rw- or -w-")
    for i, (letter, own) in enumerate(zip(text, PLACES, strict=True)):
        if letter not in (own, "-"):
            hint = "r comes first, w second, x third"
            raise token.cut(i, i + 1).refuse("misplaced operator", hint)
    _check_execution(token)
    return text


def _prefix(token: Token) -> str:
    """The type in the second form's prefix."""
    if not token.text:
        raise token.refuse("no type before the `@`", "use r@, w@ or rw@")
    _check_letters(token, PLACES)
    _check_execution(token)
    if token.text == "wr":
        raise token.refuse("misplaced operator", "write rw@")
    return "".join(letter if letter in token.text else "-" for letter in PLACES)


def _check_letters(token: Token, known: str) -> None:
    """Raise UsageError for an unknown or repeated letter."""
    for i, letter in enumerate(token.text):
        if letter not in known:
            raise token.cut(i, i + 1).refuse("unknown operator", f"one of {' '.join(known)}")
        if letter != "-" and letter in token.text[:i]:
            raise token.cut(i, i + 1).refuse("repeated operator", "use each at most once")


def _check_execution(token: Token) -> None:
    at = token.text.find("x")
    if at >= 0:
        raise token.cut(at, at + 1).refuse(
            "execution cannot be watched", "trace the function, or set a probe"
        )
