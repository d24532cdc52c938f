# SPDX-License-Identifier: MIT
"""Values and probes as text, as ftrace prints them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ftpatch.core.stack_word import stack_text
from ftpatch.probe.definition import (
    DEFAULT_TYPE,
    FLOATS,
    HIST_SIZE,
    TYPES,
    Compare,
    Count,
    Definition,
    Fetch,
    Filter,
    Hist,
    Join,
    Not,
    Source,
    Within,
)
from ftpatch.probe.shown_as import shown_text
from ftpatch.trace.hits import Show, floats
from ftpatch.trace.render.values import FAULT as LOST
from ftpatch.trace.render.values import escaped

__all__ = ["definition_text", "format_value", "value_text"]

FAULT = LOST.decode()


def format_value(
    type: str,
    word: int | None,
    *,
    string: bytes | None = None,
    symbol: Callable[[int], str | None] | None = None,
) -> str:
    """A value as its event prints it (the print_type functions of kernel/trace/trace_probe.c).

    Of ``word`` (any integer) only the low bytes that ``type`` has count: decimal for ``u`` and
    ``s``, hexadecimal for ``x``, and the shortest decimal for ``f``. A ``string`` is shown up to
    its NUL, quoted; what a terminal would obey, and bytes that are no UTF-8, are escaped.
    ``symbol`` gives the name of an address, as ``do_open+0x10``; if there is none it is shown as a
    number. None in place of a word or string is memory that could not be read. Raises KeyError for
    a type that is not in TYPES.
    """
    width = TYPES[type]
    if type == "string":
        return FAULT if string is None else f'"{escaped(string)}"'
    if word is None:
        return FAULT
    bits = 8 * width
    word &= (1 << bits) - 1
    if type == "symbol":
        return (symbol(word) if symbol else None) or f"{word:#x}"
    if type in FLOATS:
        return str(floats(np.array([word], np.uint64), Show(type))[0])
    if type[0] == "x":
        return f"{word:#x}"
    return str(word - (word >> (bits - 1) << bits) if type[0] == "s" else word)


def definition_text(definition: Definition) -> str:
    """The line for a probe as reading kprobe_events gives it (``trace_kprobe_show`` of
    kernel/trace/trace_kprobe.c). All names are told; numbers and types are in one form, however
    they were written, and usual types are left out. Parsing it gives the same Definition."""
    maxactive = str(definition.maxactive or "")
    head = f"{definition.kind}{maxactive}:{definition.group}/{definition.name}"
    if definition.symbol is None:
        place = f"0x{definition.address or 0:x}"
        if definition.line:
            place = f"{definition.file}:{definition.line}"
    else:
        place = f"{definition.symbol}+{definition.offset}".removesuffix("+0")
    if definition.library:
        place = f"{definition.library}:{place}"
    words = [head, place, *map(_fetch_text, definition.fetches)]
    if definition.stack:
        words.append(stack_text(definition.stack))
    if definition.hist:
        words.append(_hist_text(definition.hist))
    if definition.filter:
        words += ["if", _filter_text(definition.filter, definition.fetches)]
    return " ".join(words)


def _hist_text(hist: Hist) -> str:
    keys = [
        one.fetch.name + ".log2" * one.log2 + f".buckets={one.buckets}" * (one.buckets > 0)
        for one in hist.keys
    ]
    parts = ["hist"]
    parts += [f"keys={','.join(keys)}"] if keys else []
    parts += [f"vals={','.join(one.name for one in hist.values)}"] if hist.values else []
    parts += [f"size={hist.size}"] if hist.size != HIST_SIZE else []
    return ":".join(parts)


def _filter_text(filter: Filter, fetches: tuple[Fetch, ...], inner: bool = False) -> str:
    match filter:
        case Join():
            mark = f" {filter.operator} "
            text = mark.join(_filter_text(part, fetches, inner=True) for part in filter.parts)
            return f"({text})" if inner else text
        case Not(part):
            return f"!({_filter_text(part, fetches)})"
        case Count():
            return f"{filter.kind}({filter.number})"
        case Within():
            return f"within({filter.text})"
        case Compare():
            right = filter.right
            if isinstance(right, Fetch):
                text = _side_text(right, fetches)
            elif isinstance(right, bytes):
                held = right.decode("utf-8", "surrogateescape")
                text = '"' + held.replace("\\", r"\\").replace('"', r"\"") + '"'
            else:
                text = str(right)
            return f"{_side_text(filter.left, fetches)} {filter.operator} {text}"


def _side_text(fetch: Fetch, fetches: tuple[Fetch, ...]) -> str:
    if fetch.source in (Source.TID, Source.DEPTH):
        return fetch.name
    return fetch.name if fetch in fetches else value_text(fetch)


def _fetch_text(fetch: Fetch) -> str:
    return f"{fetch.name}={value_text(fetch)}"


def value_text(fetch: Fetch) -> str:
    """A fetch without its name, in the form of ``definition_text``."""
    value = _source_text(fetch)
    printed = fetch.source in (Source.SYMBOL, Source.ADDRESS)  # the first read, as `@`
    for row, offset in list(enumerate(fetch.reads))[printed:]:
        sign = ("-" if offset < 0 else "+") + "u" * (row in fetch.user)
        value = f"{sign}{abs(offset)}({value})"
    usual = "string" if fetch.source is Source.COMM else DEFAULT_TYPE
    return value + ("" if fetch.type == usual else f":{fetch.type}{shown_text(fetch)}")


def _source_text(fetch: Fetch) -> str:
    match fetch.source:
        case Source.REGISTER | Source.PAIR:
            return "%" + fetch.text.replace(":", ":%")
        case Source.STACK_WORD:
            return f"$stack{fetch.value}"
        case Source.ARGUMENT:
            return f"$arg{fetch.value}"
        case Source.SYMBOL:
            return f"@{fetch.text}" + (f"{fetch.value:+d}" if fetch.value else "")
        case Source.ADDRESS:
            return f"@0x{fetch.value:x}"
        case Source.VARIABLE:
            return fetch.text
        case Source.IMMEDIATE:
            return f"\\{fetch.value}"
        case _:  # $stack, $retval and $comm stand for themselves
            return str(fetch.source.value)
