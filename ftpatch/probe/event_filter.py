# SPDX-License-Identifier: MIT
"""The filter of a probe, behind ``if``: which of its hits are recorded.

The language is that of the kernel's event filters (Documentation/trace/events.rst, "Event
filtering"): fields compared with ``== != < <= > >= &``, strings with ``== != ~``, joined by ``&&
|| !`` and parentheses. Beside fields there are all values that a probe can fetch, ``$tid``, and two
tests that count what reaches them:

    if n > 3 && name ~ "lib*" && every(100)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

from ftpatch.core.token import Token, read_number
from ftpatch.names.suggest import meant, near
from ftpatch.probe.definition import SIGNED, TYPES, Compare, Count, Fetch, Filter, Join, Not, Source
from ftpatch.probe.fetches import Scope, parse_fetch

__all__ = ["parse_filter"]

TESTS = 64
"""Maximum number of comparisons."""
NESTED = 32
"""Maximum depth of parentheses and ``!``."""
TEXT = 62
"""Maximum length of a string to compare with (bytes): a recorded one's, and a NUL."""
COUNTED = (1 << 31) - 1
"""Maximum N of ``every(N)`` and ``first(N)``."""
TID = "$tid"
NUMBERS = ("==", "!=", "<=", ">=", "<", ">", "&")
STRINGS = ("==", "!=", "~")
WIDE = 8
"""Bytes of a register."""
_MARKS = re.compile(r"&&|\|\||[=!<>]=|[!<>&~()]")
_COUNT = re.compile(r"(every|first)\(\s*(\w+)\s*\)")
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'')
_NUMBER = re.compile(r"-?[0-9]\w*")
_NAME = re.compile(r"[^\W\d]\w*(?:(?:->|\.)\w+|\[\w+\])*")
_ENDS = frozenset("=!<>&|~")
_FORM = "compare values, as in n > 3, joined by && and ||"


def parse_filter(text: Token, fetches: Mapping[str, Fetch], scope: Scope) -> Filter:
    """Parse what follows ``if``. ``fetches``: the probe's fields by name. Raises UsageError, which
    names the offending token and its column."""
    parser = _Parser(text, fetches, scope)
    found = parser.either(0)
    if parser.rest.text:
        parser.rest.refuse_at("the filter goes on behind its end", _FORM)
    return found


class _Rest:
    """What is left of a text."""

    def __init__(self, whole: Token) -> None:
        self._whole, self._at = whole, 0
        self._skip()

    @property
    def text(self) -> str:
        return self._whole.text[self._at :]

    def take(self, length: int) -> Token:
        token = self._whole.cut(self._at, self._at + length)
        self._at += length
        self._skip()
        return token

    def refuse_at(self, clause: str, hint: str) -> NoReturn:
        raise self._whole.cut(self._at).refuse(clause, hint)

    def _skip(self) -> None:
        self._at = len(self._whole.text) - len(self.text.lstrip())


@dataclass(frozen=True)
class _Side:
    """A side of a comparison, where it stands."""

    token: Token
    value: Fetch | int | bytes


class _Parser:
    def __init__(self, text: Token, fetches: Mapping[str, Fetch], scope: Scope) -> None:
        self.rest = _Rest(text)
        self._fetches, self._scope = fetches, scope
        self._tests = 0
        self._counts: set[str] = set()

    def either(self, depth: int) -> Filter:
        parts = [self._both(depth)]
        while self._takes("||"):
            parts.append(self._both(depth))
        return parts[0] if len(parts) == 1 else Join("||", tuple(parts))

    def _both(self, depth: int) -> Filter:
        parts = [self._one(depth)]
        while self._takes("&&"):
            parts.append(self._one(depth))
        return parts[0] if len(parts) == 1 else Join("&&", tuple(parts))

    def _one(self, depth: int) -> Filter:
        if depth > NESTED:
            self.rest.refuse_at("the filter is too much nested", f"at most {NESTED} levels")
        if self._takes("!"):
            return Not(self._one(depth + 1))
        if self._takes("("):
            found = self.either(depth + 1)
            if not self._takes(")"):
                self.rest.refuse_at("a parenthesis of the filter is not closed", "add a `)`")
            return found
        self._tests += 1
        if self._tests > TESTS:
            self.rest.refuse_at("the filter is too long", f"at most {TESTS} comparisons")
        if count := _COUNT.match(self.rest.text):
            return self._count(self.rest.take(count.end()), count[1], count[2])
        return self._compared()

    def _count(self, token: Token, which: str, number: str) -> Count:
        most = read_number(number)
        if not most or most > COUNTED:
            raise token.refuse(f"invalid number of {which}()", f"1 to {COUNTED}")
        if which in self._counts:
            raise token.refuse(f"{which}() is used twice", "a probe can have one of these")
        self._counts.add(which)
        return Count("every" if which == "every" else "first", most)

    def _compared(self) -> Compare:
        left = self._side()
        if not isinstance(left.value, Fetch):
            raise left.token.refuse("a comparison begins with a value", "as in n > 3")
        mark = _MARKS.match(self.rest.text)
        if mark is None or mark[0] not in {*NUMBERS, *STRINGS}:
            if left.value.type == "string":
                raise left.token.refuse("a string is compared", 'use == "TEXT" or ~ "GLOB"')
            return Compare(left.value, "!=", 0)
        sign = self.rest.take(mark.end())
        right = self._side()
        if left.value.type == "string":
            return _strings(left.value, sign, right)
        return _numbers(left.value, sign, right)

    def _takes(self, mark: str) -> bool:
        found = _MARKS.match(self.rest.text)
        if found is None or found[0] != mark:
            return False
        self.rest.take(len(mark))
        return True

    def _side(self) -> _Side:
        text = self.rest.text
        if not text:
            self.rest.refuse_at("the filter ends too early", _FORM)
        if quoted := _TEXT.match(text):
            token = self.rest.take(quoted.end())
            return _Side(token, _unquoted(token, quoted[1] if quoted[1] is not None else quoted[2]))
        number = _NUMBER.match(text)
        if number and text[number.end() : number.end() + 1] != "(":
            token = self.rest.take(number.end())
            value = read_number(token.text.removeprefix("-"))
            if value is None:
                raise token.refuse("invalid number", "use a 64-bit number")
            return _Side(token, -value if token.text[0] == "-" else value)
        if text[0] in "+-$%@\\":
            token = self.rest.take(_end(text))
            return _Side(token, self._fetched(token))
        named = _NAME.match(text)
        if named is None:
            self.rest.refuse_at("no value", _FORM)
        token = self.rest.take(named.end())
        fetch = self._fetches.get(token.text)
        if fetch is None:
            like = near(token.text, list(self._fetches))
            if self._scope.named is None or like:
                hint = meant(like, "name a value of the probe")
                raise token.refuse("the probe has no such value", hint)
            found = self._scope.named(token, None)
            fetch = replace(found, name=token.text, names=(), room=0)
        return _Side(token, _comparable(token, fetch))

    def _fetched(self, token: Token) -> Fetch:
        bare, colon, type = token.text.partition(":")
        if bare == TID:
            if colon and TYPES.get(type) != WIDE // 2:
                raise token.refuse(f"{TID} is a number of 32 bits", f"write {TID}")
            return Fetch(TID, Source.TID, type="s32")
        return _comparable(token, parse_fetch(token, 1, self._scope))


def _comparable(token: Token, fetch: Fetch) -> Fetch:
    if fetch.source is Source.COMM:
        raise token.refuse("$comm is not known when a probe is hit", f"compare {TID}")
    return fetch


def _end(text: str) -> int:
    """Where a fetch ends: before a blank, an operator, or a parenthesis that it did not open."""
    depth = 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth < 0 or (at and (char.isspace() or char in _ENDS) and not depth):
            return at
    return len(text)


def _strings(left: Fetch, sign: Token, right: _Side) -> Compare:
    if sign.text not in STRINGS:
        raise sign.refuse("strings have no order", f"use one of {' '.join(STRINGS)}")
    if not isinstance(right.value, bytes):
        raise right.token.refuse("a string is compared with a text", f'as in {left.name} == "x"')
    if len(right.value) > TEXT:
        raise right.token.refuse("the text is too long", f"at most {TEXT} bytes")
    return Compare(left, sign.text, right.value)


def _numbers(left: Fetch, sign: Token, right: _Side) -> Compare:
    if sign.text not in NUMBERS:
        hint = f"make it one, as in {left.name}=+0($arg1):string"
        raise sign.refuse("only strings are compared with ~", hint)
    value = right.value
    if isinstance(value, bytes):
        hint = f"make {left.name} a string, as in {left.name}=+0($arg1):string"
        raise right.token.refuse("a number is compared with a number", hint)
    bits, signed = TYPES[left.type] * 8, left.type in SIGNED
    if isinstance(value, Fetch):
        if value.type == "string":
            raise right.token.refuse("a number is compared with a number", "fetch one")
        other = value.type in SIGNED
        if other != signed and sign.text not in ("==", "!=", "&"):
            hint = "give both types with a sign, or both without"
            raise sign.refuse("a signed and an unsigned value have no order", hint)
        return Compare(left, sign.text, value)
    low = -(1 << (bits - 1))
    high = (1 << (bits - 1 if signed else bits)) - 1
    if not signed and low <= value < 0 and sign.text in ("==", "!="):
        value += 1 << bits  # the same bits
    if not (low if signed else 0) <= value <= high:
        hint = f"{left.type} holds {low if signed else 0} to {high}"
        raise right.token.refuse("it can never be that", hint)
    return Compare(left, sign.text, value)


def _unquoted(token: Token, text: str) -> bytes:
    out = re.sub(r"\\(.)", r"\1", text).encode("utf-8", "surrogateescape")
    if b"\0" in out:
        raise token.refuse("a text has no NUL", "leave it out")
    return out
