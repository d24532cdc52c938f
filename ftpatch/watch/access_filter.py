# SPDX-License-Identifier: MIT
"""The filter of a watch, behind ``if``: which accesses are recorded.

    if new < 10    if old != new && tid == 1234    if func != sell && every(100)

Its words are what the runtime knows at an access (enum watch_word of stubs/runtime/watch.h).
Whether it reads or writes is not among them: only the code tells, when it is reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ftpatch.core.filter_parser import FilterParser
from ftpatch.core.filters import Compare
from ftpatch.core.number_types import FLOATS, SIGNED, TYPES
from ftpatch.core.token import Token
from ftpatch.errors import UsageError
from ftpatch.inject.filter_steps import filter_steps
from ftpatch.inject.runtime_steps import Row, Step, signed
from ftpatch.layout import constants
from ftpatch.names.suggest import meant, near

__all__ = ["MAX_STEPS", "Ranges", "Values", "filter_rows"]

WIDE = 8
"""Bytes of a word."""
MAX_STEPS = constants["WATCH_STEPS"]
OLD, NEW, IP, TID = (constants[f"WORD_{name}"] for name in ("OLD", "NEW", "IP", "TID"))
VALUES = {"old": OLD, "new": NEW}
KNOWN = ("old", "new", "tid", "func")
NUMBERS = {*SIGNED, *FLOATS, *(f"{letter}{bits}" for letter in "ux" for bits in (8, 16, 32, 64))}
ONLY_FUNC = "as in func == sell or func != sell"
OTHERS = {
    "comm": ("the thread's name is not known at an access", "compare tid"),
    "access": ("the processor does not say whether it reads or writes", "write old != new"),
    "type": ("the processor does not say whether it reads or writes", "write old != new"),
    "ip": ("addresses are not compared", ONLY_FUNC),
}
_NAME = re.compile(r"\$?[^\W\d][\w.]*")
_TYPE = re.compile(r":(\w*)")
_FUNC = re.compile(r"func(?![\w.:$])")
_SIGN = re.compile(r"[=!<>]=|[<>&~]")
_QUOTED = re.compile(r'"([^"]*)"|\'([^\']*)\'')
_FUNCTION = re.compile(r"[^\s&|()!\"']+")

Ranges = Callable[[str], tuple[int, int]]
"""The first and last link address that an access of a function may be recorded at."""


@dataclass(frozen=True, kw_only=True)
class Values:
    """``old`` and ``new`` of a watch: their ``type``, unless the filter gives one, and the
    ``length`` of the variable (bytes)."""

    type: str
    length: int


@dataclass(frozen=True, slots=True)
class _Word:
    """A word of the runtime, ``above`` it so much that is compared."""

    name: str
    type: str
    number: int
    above: int = 0


def filter_rows(text: Token, values: Values, ranges: Ranges) -> tuple[Row, ...]:
    """Translate what follows ``if`` into the runtime's steps. Raises UsageError, which names the
    offending token and its column."""
    rows = filter_steps(_Parser(text, values, ranges).parse(), _load, lambda _: [])
    if len(rows) > MAX_STEPS:
        raise text.refuse("the filter is too long", f"it takes {len(rows)} steps of {MAX_STEPS}")
    return tuple(rows)


class _Parser(FilterParser[_Word, Compare[_Word]]):
    event = "a watch"
    form = "compare values, as in new < 10, joined by && and ||"
    example = "new < 10"
    typed = "a float has :f64 or :f32 behind it, as in new:f64"

    def __init__(self, text: Token, values: Values, ranges: Ranges) -> None:
        super().__init__(text, _Word)
        self._values, self._ranges = values, ranges

    def own_test(self) -> Compare[_Word] | None:
        """``func == NAME``: from its first address to its last."""
        if _FUNC.match(self.rest.text) is None:
            return None
        func = self.rest.take(len("func"))
        sign = _SIGN.match(self.rest.text)
        if sign is None:
            raise func.refuse("func is compared with a function", ONLY_FUNC)
        mark = self.rest.take(sign.end())
        if mark.text not in ("==", "!="):
            raise mark.refuse("functions have no order", ONLY_FUNC)
        name = self._function()
        try:
            low, high = self._ranges(name.text)
        except UsageError as error:
            raise name.refuse(error.reason, error.hint) from None
        inside = _Word("func", "u64", IP, -low)
        return Compare(inside, "<=" if mark.text == "==" else ">", high - low)

    def _function(self) -> Token:
        if quoted := _QUOTED.match(self.rest.text):
            return self.rest.take(quoted.end()).cut(1, quoted.end() - 1)
        found = _FUNCTION.match(self.rest.text)
        if found is None:
            self.rest.refuse_at("no function", ONLY_FUNC)
        return self.rest.take(found.end())

    def value(self) -> tuple[Token, _Word]:
        named = _NAME.match(self.rest.text)
        if named is None:
            self.rest.refuse_at("no value", self.form)
        behind = _TYPE.match(self.rest.text[named.end() :])
        token = self.rest.take(named.end() + (behind.end() if behind else 0))
        name = token.cut(0, named.end())
        type = token.cut(named.end() + 1) if behind else None
        return token, self._word(name, type)

    def _word(self, name: Token, type: Token | None) -> _Word:
        text = name.text.removeprefix("$")
        if text in VALUES:
            own = self._values.type if type is None else self._type(type)
            return _Word(name.text, own, VALUES[text])
        if text == "tid":
            if type is not None:
                raise type.refuse("tid is a number of 32 bits", "write tid")
            return _Word("tid", "s32", TID)
        if text == "func":
            raise name.refuse("func is compared with a function", ONLY_FUNC)
        if text in OTHERS:
            raise name.refuse(*OTHERS[text])
        hint = meant(near(text, list(KNOWN)), f"known are {', '.join(KNOWN)}")
        raise name.refuse("a watch has no such value", hint)

    def _type(self, token: Token) -> str:
        if token.text not in NUMBERS:
            raise token.refuse("invalid type", "u8 to u64, s8 to s64, f32 or f64")
        if TYPES[token.text] > self._values.length:
            bytes_ = self._values.length
            told = f"{bytes_} byte{'s' * (bytes_ != 1)}"
            raise token.refuse("more than is watched", f"that is {told}")
        return token.text


def _load(word: _Word) -> list[Row]:
    """The steps of a word; the last, which a filter leaves out, stores it."""
    moved = [(Step.PLUS, 0, signed(word.above))] if word.above else []
    return [(Step.REGISTER, word.number, 0), *moved, (Step.STORE, WIDE, 0)]
