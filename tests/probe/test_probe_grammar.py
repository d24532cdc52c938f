# SPDX-License-Identifier: MIT
"""Probes: what each line means, what is said of one that means nothing, and what is told."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftpatch.core.token import read_number
from ftpatch.errors import Refused, UsageError
from ftpatch.probe import definition_text, parse_probe, parse_probes
from ftpatch.probe.definition import TYPES, Definition, Fetch, Source
from ftpatch.probe.event_names import Pattern

REGISTERS = ("ax", "di", "si", "sp")
FORM = "use p[:NAME] FUNC[+OFFSET] or r[:NAME] FUNC, followed by fetches"
VALUES = "a value is %REG, @SYMBOL, $stack, $retval, $argN, $comm, \\NUMBER, +OFFSET(VALUE) or NAME"
RULES = "must follow the same rules as C identifiers"
LETTERS = "use letters, digits and `_`"
NAMES = "use p:NAME or p:GROUP/NAME"
PLACE = "invalid probed address or symbol"
OFFSET = "use a 32-bit offset after the `+`"
LONG = "x" * 64
MANY = "p f" + " %ax" * 129
DEEP = "p f " + "+0(" * 13 + "%ax" + ")" * 13


def parse(text: str) -> Definition:
    return parse_probe(text, REGISTERS, arguments=6)


def fetch(text: str, head: str = "p") -> Fetch:
    (one,) = parse(f"{head} f {text}").fetches
    return one


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("p do_open", Definition("p", "probes", "p_do_open_0", "do_open")),
        ("p do_open+0x10", Definition("p", "probes", "p_do_open_16", "do_open", 16)),
        ("  p:a  do_open ", Definition("p", "probes", "a", "do_open")),
        ("p:g/a f.part.0", Definition("p", "g", "a", "f.part.0")),
        ("p:g.a f", Definition("p", "g", "a", "f")),
        ("p:g/ f.b", Definition("p", "g", "p_f_b_0", "f.b")),
        ("p 0x401000", Definition("p", "probes", "p_0x401000", None, 0, 0x401000)),
        ("p:a 4096", Definition("p", "probes", "a", None, 0, 4096)),
        ("r f", Definition("r", "probes", "r_f_0", "f")),
        ("r:a f+0", Definition("r", "probes", "a", "f")),
        ("r16:a f", Definition("r", "probes", "a", "f", maxactive=16)),
        ("r0x10 f", Definition("r", "probes", "r_f_0", "f", maxactive=16)),
        ("p f%return", Definition("r", "probes", "r_f_0", "f")),
        (f"p {LONG}", Definition("p", "probes", f"p_{LONG}"[:63], LONG)),
    ],
)
def test_places_and_names(text: str, wanted: Definition) -> None:
    found = parse(text)
    assert found == wanted and found.text == text.strip()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("%di", Fetch("arg1", Source.REGISTER, "di")),
        ("a=%di:u8", Fetch("a", Source.REGISTER, "di", type="u8")),
        ("$stack", Fetch("arg1", Source.STACK)),
        ("$stack12:s16", Fetch("arg1", Source.STACK_WORD, value=12, type="s16")),
        ("$arg6", Fetch("arg1", Source.ARGUMENT, value=6)),
        ("$comm", Fetch("arg1", Source.COMM, type="string")),
        ("$comm:string", Fetch("arg1", Source.COMM, type="string")),
        ("\\0x10", Fetch("arg1", Source.IMMEDIATE, value=16)),
        ("\\-010", Fetch("arg1", Source.IMMEDIATE, value=-8)),
        ("\\+7", Fetch("arg1", Source.IMMEDIATE, value=7)),
        ("@counter:u32", Fetch("arg1", Source.SYMBOL, "counter", 0, (0,), "u32")),
        ("@t+0x8", Fetch("arg1", Source.SYMBOL, "t", 8, (0,))),
        ("@t-8:string", Fetch("arg1", Source.SYMBOL, "t", -8, (0,), "string")),
        ("@0x404000:x8", Fetch("arg1", Source.ADDRESS, "", 0x404000, (0,), "x8")),
        ("+8(%di):string", Fetch("arg1", Source.REGISTER, "di", 0, (8,), "string")),
        ("-u8(%di)", Fetch("arg1", Source.REGISTER, "di", 0, (-8,))),
        ("+4(-16(@t)):s32", Fetch("arg1", Source.SYMBOL, "t", 0, (0, -16, 4), "s32")),
        ("+0x20(+1($stack2)):symbol", Fetch("arg1", Source.STACK_WORD, "", 2, (1, 32), "symbol")),
    ],
)
def test_arguments(text: str, wanted: Fetch) -> None:
    assert fetch(text) == wanted


def test_arguments_of_a_return() -> None:
    assert fetch("ret=$retval:s32", "r") == Fetch("ret", Source.RETVAL, type="s32")
    assert [one.name for one in parse("p f %ax b=%di %si").fetches] == ["arg1", "b", "arg3"]


ERRORS = [
    ("", f"empty probe; {FORM}"),
    ("p", f"no function in the probe, at column 2 of 'p'; {FORM}"),
    ("t f", f"a probe starts with p or r: 't' at column 1 of 't f'; {FORM}"),
    ("hash", "a probe starts with p or r: 'hash'; write 'p hash'"),
    ("-:a", "probes are taken away from files only: '-:a'; use `ftpatch undo "
     "--pid`"),
    ("p f %ax > 3", "invalid fetch argument: '>' at column 9 of 'p f %ax > 3'; write `if` before "
     "the filter, as in: if n > 3"),
    ("px f", f"a probe starts with p or r: 'px' at column 1 of 'px f'; {FORM}"),
    (
        "p4 f",
        "maxactive is only for function exit: '4' at column 2 of 'p4 f'; use p, or an r probe",
    ),
    ("rx f", "invalid maxactive number: 'x' at column 2 of 'rx f'; 1 to 4096"),
    ("r0:a f", "invalid maxactive number: '0' at column 2 of 'r0:a f'; 1 to 4096"),
    ("r4097 f", "maxactive is too big: '4097' at column 2 of 'r4097 f'; at most 4096"),
    ("p: f", f"event name is not specified, at column 3 of 'p: f'; {NAMES}"),
    ("p:/a f", f"group name is not specified, at column 3 of 'p:/a f'; {NAMES}"),
    (
        f"p:{LONG} f",
        f"event name is too long: {LONG[:60]!r}... at column 3 of 'p:{LONG} f'; "
        "at most 63 characters",
    ),
    (
        f"p:{LONG}/a f",
        f"group name is too long: {LONG[:60]!r}... at column 3 of 'p:{LONG}/a f'; "
        "at most 63 characters",
    ),
    ("p:1a f", f"event name {RULES}: '1a' at column 3 of 'p:1a f'; {LETTERS}"),
    ("p:g/é f", f"event name {RULES}: 'é' at column 5 of 'p:g/é f'; {LETTERS}"),
    ("p:g-/a f", f"group name {RULES}: 'g-' at column 3 of 'p:g-/a f'; {LETTERS}"),
    ("p f%ret", "invalid probed address suffix: '%ret' at column 4 of 'p f%ret'; "
     "the only one is %return"),
    ("p $arg1", f"{PLACE}: '$arg1' at column 3 of 'p $arg1'; use FUNC, FUNC+OFFSET or 0xADDRESS"),
    ("p 0x", f"{PLACE}: '0x' at column 3 of 'p 0x'; use FUNC, FUNC+OFFSET or 0xADDRESS"),
    ("p %return", f"{PLACE}, at column 3 of 'p %return'; use FUNC, FUNC+OFFSET or 0xADDRESS"),
    ("p f-4", f"{PLACE}: 'f-4' at column 3 of 'p f-4'; {OFFSET}"),
    ("p f+x", f"{PLACE}: 'f+x' at column 3 of 'p f+x'; {OFFSET}"),
    ("p f+0x100000000", f"{PLACE}: 'f+0x100000000' at column 3 of 'p f+0x100000000'; {OFFSET}"),
    ("r f+4", "retprobe address must be a function entry: 'f+4' at column 3 of 'r f+4'; write f"),
    (
        "p f+4%return",
        "retprobe address must be a function entry: 'f+4' at column 3 of 'p f+4%return'; write f",
    ),
    (MANY, f"too many arguments are specified: '%ax' at column 517 of {MANY[:120]!r}...; "
     "at most 128"),
    ("p f =%ax", "argument name is not specified: '=%ax' at column 5 of 'p f =%ax'; "
     "add a name before the `=`"),
    (f"p f {LONG[:33]}=1", f"argument name is too long: '{LONG[:33]}' at column 5 of "
     f"'p f {LONG[:33]}=1'; at most 32 characters"),
    ("p f a-b=%ax", f"argument name {RULES}: 'a-b' at column 5 of 'p f a-b=%ax'; {LETTERS}"),
    ("p f a=%ax a=%di", "argument name a is already used: 'a=%di' at column 11 of "
     "'p f a=%ax a=%di'; use another name, as in NAME=VALUE"),
    ("p f arg2=%ax %di", "argument name arg2 is already used: '%di' at column 14 of "
     "'p f arg2=%ax %di'; use another name, as in NAME=VALUE"),
    ("p f common_pid=%ax", "argument name common_pid is already used: 'common_pid=%ax' at column 5 "
     "of 'p f common_pid=%ax'; use another name, as in NAME=VALUE"),
    ("p f a=", f"no argument expression, at column 7 of 'p f a='; {VALUES}"),
    ("p f a=:u8", f"no argument expression, at column 7 of 'p f a=:u8'; {VALUES}"),
    ("p f ax", f"invalid fetch argument: 'ax' at column 5 of 'p f ax'; {VALUES}"),
    ("p f +0()", f"invalid fetch argument, at column 8 of 'p f +0()'; {VALUES}"),
    ("p f $retval", "$retval is not available on probe: '$retval' at column 5 of 'p f $retval'; "
     "use an r probe"),
    ("p f $stackx", "invalid $-variable specified: '$stackx' at column 5 of 'p f $stackx'; "
     "did you mean $stack?"),
    ("p f $x", "invalid $-variable specified: '$x' at column 5 of 'p f $x'; "
     "use $stack, $stackN, $retval, $argN or $comm"),
    ("p f $stack2049", "invalid stack number: '$stack2049' at column 5 of 'p f $stack2049'; "
     "at most 2048"),
    ("p f $arg0", "invalid argument number: '$arg0' at column 5 of 'p f $arg0'; "
     "arguments count from 1"),
    ("p f $arg2055", "$argN index is too big: '$arg2055' at column 5 of 'p f $arg2055'; "
     "the first 6 are in registers; use $stackN for the others"),
    ("p f+4 $arg1", "$argN can be used only on function entry: '$arg1' at column 7 of "
     "'p f+4 $arg1'; use a register, or a probe at FUNC"),
    ("r f $arg1", "$argN can be used only on function entry: '$arg1' at column 5 of "
     "'r f $arg1'; use a p probe at FUNC"),
    ("p f %rax", "invalid register name: '%rax' at column 5 of 'p f %rax'; did you mean %ax?"),
    ("p f %x9", "invalid register name: '%x9' at column 5 of 'p f %x9'; one of ax, di, si, sp"),
    ("p f @", "invalid memory address: '@' at column 5 of 'p f @'; "
     "use @SYMBOL, @SYMBOL+OFFSET or @0xADDRESS"),
    ("p f @s+x", "invalid memory address: '@s+x' at column 5 of 'p f @s+x'; "
     "use @SYMBOL, @SYMBOL+OFFSET or @0xADDRESS"),
    ("p f @0xg", "invalid memory address: '@0xg' at column 5 of 'p f @0xg'; use a 64-bit number"),
    ("p f @+8", "file offset is not available: '@+8' at column 5 of 'p f @+8'; "
     "use @SYMBOL or @0xADDRESS"),
    ("p f \\x", "invalid immediate value: '\\\\x' at column 5 of 'p f \\\\x'; use a 64-bit number"),
    ('p f \\"a"', "an immediate string is not supported: '\\\\\"a\"' at column 5 of "
     "'p f \\\\\"a\"'; use a number"),
    ("p f +8", "dereference needs a brace: '+8' at column 5 of 'p f +8'; "
     "use +OFFSET(VALUE)"),
    ("p f +x(%ax)", "invalid dereference offset: '+x' at column 5 of 'p f +x(%ax)'; "
     "use a signed 32-bit number"),
    ("p f +0x80000000(%ax)", "invalid dereference offset: '+0x80000000' at column 5 of "
     "'p f +0x80000000(%ax)'; use a signed 32-bit number"),
    ("p f +8(%ax", "dereference brace is not closed: '+8(%ax' at column 5 of 'p f +8(%ax'; "
     "add a `)`"),
    ("p f +8(%ax)u", "only a type may follow a dereference: 'u' at column 12 of "
     "'p f +8(%ax)u'"),
    (DEEP, f"dereference is too much nested: {DEEP[4:]!r} at column 5 of {DEEP!r}; at most 12"),
    ("p f +0($comm)", "$comm can not be dereferenced: '+0($comm)' at column 5 of 'p f +0($comm)'; "
     "use $comm alone"),
    ("p f $comm:u8", "$comm only accepts string type: 'u8' at column 11 of 'p f $comm:u8'; "
     "remove the type"),
    ("p f %ax:float", "unknown type is specified: 'float' at column 9 of 'p f %ax:float'; "
     "did you mean f32?"),
    ("p f %ax:double", "unknown type is specified: 'double' at column 9 of 'p f %ax:double'; "
     "did you mean f64?"),
    ("p f $arg1:f64", "$arg1 is an integer register: 'f64' at column 11 of 'p f $arg1:f64'; "
     "write +0($arg1):f64 for one in memory"),
    ("p f if +8(%ax):f32 & 2", "floats have no bits to test: '&' at column 20 of "
     "'p f if +8(%ax):f32 & 2'; use one of == != <= >= < >"),
    ("p f if +8(%ax):f32 ~ 2", "floats have no bits to test: '~' at column 20 of "
     "'p f if +8(%ax):f32 ~ 2'; use one of == != <= >= < >"),
    ("p f if +8(%ax):f32 > 3.5e38", "it can never be that: '3.5e38' at column 22 of "
     "'p f if +8(%ax):f32 > 3.5e38'; f32 holds up to 3.40282347e+38"),
    ("p f if +8(%ax):f64 > -1e309", "it can never be that: '-1e309' at column 22 of "
     "'p f if +8(%ax):f64 > -1e309'; f64 holds up to 1.79769313e+308"),
    ("p f if +8(%ax):f64 > 1.5f", "invalid number: '1.5f' at column 22 of "
     "'p f if +8(%ax):f64 > 1.5f'; use a 64-bit number"),
    ("p f if +8(%ax):f64 > +8(%ax):f32", "it is no f64: '+8(%ax):f32' at column 22 of "
     "'p f if +8(%ax):f64 > +8(%ax):f32'; give both the same type"),
    ("p f if %ax > 1.5", "an integer is compared with integers: '1.5' at column 14 of "
     "'p f if %ax > 1.5'; a float has :f64 or :f32 behind it"),
    ("p f if %ax > +8(%ax):f32", "an integer is compared with integers: '+8(%ax):f32' at column "
     "14 of 'p f if %ax > +8(%ax):f32'; a float has :f64 or :f32 behind it"),
    ("p f if +8(%ax):f32 == 'x'", "a number is compared with a number: \"'x'\" at column 23 of "
     "\"p f if +8(%ax):f32 == 'x'\"; write it without quotes"),
    ("p f x=+8(%ax):f64 hist:keys=x.log2", "floats are not put into buckets: 'log2' at column 31 "
     "of 'p f x=+8(%ax):f64 hist:keys=x.log2'; write x"),
    ("p f x=+8(%ax):f32 hist:keys=x.buckets=2", "floats are not put into buckets: 'buckets=2' at "
     "column 31 of 'p f x=+8(%ax):f32 hist:keys=x.buckets=2'; write x"),
    ("p f x=+8(%ax):f32 if x > nan", "nothing compares with NaN: 'nan' at column 26 of "
     "'p f x=+8(%ax):f32 if x > nan'; write x != x, which is true for it"),
    ("p f x=+8(%ax):f64 if x < -Infinity", "infinity is not written in a filter: '-Infinity' at "
     "column 26 of 'p f x=+8(%ax):f64 if x < -Infinity'; compare it with the greatest number, as "
     "in x > 1.7976931348623157e308"),
    ("p f if first(-1)", "invalid number of first(): 'first(-1)' at column 8 of "
     "'p f if first(-1)'; 1 to 2147483647"),
    ("p f if every( 1.5 )", "invalid number of every(): 'every( 1.5 )' at column 8 of "
     "'p f if every( 1.5 )'; 1 to 2147483647"),
    ("p f if $depth:u64 > 1", "$depth is a number of 32 bits: '$depth:u64' at column 8 of "
     "'p f if $depth:u64 > 1'; write $depth"),
    ("p f if $dept > 1", "invalid $-variable specified: '$dept' at column 8 of 'p f if $dept > 1'; "
     "did you mean $depth?"),
    ("p f if $depth > -1", "it can never be that: '-1' at column 17 of 'p f if $depth > -1'; "
     "u32 holds 0 to 4294967295"),
    ("p f hist:keys=stack(33):fp", "invalid depth: '33' at column 21 of "
     "'p f hist:keys=stack(33):fp'; 1 to 32"),
    ("p f hist:keys=stack(0):fp", "invalid depth: '0' at column 21 of "
     "'p f hist:keys=stack(0):fp'; 1 to 32"),
    ("p f+4 hist:keys=stack:fp", "a stack is a key at a function's entry or return: 'stack:fp' at "
     "column 17 of 'p f+4 hist:keys=stack:fp'; probe the function itself"),
    ("p f hist:keys=$depth", "invalid $-variable specified: '$depth' at column 15 of "
     "'p f hist:keys=$depth'; use $stack, $stackN, $retval, $argN or $comm"),
    ("p f %ax:strng", "unknown type is specified: 'strng' at column 9 of 'p f %ax:strng'; "
     "did you mean string?"),
    ("p f %ax:", "unknown type is specified, at column 9 of 'p f %ax:'; "
     f"one of {', '.join(TYPES)}"),
    ("p f %ax:u8[4]", "arrays are not supported: 'u8[4]' at column 9 of 'p f %ax:u8[4]'; "
     "fetch each element at its offset"),
    ("p f %ax:b4@2/32", "bitfields are not supported: 'b4@2/32' at column 9 of "
     "'p f %ax:b4@2/32'; fetch the whole word, as x8 to x64"),
    ("p f %ax:char", "type char is not supported: 'char' at column 9 of 'p f %ax:char'; take u8"),
    ("p f \\0x40:string", "string accepts only memory argument: '\\\\0x40' at column 5 of "
     "'p f \\\\0x40:string'; write @0x40:string"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), ERRORS)
def test_what_is_said_of_errors(text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse(text)
    assert str(error.value) == message and error.value.path is None


def test_two_of_one_name() -> None:
    names = [
        d.name for d in parse_probes(["p f", "p:g/p_f_0 f", "r f"], (), Refused(), arguments=0)
    ]
    assert names == ["p_f_0", "p_f_0", "r_f_0"], "of two groups"
    refused = Refused()
    (one,) = parse_probes(["p f", "p:probes/p_f_0 g"], (), refused, arguments=0)
    (error,) = refused.errors
    assert one.symbol == "f" and str(error) == (
        "given group/event name probes/p_f_0 already exists: 'p:probes/p_f_0 g'; "
        "use another name, as in p:NAME"
    )


WILD = [
    ("p:* str*", "probes/*", "str*", ""),
    ("p:mine/* str[a-z]?", "mine/*", "str[a-z]?", ""),
    ("p str*", "probes/p_*_0", "str*", ""),
    ("r str*", "probes/r_*_0", "str*", ""),
    ("p str*%return", "probes/r_*_0", "str*", ""),
    ("p:calls PLT:*", "calls/*", "*@plt", ""),
    ("p:mine/in str*", "mine/in_*", "str*", ""),
    ("p:a_*_b libc.so.6:str*", "probes/a_*_b", "str*", "libc.so.6"),
    ("p:* shop::Cart::*", "probes/*", "shop::Cart::*", ""),
    ("p:times operator*(shop::Price, int)", "times/*", "operator*(shop::Price, int)", ""),
    ("p:* main", "", "main", ""),
    ("p:* PLT:malloc", "", "malloc@plt", ""),
]
"""With the template of their names, and what FUNC and LIB are."""


@pytest.mark.parametrize(("text", "names", "symbol", "library"), WILD)
def test_wildcards(text: str, names: str, symbol: str, library: str) -> None:
    found = parse_probe(text, REGISTERS, arguments=6, pattern=Pattern.GLOB)
    assert (found.template, found.symbol, found.library) == (names, symbol, library)
    if not names:
        assert found.name == symbol.removesuffix("@plt")
    if "operator" not in text:  # that is a name, too
        with pytest.raises(UsageError):
            parse(text)


def test_a_regular_expression() -> None:
    found = parse_probe("p:* lib.so:^a+(b|c)$", REGISTERS, arguments=6, pattern=Pattern.REGEX)
    assert (found.symbol, found.library) == ("^a+(b|c)$", "lib.so")
    assert found.template == "probes/*" and not found.offset


@given(st.integers(0, (1 << 64) - 1))
def test_numbers(value: int) -> None:
    for text in (str(value), hex(value), f"0{value:o}", f"0X{value:016X}"):
        assert read_number(text) == value
    assert read_number(str(value + (1 << 64))) is None


WORDS = (
    "p r : / . + - 0x10 4 f g_1 % di return ( ) +8( -u4( @ $ $arg $stack $retval $comm 1 = "
    "a \\ :u8 :string :symbol [2] b4@2/32 \u00b2 \udc80 \0 * 99999999999999999999999"
)
PIECES = st.sampled_from(WORDS.split())
TEXTS = st.one_of(
    st.text(), st.lists(st.one_of(PIECES, st.just(" ")), max_size=24).map("".join)
).flatmap(lambda text: st.sampled_from([text, f"p f {text}", f"r:a {text}", f"p{text}"]))


@given(TEXTS)
def test_any_text_means_something_or_is_refused(text: str) -> None:
    try:
        found = parse(text)
    except UsageError as error:
        assert "\n" not in str(error) and str(error).isprintable()
    else:
        assert parse(definition_text(found)) == found
        with contextlib.suppress(UsageError):  # for a NAME with `*`
            assert parse_probe(text, REGISTERS, arguments=6, pattern=Pattern.GLOB) == found
        assert parse_probes([text], REGISTERS, Refused(), arguments=6) == (found,)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("uint64", "u64"),
        ("uint64_t", "u64"),
        ("int8_t", "s8"),
        ("__u16", "u16"),
        ("i32", "s32"),
        ("int", "s32"),
        ("unsigned", "u32"),
        ("long", "s64"),
        ("size_t", "u64"),
        ("char*", "string"),
        ("void*", "x64"),
        ("symbl", "symbol"),
    ],
)
def test_types_of_c_are_known_by_their_names_here(given: str, meant: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse(f"p f %ax:{given}")
    assert str(raised.value).endswith(f"; did you mean {meant}?")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("n > 3", "n > 3"),
        ("n>-3", "n > -3"),
        ("n", "n != 0"),
        ("!n", "!(n != 0)"),
        ("( n>3||u ) && name ~ 'a*'", '(n > 3 || u != 0) && name ~ "a*"'),
        ("n > 3 || u && every(10)", "n > 3 || (u != 0 && every(10))"),
        ("$tid == 7 && first( 0x10 )", "$tid == 7 && first(16)"),
        ("+8(%di):u32 & 0x10", "+8(%di):u32 & 16"),
        ("u == -1", "u == 4294967295"),
        ("n == @pid_max:s32", "n == @pid_max:s32"),
        (r'name == "a\"b\\"', r'name == "a\"b\\"'),
        ('name == "a if b"', 'name == "a if b"'),
    ],
)
def test_filters(text: str, wanted: str) -> None:
    found = parse(f"p:a f n=$arg1:s32 u=$arg2:u32 name=+0(%di):string if {text}")
    told = definition_text(found)
    assert told.partition(" if ")[2] == wanted
    assert parse(told) == found


@pytest.mark.parametrize(
    ("text", "clause", "at"),
    [
        ("", "the filter ends too early", ""),
        ("n >", "the filter ends too early", ""),
        ("n > 3 4", "the filter goes on behind its end", "4"),
        ("(n > 3", "a parenthesis of the filter is not closed", ""),
        ("n > 3)", "the filter goes on behind its end", ")"),
        ("m == 3", "the probe has no such value", "m"),
        ("n = 3", "the filter goes on behind its end", "= 3"),
        ("n ~ 3", "only strings are compared with ~", "~"),
        ("n == 'x'", "a number is compared with a number", "'x'"),
        ("name == 3", "a string is compared with a text", "3"),
        ("name < 'x'", "strings have no order", "<"),
        ("name", "a string is compared", "name"),
        (f"name == '{'x' * 63}'", "the text is too long", f"'{'x' * 63}'"),
        ("n == 0x80000000", "it can never be that", "0x80000000"),
        ("u < -1", "it can never be that", "-1"),
        ("u == -0x80000001", "it can never be that", "-0x80000001"),
        ("n < u", "a signed and an unsigned value have no order", "<"),
        ("3 < n", "a comparison begins with a value", "3"),
        ("every(0)", "invalid number of every()", "every(0)"),
        ("first(x)", "invalid number of first()", "first(x)"),
        ("every(2) && every(3)", "every() is used twice", "every(3)"),
        ("$comm == 'x'", "$comm is not known when a probe is hit", "$comm"),
        ("$retval == 3", "$retval is not available on probe", "$retval"),
        ("%zz == 3", "invalid register name", "%zz"),
        ("!" * 40 + "n", "the filter is too much nested", "!" * 7 + "n"),
        (" && ".join(["n"] * 65), "the filter is too long", "n"),
        ("n > 99999999999999999999", "invalid number", "99999999999999999999"),
    ],
)
def test_filters_that_mean_nothing(text: str, clause: str, at: str) -> None:
    whole = f"p f n=$arg1:s32 u=$arg2:u32 name=+0(%di):string if {text}"
    with pytest.raises(UsageError) as caught:
        parse(whole)
    said = str(caught.value)
    assert said.startswith(clause), said
    where = len(whole.strip()) - len(at) if text.endswith(at) else whole.rindex(at)
    assert f"at column {where + 1} of" in said, said


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("hist", "hist"),
        ("hist:keys=n", "hist:keys=n"),
        ("hist:keys=$caller.log2", "hist:keys=$caller.log2"),  # as in traces of earlier versions
        ("hist:keys=stack:fp:vals=n", "hist:keys=stack:fp:vals=n"),
        ("hist:keys=stack(32):fp,n.log2", "hist:keys=stack:fp,n.log2"),
        ("hist:keys=n,stack(0x5):fp:size=32", "hist:keys=n,stack(5):fp:size=32"),
        ("hist:keys=n.log2,$tid:vals=u,n:size=100", "hist:keys=n.log2,$tid:vals=u,n:size=128"),
        ("hist:vals=n:keys=$caller", "hist:keys=$caller:vals=n"),
        ("hist:keys=n.buckets=0x10:values=u:size=2048", "hist:keys=n.buckets=16:vals=u"),
        ("hist:keys=name if n > 3", "hist:keys=name if n > 3"),
        ("hist:keys=$arg3.log2,+8($arg4):vals=%di", "hist:keys=$arg3.log2,+8($arg4):vals=%di"),
    ],
)
def test_histograms(text: str, wanted: str) -> None:
    found = parse(f"p:a f n=$arg1:s32 u=$arg2:u32 name=+0(%di):string {text}")
    told = definition_text(found)
    assert told.partition(":string ")[2] == wanted
    assert parse(told) == found


@pytest.mark.parametrize(
    ("text", "clause", "at"),
    [
        ("hist:key=n", "no such option of a histogram", "key=n"),
        ("hist:", "no such option of a histogram", ""),
        ("hist:keys", "no such option of a histogram", "keys"),
        ("hist:keys=m", "the probe has no such value", "m"),
        ("hist:keys=n,", "the probe has no such value", ""),
        ("hist:keys=n:keys=u", "keys is given twice", "keys=u"),
        ("hist:keys=$latency", "the probe has no such value", "$latency"),
        ("hist:keys=$comm", "the probe has no such value", "$comm"),
        ("hist:keys=$arg0", "invalid argument number", "$arg0"),
        ("hist:keys=%none", "invalid register name", "%none"),
        ("hist:keys=n.log3", "invalid modifier of a key", "log3"),
        ("hist:keys=n.buckets=0", "invalid modifier of a key", "buckets=0"),
        ("hist:keys=name.log2", "a string has no magnitude", "log2"),
        ("hist:keys=stack", "a histogram finds calls along the frame pointers alone", "stack"),
        ("hist:keys=n,stack(5)", "a histogram finds calls along the frame pointers", "stack(5)"),
        ("hist:keys=stack(:fp", "invalid stack", "stack(:fp"),
        ("hist:keys=stack:fp.log2", "no such way to find the calls", "fp.log2"),
        ("hist:keys=stack:fp,stack(2):fp", "the key has two stacks", "stack:fp,stack(2):fp"),
        ("hist:vals=stack:fp", "only numbers are summed up", "stack:fp"),
        ("hist:keys=name,n", "the key is too long", "name,n"),
        ("hist:vals=name", "only numbers are summed up", "name"),
        ("hist:vals=n,u,n", "too many values", "n,u,n"),
        ("hist:size=0", "invalid size of a histogram", "0"),
        ("hist:size=200000", "invalid size of a histogram", "200000"),
    ],
)
def test_histograms_that_mean_nothing(text: str, clause: str, at: str) -> None:
    whole = f"p f n=$arg1:s32 u=$arg2:u32 name=+0(%di):string {text}"
    with pytest.raises(UsageError) as caught:
        parse(whole)
    said = str(caught.value)
    assert said.startswith(clause), said
    assert f"at column {len(whole) - len(at) + 1} of" in said, said
