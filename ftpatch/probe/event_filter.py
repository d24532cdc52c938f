# SPDX-License-Identifier: MIT
"""The filter of a probe, behind ``if``: which of its hits are recorded.

The language is that of the kernel's event filters (Documentation/trace/events.rst, "Event
filtering"): fields compared with ``== != < <= > >= &``, strings with ``== != ~``, joined by ``&&
|| !`` and parentheses. Beside fields there are all values that a probe can fetch, ``$tid``,
``$depth``, two tests that count what reaches them, and one for calls that the thread is in:

    if n > 3 && name ~ "lib*" && within(sell) && every(100)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from ftpatch.core.filter_parser import FilterParser
from ftpatch.core.token import Token
from ftpatch.names.suggest import meant, near
from ftpatch.probe.definition import TYPES, Fetch, Filter, Source, Within
from ftpatch.probe.fetches import Scope, parse_fetch
from ftpatch.probe.function_place import WITHIN, parse_within

__all__ = ["parse_filter"]

TID, DEPTH = Source.TID.value, Source.DEPTH.value
OWN = {
    TID: Fetch(TID, Source.TID, type="s32"),
    DEPTH: Fetch(DEPTH, Source.DEPTH, type="u32"),
}
"""Values that only a filter asks for."""
OWN_ALIKE = 0.75
"""Similarity of those that may have been meant."""
WIDE = 8
"""Bytes of a register."""
_NAME = re.compile(r"[^\W\d]\w*(?:(?:->|\.)\w+|\[\w+\])*")
_ENDS = frozenset("=!<>&|~")


def parse_filter(text: Token, fetches: Mapping[str, Fetch], scope: Scope) -> Filter:
    """Parse what follows ``if``. ``fetches``: the probe's fields by name. Raises UsageError, which
    names the offending token and its column."""
    return _Parser(text, fetches, scope).parse()


class _Parser(FilterParser[Fetch, Within]):
    event = "a probe"
    textual = "{}=+0($arg1):string"
    typed = "a float has :f64 or :f32 behind it"

    def __init__(self, text: Token, fetches: Mapping[str, Fetch], scope: Scope) -> None:
        super().__init__(text, Fetch)
        self._fetches, self._scope = fetches, scope

    def own_test(self) -> Within | None:
        called = WITHIN.match(self.rest.text)
        if called is None:
            return None
        self.rest.take(called.end() - 1)
        end = _closing(self.rest.text)
        if not end:
            self.rest.refuse_at("a parenthesis of within() is not closed", "add a `)`")
        return parse_within(self.rest.take(end))

    def is_value(self, name: str) -> bool:
        return name in self._fetches

    def value(self) -> tuple[Token, Fetch]:
        text = self.rest.text
        if text[0] in "+-$%@\\":
            token = self.rest.take(_end(text))
            return token, self._fetched(token)
        named = _NAME.match(text)
        if named is None:
            self.rest.refuse_at("no value", self.form)
        token = self.rest.take(named.end())
        fetch = self._fetches.get(token.text)
        if fetch is None:
            like = near(token.text, list(self._fetches))
            if self._scope.named is None or like:
                hint = meant(like, "name a value of the probe")
                raise token.refuse("the probe has no such value", hint)
            found = self._scope.named(token, None)
            fetch = replace(found, name=token.text, names=(), room=0)
        return token, _comparable(token, fetch)

    def _fetched(self, token: Token) -> Fetch:
        bare, colon, type = token.text.partition(":")
        if bare in OWN:
            if colon and TYPES.get(type) != WIDE // 2:
                raise token.refuse(f"{bare} is a number of 32 bits", f"write {bare}")
            return OWN[bare]
        if re.fullmatch(r"\$[a-z]+", bare) and (like := near(bare, OWN, OWN_ALIKE)):
            raise token.refuse("invalid $-variable specified", meant(like, ""))
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


def _closing(text: str) -> int:
    """Where the parenthesis ends that a text begins with; 0 if it does not."""
    depth = 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if not depth:
            return at + 1
    return 0
