# SPDX-License-Identifier: MIT
"""The arguments of a probe: ``[NAME=]VALUE[:TYPE]`` (``parse_probe_arg`` of trace_probe.c)."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ftpatch.core.token import SYMBOL, Token, read_number
from ftpatch.debuginfo.source_names import RETURNED, WORD, is_source_name, parse_source_name
from ftpatch.errors import UsageError
from ftpatch.names.suggest import meant, near
from ftpatch.probe.definition import DEFAULT_TYPE, FLOATS, TYPES, Fetch, Source
from ftpatch.probe.shown_as import parse_shown

__all__ = ["NAME", "USER_STRING", "Later", "Named", "Scope", "parse_fetch"]

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""A C identifier, as in ``is_good_name``."""
NAME_LIMIT = 32
"""Maximum length of an argument's name: MAX_ARG_NAME_LEN."""
READS = 12
"""Maximum number of dereferences: as many as FETCH_INSN_MAX leaves room for."""
VARIABLES = ("stack", "retval", "arg1", "comm")
TYPE_ALIKE = 0.75
"""Similarity of types that may have been meant: all are short."""
STACK_WORDS = 2048
"""PARAM_MAX_STACK: the words of a 16 KiB kernel stack."""
ELSEWHERE = {
    "bool": "u8",
    "short": "s16",
    "ushort": "u16",
    "int": "s32",
    "uint": "u32",
    "unsigned": "u32",
    "long": "s64",
    "ulong": "u64",
    "size_t": "u64",
    "ssize_t": "s64",
    "usize": "u64",
    "isize": "s64",
    "char*": "string",
    "float": "f32",
    "double": "f64",
}
"""Types as C and Rust spell them, where a long has 64 bits; besides those of _SIZED."""
USER_STRING = "ustring"
"""A string in user memory, for a kernel."""
INSTEAD = {"char": "u8", USER_STRING: "string", "symstr": "symbol", "string_size": "string"}
"""The kernel's types that are not supported here, and what to use instead. All of a program's
memory is user memory."""
_SIZED = re.compile(r"(?:__)?(u|s|i|uint|int)(8|16|32|64)(?:_t)?")
_COLON = re.compile(r"(?<!:):(?!:|%)")
"""What stands before a TYPE: not the one of ``ns::name``, nor that of ``%edx:%eax``."""
_BITFIELD = re.compile(r"b[0-9]+@.*")
COMPARED = {"==", "!=", "<", "<=", ">", ">=", "&", "&&", "||", "~"}
"""Words of a filter that stand where a value should."""
_VALUES = "%REG, @SYMBOL, $stack, $retval, $argN, $comm, \\NUMBER"
ADDRESSES = {Source.ARGUMENT, Source.RETVAL, Source.REGISTER, Source.STACK_WORD}
"""Values of which a string is what they point to."""


class Named(Protocol):
    """Fetches names of the source."""

    def __call__(self, value: Token, kind: Token | None) -> Fetch:
        """Fetch a name, given the type that stands behind it. Raises UsageError."""
        ...

    def returned(self, value: Token) -> Fetch | None:
        """Fetch what a function returns, if that is a float or has several words; None for anything
        else. Raises UsageError."""
        ...


class Later:
    """Stands for what fetches names of the source, until that is known: ``asked`` for any;
    ``hoped``: for what a function returns, whatever that is."""

    def __init__(self) -> None:
        self.asked = self.hoped = False

    def __call__(self, value: Token, kind: Token | None) -> Fetch:
        """Hold the name and its place, if it is one. Raises UsageError."""
        parse_source_name(value)
        self.asked = True
        return Fetch("", Source.VARIABLE, value.text, value.start)

    def returned(self, value: Token) -> None:
        """Hold that it may be a float."""
        self.hoped = True


@dataclass(frozen=True, slots=True)
class Scope:
    """The context of a fetch: the registers' names, how many arguments the machine passes in
    registers, whether the probe is at a function's return or at its entry, and whether it is a
    kernel that will fetch it; ``named`` fetches what the source names, None if nothing can be;
    ``vectors``: names of the vector registers."""

    registers: Collection[str]
    arguments: int
    returns: bool
    entry: bool
    kernel: bool = False
    named: Named | None = None
    vectors: Sequence[str] = ()


def parse_fetch(word: Token, number: int, scope: Scope) -> Fetch:
    """Parse the ``number``-th argument of a probe, from 1. Raises UsageError."""
    at = word.text.find("=")
    if at == 0:
        raise word.refuse("argument name is not specified", "add a name before the `=`")
    body = word.cut(at + 1)
    colon = found.start() if (found := _COLON.search(body.text)) else -1
    value = body if colon < 0 else body.cut(0, colon)
    name = word.text[:at] if at >= 0 else _name(value, number)
    if at > NAME_LIMIT:
        hint = f"at most {NAME_LIMIT} characters"
        raise word.cut(0, at).refuse("argument name is too long", hint)
    if not NAME.fullmatch(name):
        raise word.cut(0, at).refuse(
            "argument name must follow the same rules as C identifiers",
            "use letters, digits and `_`",
        )
    if not value.text:
        raise value.refuse("no argument expression", _values(scope))
    kind = None if colon < 0 else body.cut(colon + 1)
    if scope.named is not None and is_source_name(value.text):
        return replace(scope.named(value, kind), name=name)
    if scope.kernel and is_source_name(value.text):
        raise value.refuse("a kernel's probes take no names of the source", _values(scope))
    if scope.named is not None and value.text == RETURNED and kind is None and scope.returns:
        floating = scope.named.returned(value)
        if floating is not None:
            return replace(floating, name=name)
    source, reads, user = _dereferences(value, scope)
    kind, names, room, other = parse_shown(kind) if kind else (None, (), 0, "")
    if kind and kind.text == "string" and not reads and source[0] in ADDRESSES:
        reads = (0,)
    type = _type(value, kind, source[0], bool(reads), scope)
    user = user if scope.kernel else frozenset()
    return Fetch(name, *source, reads, type, user, names=names, room=room, other=other)


def _name(value: Token, number: int) -> str:
    """The name of a value that was given none: of what the source names, its last word, unless that
    has letters that a name of the kernel's may not have."""
    last = WORD.findall(value.text)[-1] if is_source_name(value.text) else ""
    return last[:NAME_LIMIT] if NAME.fullmatch(last) else f"arg{number}"


_First = tuple[Source, str, int]
"""Source, text and value of a Fetch."""


def _dereferences(value: Token, scope: Scope) -> tuple[_First, tuple[int, ...], frozenset[int]]:
    """Split nested dereferences: the innermost contents, the offsets from the inside out, and which
    of them are in user memory."""
    offsets: list[int] = []
    users: list[bool] = []
    inner = value
    while inner.text[:1] in ("+", "-"):
        brace = inner.text.find("(")
        if brace < 0:
            raise inner.refuse("dereference needs a brace", "use +OFFSET(VALUE)")
        digits = inner.text[1:brace].removeprefix("u")
        offset = read_number(digits)
        if offset is not None and inner.text[0] == "-":
            offset = -offset
        if offset is None or not -(1 << 31) <= offset < 1 << 31:
            hint = "use a signed 32-bit number"
            raise inner.cut(0, brace).refuse("invalid dereference offset", hint)
        closed = inner.text.rfind(")") + 1
        if not closed:
            raise inner.refuse("dereference brace is not closed", "add a `)`")
        if closed < len(inner.text):
            raise inner.cut(closed).refuse("only a type may follow a dereference")
        offsets.append(offset)
        users.append(inner.text[1:2] == "u")
        inner = inner.cut(brace + 1, closed - 1)
    first = _first(inner, scope)
    if first[0] in (Source.SYMBOL, Source.ADDRESS):
        offsets.append(0)
        users.append(False)
    if len(offsets) > READS:
        raise value.refuse("dereference is too much nested", f"at most {READS}")
    if offsets and first[0] is Source.COMM:
        raise value.refuse("$comm can not be dereferenced", "use $comm alone")
    user = frozenset(row for row, one in enumerate(reversed(users)) if one)
    return first, tuple(reversed(offsets)), user


def _first(value: Token, scope: Scope) -> _First:
    mark, rest = value.text[:1], value.text[1:]
    if mark == "$":
        return _variable(value, scope)
    if mark == "%":
        return _register(value, scope)
    if mark == "@":
        return _memory(value)
    if mark == "\\":
        number = read_number(rest.removeprefix("+").removeprefix("-"))
        if rest.startswith('"'):
            raise value.refuse("an immediate string is not supported", "use a number")
        if number is None or rest.startswith("+-") or (rest[:1] == "-" and number > 1 << 63):
            raise value.refuse("invalid immediate value", "use a 64-bit number")
        return Source.IMMEDIATE, "", -number if rest[0] == "-" else number
    if value.text in COMPARED:
        hint = "write `if` before the filter, as in: if n > 3"
        raise value.refuse("invalid fetch argument", hint)
    raise value.refuse("invalid fetch argument", _values(scope))


def _values(scope: Scope) -> str:
    """The hint that lists what can be fetched."""
    if scope.kernel:
        return f"a value is {_VALUES} or +OFFSET(VALUE)"
    return f"a value is {_VALUES}, +OFFSET(VALUE) or NAME"


def _register(value: Token, scope: Scope) -> _First:
    upper, pair, lower = value.text.partition(":%")
    if pair and not scope.kernel:
        for one in (value.cut(0, len(upper)), value.cut(len(upper) + 1)):
            _require_general(one, scope)
        return Source.PAIR, f"{upper[1:]}:{lower}", 0
    name, vectors = value.text[1:], scope.vectors
    if name in vectors and scope.kernel:
        raise value.refuse("a kernel's code has no floats", "leave it out")
    if name not in scope.registers and name not in vectors:
        names = sorted(scope.registers)
        more = _ranges(vectors) if not scope.kernel else []
        known = f"one of {', '.join([*names, *more])}" if names else ""
        like = near(name, [*names, *vectors] if more else names)
        raise value.refuse("invalid register name", meant([f"%{one}" for one in like], known))
    return Source.REGISTER, name, 0


def _require_general(value: Token, scope: Scope) -> None:
    if value.text[1:] not in scope.registers:
        raise value.refuse("invalid register name", "a pair is of general registers")


def _ranges(names: Sequence[str]) -> list[str]:
    """Numbered names, each sort as its first and its last one."""
    sorts: dict[str, list[str]] = {}
    for name in names:
        sorts.setdefault(name.rstrip("0123456789"), []).append(name)
    return [f"{some[0]} to {some[-1]}" for some in sorts.values()]


def _variable(value: Token, scope: Scope) -> _First:
    name, found = value.text[1:], re.fullmatch(r"(stack|arg)([0-9]{1,20})", value.text[1:])
    if name == "comm":
        return Source.COMM, "", 0
    if name == "stack":
        return Source.STACK, "", 0
    if name == "retval":
        if not scope.returns:
            raise value.refuse("$retval is not available on probe", "use an r probe")
        return Source.RETVAL, "", 0
    if found is None:
        like = [f"${one}" for one in near(name, VARIABLES)]
        hint = meant(like, "use $stack, $stackN, $retval, $argN or $comm")
        raise value.refuse("invalid $-variable specified", hint)
    number = int(found[2])
    if found[1] == "stack":
        if number > STACK_WORDS:
            raise value.refuse("invalid stack number", f"at most {STACK_WORDS}")
        return Source.STACK_WORD, "", number
    if not scope.entry:
        hint = "use a p probe at FUNC" if scope.returns else "use a register, or a probe at FUNC"
        raise value.refuse("$argN can be used only on function entry", hint)
    if not number:
        raise value.refuse("invalid argument number", "arguments count from 1")
    if number > (scope.arguments if scope.kernel else scope.arguments + STACK_WORDS):
        hint = f"the first {scope.arguments} are in registers; use $stackN for the others"
        raise value.refuse("$argN index is too big", hint)
    return Source.ARGUMENT, "", number


def _memory(value: Token) -> _First:
    text = value.text[1:]
    if text.startswith("+"):
        raise value.refuse("file offset is not available", "use @SYMBOL or @0xADDRESS")
    if text[:1].isdigit():
        address = read_number(text)
        if address is None:
            raise value.refuse("invalid memory address", "use a 64-bit number")
        return Source.ADDRESS, "", address
    sign = re.search(r"[+-]", text)
    symbol = text[: sign.start()] if sign else text
    offset = read_number(text[sign.end() :]) if sign else 0
    if not SYMBOL.fullmatch(symbol) or offset is None or offset >= 1 << 63:
        raise value.refuse("invalid memory address", "use @SYMBOL, @SYMBOL+OFFSET or @0xADDRESS")
    return Source.SYMBOL, symbol, -offset if sign and sign[0] == "-" else offset


def _type(value: Token, kind: Token | None, source: Source, memory: bool, scope: Scope) -> str:
    """Determine a value's type. Raises UsageError for one that is unknown or does not fit the
    value."""
    kernel = scope.kernel
    if kind is None:
        return "string" if source is Source.COMM else DEFAULT_TYPE
    name = kind.text
    if kernel and name == USER_STRING:
        if not memory:
            raise _no_memory(value, name)
        return name
    if "[" in name:
        raise kind.refuse("arrays are not supported", "fetch each element at its offset")
    if _BITFIELD.fullmatch(name):
        raise kind.refuse("bitfields are not supported", "fetch the whole word, as x8 to x64")
    if name in INSTEAD:
        raise kind.refuse(f"type {name} is not supported", f"take {INSTEAD[name]}")
    if name not in TYPES:
        known = [one for one in TYPES if not (kernel and one in FLOATS)]
        like = [one for one in _types_like(name) if one in known]
        hint = meant(like, f"one of {', '.join(known)}")
        raise kind.refuse("unknown type is specified", hint)
    if kernel and name in FLOATS:
        hint = f"write x{8 * TYPES[name]} for its bits"
        raise kind.refuse("a kernel's probes have no floats", hint)
    if name in FLOATS and not memory and source is Source.ARGUMENT and scope.arguments:
        hint = f"write +0({value.text}):{name} for one in memory"
        if scope.vectors:
            hint = f"write %{scope.vectors[0]}:{name} for the first float"
        raise kind.refuse(f"{value.text} is an integer register", hint)
    if source is Source.COMM and name != "string":
        raise kind.refuse("$comm only accepts string type", "remove the type")
    if name == "string" and not memory and source is not Source.COMM:
        raise _no_memory(value, name)
    return name


def _types_like(name: str) -> list[str]:
    """The types that a word may have meant."""
    if sized := _SIZED.fullmatch(name):
        return [("u" if sized[1][0] == "u" else "s") + sized[2]]
    if name in ELSEWHERE:
        return [ELSEWHERE[name]]
    return ["x64"] if name.endswith("*") else near(name, TYPES, TYPE_ALIKE)


def _no_memory(value: Token, name: str) -> UsageError:
    address = value.text[0] == "\\" and value.text[1].isdigit()
    hint = f"write @{value.text[1:]}:{name}" if address else f"write +0({value.text}):{name}"
    return value.refuse(f"{name} accepts only memory argument", hint)
