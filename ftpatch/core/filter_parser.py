# SPDX-License-Identifier: MIT
"""The language of filters: that of the kernel's event filters (Documentation/trace/events.rst,
"Event filtering"). Values are compared with ``== != < <= > >= &``, strings with ``== != ~``, joined
by ``&& || !`` and parentheses; two tests count what reaches them:

    n > 3 && name ~ "lib*" && every(100)

A feature says what its values are, and may have further tests.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Generic, NoReturn, TypeVar

from ftpatch.core.filters import Compare, Count, Filter, Join, Not, Operand
from ftpatch.core.float_numbers import DECIMAL, rounded
from ftpatch.core.number_types import FLOATS, SIGNED, TYPES
from ftpatch.core.token import Token, read_number

__all__ = ["FilterParser", "Rest"]

TESTS = 64
"""Maximum number of comparisons."""
NESTED = 32
"""Maximum depth of parentheses and ``!``."""
TEXT = 62
"""Maximum length of a string to compare with (bytes): a recorded one's, and a NUL."""
COUNTED = (1 << 31) - 1
"""Maximum N of ``every(N)`` and ``first(N)``."""
NUMBERS = ("==", "!=", "<=", ">=", "<", ">", "&")
FLOATING = ("==", "!=", "<=", ">=", "<", ">")
STRINGS = ("==", "!=", "~")
_MARKS = re.compile(r"&&|\|\||[=!<>]=|[!<>&~()]")
_COUNT = re.compile(r"(every|first)\(\s*([^()]*?)\s*\)")
_UNWRITTEN = re.compile(r"[-+]?(?:nan|(inf)(?:inity)?)(?![\w.(\[]|->)", re.IGNORECASE)
"""Floats that have no digits."""
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'')
_NUMBER = re.compile(r"-?[0-9][\w.]*")


class Rest:
    """The part of a text that is not parsed yet."""

    def __init__(self, whole: Token) -> None:
        self._whole, self._at = whole, 0
        self._skip()

    @property
    def text(self) -> str:
        """It, without the white space before it."""
        return self._whole.text[self._at :]

    def take(self, length: int) -> Token:
        """Take so many characters of it."""
        token = self._whole.cut(self._at, self._at + length)
        self._at += length
        self._skip()
        return token

    def refuse_at(self, clause: str, hint: str) -> NoReturn:
        """Raise UsageError for what stands here."""
        raise self._whole.cut(self._at).refuse(clause, hint)

    def _skip(self) -> None:
        self._at = len(self._whole.text) - len(self.text.lstrip())


Value = TypeVar("Value", bound=Operand)
Own = TypeVar("Own")


@dataclass(frozen=True)
class _Side(Generic[Value]):
    """A side of a comparison, where it stands."""

    token: Token
    value: Value | int | float | bytes


class FilterParser(Generic[Value, Own]):
    """Parses a filter whose values are of class ``kind``; ``Own`` are the feature's own tests."""

    event = "an event"
    """The owner of the filter, in messages."""
    form = "compare values, as in n > 3, joined by && and ||"
    example = "n > 3"
    textual = ""
    """The way to make a string of the value ``{}``."""
    typed = ""
    """The way to give a value the type of a float."""

    def __init__(self, text: Token, kind: type[Value]) -> None:
        self.rest = Rest(text)
        self._kind = kind
        self._tests = 0
        self._counts: set[str] = set()

    def parse(self) -> Filter[Compare[Value] | Own]:
        """Parse all of it. Raises UsageError, which names the offending token and its column."""
        found = self._either(0)
        if self.rest.text:
            self.rest.refuse_at("the filter goes on behind its end", self.form)
        return found

    def own_test(self) -> Own | None:
        """Take a test of the feature's own from what is left; None if none begins there."""
        return None

    def value(self) -> tuple[Token, Value]:
        """Take a value from what is left, which is not empty."""
        raise NotImplementedError

    def _refuse_unwritten(self, found: re.Match[str]) -> NoReturn:
        """Raise UsageError for a float without digits that no value has for a name."""
        token = self.rest.take(found.end())
        if found[1]:
            hint = "compare it with the greatest number, as in x > 1.7976931348623157e308"
            raise token.refuse("infinity is not written in a filter", hint)
        raise token.refuse("nothing compares with NaN", "write x != x, which is true for it")

    def _either(self, depth: int) -> Filter[Compare[Value] | Own]:
        parts = [self._both(depth)]
        while self._takes("||"):
            parts.append(self._both(depth))
        return parts[0] if len(parts) == 1 else Join("||", tuple(parts))

    def _both(self, depth: int) -> Filter[Compare[Value] | Own]:
        parts = [self._one(depth)]
        while self._takes("&&"):
            parts.append(self._one(depth))
        return parts[0] if len(parts) == 1 else Join("&&", tuple(parts))

    def _one(self, depth: int) -> Filter[Compare[Value] | Own]:
        if depth > NESTED:
            self.rest.refuse_at("the filter is too much nested", f"at most {NESTED} levels")
        if self._takes("!"):
            return Not(self._one(depth + 1))
        if self._takes("("):
            found = self._either(depth + 1)
            if not self._takes(")"):
                self.rest.refuse_at("a parenthesis of the filter is not closed", "add a `)`")
            return found
        self._tests += 1
        if self._tests > TESTS:
            self.rest.refuse_at("the filter is too long", f"at most {TESTS} comparisons")
        if count := _COUNT.match(self.rest.text):
            return self._count(self.rest.take(count.end()), count[1], count[2])
        own = self.own_test()
        return self._compared() if own is None else own

    def _count(self, token: Token, which: str, number: str) -> Count:
        most = read_number(number)
        if not most or most > COUNTED:
            raise token.refuse(f"invalid number of {which}()", f"1 to {COUNTED}")
        if which in self._counts:
            raise token.refuse(f"{which}() is used twice", f"{self.event} can have one of these")
        self._counts.add(which)
        return Count("every" if which == "every" else "first", most)

    def _compared(self) -> Compare[Value]:
        left = self._side()
        if not isinstance(left.value, self._kind):
            raise left.token.refuse("a comparison begins with a value", f"as in {self.example}")
        mark = _MARKS.match(self.rest.text)
        if mark is None or mark[0] not in {*NUMBERS, *STRINGS}:
            if left.value.type == "string":
                raise left.token.refuse("a string is compared", 'use == "TEXT" or ~ "GLOB"')
            return Compare(left.value, "!=", 0.0 if left.value.type in FLOATS else 0)
        sign = self.rest.take(mark.end())
        right = self._side()
        if left.value.type == "string":
            return self._strings(left.value, sign, right)
        if left.value.type in FLOATS:
            return self._floats(left.value, sign, right)
        return self._numbers(left.value, sign, right)

    def _takes(self, mark: str) -> bool:
        found = _MARKS.match(self.rest.text)
        if found is None or found[0] != mark:
            return False
        self.rest.take(len(mark))
        return True

    def _side(self) -> _Side[Value]:
        text = self.rest.text
        if not text:
            self.rest.refuse_at("the filter ends too early", self.form)
        if quoted := _TEXT.match(text):
            token = self.rest.take(quoted.end())
            return _Side(token, _unquoted(token, quoted[1] if quoted[1] is not None else quoted[2]))
        if decimal := DECIMAL.match(text):
            token = self.rest.take(decimal.end())
            return _Side(token, float(token.text))
        number = _NUMBER.match(text)
        if number and text[number.end() : number.end() + 1] != "(":
            token = self.rest.take(number.end())
            value = read_number(token.text.removeprefix("-"))
            if value is None:
                raise token.refuse("invalid number", "use a 64-bit number")
            return _Side(token, -value if token.text[0] == "-" else value)
        unwritten = _UNWRITTEN.match(text)
        if unwritten and not self.is_value(unwritten[0]):
            self._refuse_unwritten(unwritten)
        return _Side(*self.value())

    def is_value(self, name: str) -> bool:
        """Test for a value that has this name, which would be a float without digits otherwise."""
        return False

    def _strings(self, left: Value, sign: Token, right: _Side[Value]) -> Compare[Value]:
        if sign.text not in STRINGS:
            raise sign.refuse("strings have no order", f"use one of {' '.join(STRINGS)}")
        if not isinstance(right.value, bytes):
            hint = f'as in {left.name} == "x"'
            raise right.token.refuse("a string is compared with a text", hint)
        if len(right.value) > TEXT:
            raise right.token.refuse("the text is too long", f"at most {TEXT} bytes")
        return Compare(left, sign.text, right.value)

    def _floats(self, left: Value, sign: Token, right: _Side[Value]) -> Compare[Value]:
        """Numbers are rounded to the value's type."""
        value = right.value
        if sign.text not in FLOATING:
            raise sign.refuse("floats have no bits to test", f"use one of {' '.join(FLOATING)}")
        if isinstance(value, bytes):
            hint = "write it without quotes"
            raise right.token.refuse("a number is compared with a number", hint)
        if not isinstance(value, self._kind):
            return Compare(left, sign.text, rounded(right.token, left.type))
        if value.type != left.type:
            raise right.token.refuse(f"it is no {left.type}", "give both the same type")
        return Compare(left, sign.text, value)

    def _numbers(self, left: Value, sign: Token, right: _Side[Value]) -> Compare[Value]:
        textual = self.textual.format(left.name)
        if sign.text not in NUMBERS:
            hint = textual and f"make it one, as in {textual}"
            raise sign.refuse("only strings are compared with ~", hint)
        value = right.value
        if isinstance(value, bytes):
            hint = f"make {left.name} a string, as in {textual}" if textual else ""
            hint = hint or "write it without quotes"
            raise right.token.refuse("a number is compared with a number", hint)
        if isinstance(value, float):
            raise right.token.refuse("an integer is compared with integers", self.typed)
        bits, signed = TYPES[left.type] * 8, left.type in SIGNED
        if isinstance(value, self._kind):
            if value.type == "string":
                raise right.token.refuse("a number is compared with a number", "fetch one")
            if value.type in FLOATS:
                raise right.token.refuse("an integer is compared with integers", self.typed)
            other = value.type in SIGNED
            if other != signed and sign.text not in ("==", "!=", "&"):
                hint = "give both types with a sign, or both without"
                raise sign.refuse("a signed and an unsigned value have no order", hint)
            return Compare(left, sign.text, value)
        assert isinstance(value, int)
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
