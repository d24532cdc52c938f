# SPDX-License-Identifier: MIT
"""The histogram of a probe: hits are counted in the program, instead of being recorded.

The words are those of the kernel's hist triggers (Documentation/trace/histogram.rst); keys and
values are the probe's fields, other values as they would be fetched, ``$tid``, ``$caller``,
``stack(DEPTH):fp`` and, of r probes, ``$latency``:

    p:m malloc size=$arg1:u64 hist:keys=size.log2,$caller:vals=size if size > 16
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from ftpatch.core.stack_word import FRAMES, is_stack, read_stack, stack_text
from ftpatch.core.token import Token, read_number
from ftpatch.layout import constants, structure
from ftpatch.names.suggest import meant, near
from ftpatch.probe.definition import FLOATS, HIST_SIZE, Fetch, Hist, Key, Source
from ftpatch.probe.fetches import Scope, parse_fetch

__all__ = ["is_hist", "parse_hist"]

WORD = "hist"
KEY_WORDS, MAX_VALUES = (structure("trace_hist")[name].shape[0] for name in ("key", "sum"))
STRING_WORDS = constants["STRING_WORDS"]
MIN_SIZE, MAX_SIZE = 32, 1 << 17
"""Entries: the most are the kernel's TRACING_MAP_BITS_MAX."""
MAX_DEPTH = constants["HIST_CALLS"]
"""Calls of a stack that is a key."""
OPTIONS = ("keys", "vals", "values", "size")
BETWEEN = re.compile(r":(?!fp\b)")
"""Divides the options: the colon of stack:fp does not."""
OWN = {
    "$tid": Fetch("$tid", Source.TID, type="s32"),
    "$caller": Fetch("$caller", Source.CALLER, type="symbol"),
    "$latency": Fetch("$latency", Source.LATENCY, type="u64"),
}
WHOLE = {
    "string": "a string has no magnitude",
    "symbol": "an address has no magnitude",
    "f32": "floats are not put into buckets",
    "f64": "floats are not put into buckets",
}
"""Types whose values are keys as they are."""
FETCHED = tuple("$%@+-")
"""Beginnings of what is fetched, in place of a field's name."""
_FORM = "write hist:keys=FIELD[.log2|.buckets=N],...:vals=FIELD,..."


def is_hist(word: Token) -> bool:
    """Test whether a word of a probe is its histogram."""
    return word.text.partition(":")[0] == WORD


def parse_hist(word: Token, fetches: Mapping[str, Fetch], scope: Scope) -> Hist:
    """Parse it. ``fetches``: the probe's fields by name. Raises UsageError, which names the
    offending token and its column."""
    fields = {name: one for name, one in fetches.items() if one.source is not Source.COMM}
    fields |= {name: one for name, one in OWN.items() if name != "$latency" or scope.returns}
    if not (scope.returns or scope.entry):
        del fields["$caller"]
    found: dict[str, Token] = {}
    at = len(WORD) + 1
    for part in BETWEEN.split(word.text[at:]) if len(word.text) >= at else ():
        token = word.cut(at, at + len(part))
        at += len(part) + 1
        option, sign, _ = part.partition("=")
        option = "vals" if option == "values" else option
        if option not in OPTIONS or not sign:
            raise token.refuse("no such option of a histogram", _FORM)
        if option in found:
            raise token.refuse(f"{option} is given twice", "join them by commas")
        found[option] = token.cut(part.index("=") + 1)
    keys = tuple(_key(one, fields, scope) for one in _pieces(found.get("keys")))
    values = tuple(_value(one, fields, scope) for one in _pieces(found.get("vals")))
    if sum(_words(one.fetch) for one in keys) > KEY_WORDS:
        hint = f"at most {KEY_WORDS} numbers, or one string"
        raise found["keys"].refuse("the key is too long", hint)
    if sum(one.fetch.source is Source.FRAMES for one in keys) > 1:
        raise found["keys"].refuse("the key has two stacks", "leave one out")
    if len(values) > MAX_VALUES:
        raise found["vals"].refuse("too many values", f"at most {MAX_VALUES}")
    return Hist(keys, values, _size(found["size"]) if "size" in found else HIST_SIZE)


def _pieces(token: Token | None) -> list[Token]:
    if token is None:
        return []
    out, at = [], 0
    for piece in token.text.split(","):
        out.append(token.cut(at, at + len(piece)))
        at += len(piece) + 1
    return out


def _words(fetch: Fetch) -> int:
    """The words of a key that a value takes, besides return addresses."""
    if fetch.source is Source.FRAMES:
        return 0
    return STRING_WORDS if fetch.type == "string" else 1


def _field(token: Token, fields: Mapping[str, Fetch], scope: Scope) -> Fetch:
    fetch = fields.get(token.text)
    if fetch is None and token.text[:1] in FETCHED and token.text not in {*OWN, "$comm"}:
        found = parse_fetch(token, 1, scope)
        if found.type in FLOATS:  # its text alone does not tell that
            hint = f"fetch it as a value of the probe, as in value={token.text}, and name that"
            raise token.refuse(f"{token.text} is a float", hint)
        return replace(found, name=token.text, type="u64")
    if fetch is None:
        known = f"fetch it before hist, or name one of {', '.join(fields)}"
        hint = meant(near(token.text, list(fields)), known)
        raise token.refuse("the probe has no such value", hint)
    return fetch


def _stack(token: Token) -> Fetch:
    stack = read_stack(token, MAX_DEPTH)
    name = stack_text(stack, MAX_DEPTH)
    if not stack.frames:
        reason = "a histogram finds calls along the frame pointers alone"
        raise token.refuse(reason, f"write {name}:{FRAMES}")
    return Fetch(name, Source.FRAMES, value=stack.depth, type="symbol")


def _key(token: Token, fields: Mapping[str, Fetch], scope: Scope) -> Key:
    if is_stack(token):
        if not (scope.returns or scope.entry):
            hint = "probe the function itself"
            raise token.refuse("a stack is a key at a function's entry or return", hint)
        return Key(_stack(token))
    name, dot, form = token.text.partition(".")
    fetch = _field(token.cut(0, len(name)), fields, scope)
    if not dot:
        return Key(fetch)
    after = token.cut(len(name) + 1)
    earlier = fetch.type == "symbol" and scope.named is None  # traces of old have buckets of these
    if fetch.type in WHOLE and not earlier:
        raise after.refuse(WHOLE[fetch.type], f"write {name}")
    if form == "log2":
        return Key(fetch, log2=True)
    number = read_number(form.removeprefix("buckets="))
    if not form.startswith("buckets=") or not number or number >= 1 << 63:
        raise after.refuse("invalid modifier of a key", "use .log2 or .buckets=N")
    return Key(fetch, buckets=number)


def _value(token: Token, fields: Mapping[str, Fetch], scope: Scope) -> Fetch:
    if is_stack(token):
        raise token.refuse("only numbers are summed up", "make it a key")
    fetch = _field(token, fields, scope)
    if fetch.type == "string" or fetch.source is Source.CALLER:
        raise token.refuse("only numbers are summed up", "make it a key")
    return fetch


def _size(token: Token) -> int:
    number = read_number(token.text)
    if not number or number > MAX_SIZE:
        raise token.refuse("invalid size of a histogram", f"1 to {MAX_SIZE} entries")
    return max(MIN_SIZE, 1 << (number - 1).bit_length())
