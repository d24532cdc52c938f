# SPDX-License-Identifier: MIT
"""What is told of probes and of their values, and that it means the same again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftpatch.probe import definition_text, format_value, parse_probe
from ftpatch.probe.definition import TYPES, Definition, Fetch, Source

REGISTERS = ("ax", "di", "r10w")


def parse(text: str) -> Definition:
    return parse_probe(text, REGISTERS, arguments=6)


@pytest.mark.parametrize(
    ("type", "word", "wanted"),
    [
        ("u8", 0x1FF, "255"),
        ("s8", 0x1FF, "-1"),
        ("s16", 0x7FFF, "32767"),
        ("s32", 0x80000000, "-2147483648"),
        ("s64", (1 << 64) - 1, "-1"),
        ("u64", -1, str((1 << 64) - 1)),
        ("x16", 0x12345, "0x2345"),
        ("x64", 0, "0x0"),
        ("u32", None, "(fault)"),
        ("symbol", 0x401010, "do_open+0x10"),
        ("symbol", 0x10, "0x10"),
    ],
)
def test_values(type: str, word: int | None, wanted: str) -> None:
    symbol = {0x401010: "do_open+0x10"}.get
    assert format_value(type, word, symbol=symbol) == wanted
    if type == "symbol":
        assert format_value(type, word) == f"{word:#x}", "without names"


def test_strings() -> None:
    assert format_value("string", 0, string=None) == "(fault)"
    assert format_value("string", 0, string=b"") == '""'
    assert format_value("string", 0, string=b"/tmp/\xc3\xa9\0rest") == '"/tmp/é"'
    shown = format_value("string", 0, string=b'a"\\\n\t\r\x1b[0m\xff\xc2\x85')
    assert shown == '"a\\"\\\\\\n\\t\\r\\x1b[0m\\xff\\xc2\\x85"'


@given(st.text(), st.binary())
def test_strings_are_one_printable_line(text: str, raw: bytes) -> None:
    for string in (text.encode("utf-8", "surrogatepass"), raw):
        assert format_value("string", 0, string=string).isprintable()


IDENTIFIERS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)
SYMBOLS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.$@]{0,20}", fullmatch=True)
NUMBERS = [kind for kind in TYPES if kind != "string"]
ELSEWHERE = {
    Source.TID,
    Source.CALLER,
    Source.LATENCY,
    Source.DEPTH,
    Source.FRAMES,
    Source.VARIABLE,
}
"""Of filters, histograms, and what debug information names: no FETCH by itself."""


@st.composite
def _fetches(draw: st.DrawFn, sources: list[Source]) -> Fetch:
    source = draw(st.sampled_from(sources))
    text, value = "", 0
    at = source in (Source.SYMBOL, Source.ADDRESS)
    reads = (0,) * at + tuple(
        draw(st.lists(st.integers(-(1 << 31), (1 << 31) - 1), max_size=12 - at))
    )
    match source:
        case Source.REGISTER:
            text = draw(st.sampled_from(REGISTERS))
        case Source.PAIR:
            text = ":".join(draw(st.lists(st.sampled_from(REGISTERS), min_size=2, max_size=2)))
        case Source.SYMBOL:
            text, value = draw(SYMBOLS), draw(st.integers(-(1 << 63) + 1, (1 << 63) - 1))
        case Source.ADDRESS:
            value = draw(st.integers(0, (1 << 64) - 1))
        case Source.IMMEDIATE:
            value = draw(st.integers(-(1 << 63), (1 << 64) - 1))
        case Source.STACK_WORD:
            value = draw(st.integers(0, 2048))
        case Source.ARGUMENT:
            value = draw(st.integers(1, 6))
        case Source.COMM:
            return Fetch(draw(IDENTIFIERS), source, type="string")
    types = NUMBERS + ["string"] * bool(reads)
    return Fetch(draw(IDENTIFIERS), source, text, value, reads, draw(st.sampled_from(types)))


@st.composite
def _definitions(draw: st.DrawFn) -> Definition:
    returns, named = draw(st.booleans()), draw(st.booleans())
    offset = 0 if returns or not named else draw(st.integers(0, (1 << 32) - 1))
    absent = {Source.ARGUMENT} if returns or not named or offset else set()
    absent |= set() if returns else {Source.RETVAL}
    sources = [source for source in Source if source not in absent | ELSEWHERE]
    fetches = draw(st.lists(_fetches(sources), max_size=4, unique_by=lambda fetch: fetch.name))
    return Definition(
        "r" if returns else "p",
        draw(IDENTIFIERS),
        draw(IDENTIFIERS),
        draw(SYMBOLS) if named else None,
        offset,
        None if named else draw(st.integers(0, (1 << 64) - 1)),
        draw(st.integers(0, 4096)) if returns else 0,
        tuple(fetches),
    )


@given(_definitions())
def test_what_is_told_means_the_same(definition: Definition) -> None:
    text = definition_text(definition)
    assert parse(text) == definition
    assert definition_text(parse(text)) == text


def test_what_is_told() -> None:
    text = "r4:probes/open_ret do_open ret=$retval:s32"
    assert definition_text(parse(text)) == text
    told = definition_text(parse("p  f+0x10 +u0x8(@t+0):x64 $comm:string \\0x5:u8 n=@64"))
    assert told == "p:probes/p_f_16 f+16 arg1=+8(@t) arg2=$comm arg3=\\5:u8 n=@0x40"
    told = definition_text(parse("p:a 64 $stack0 %r10w:x8 \\-0x10 @t-0x10"))
    assert told == "p:probes/a 0x40 arg1=$stack0 arg2=%r10w:x8 arg3=\\-16 arg4=@t-16"
    assert definition_text(parse("p f $arg2:symbol")) == "p:probes/p_f_0 f arg1=$arg2:symbol"
