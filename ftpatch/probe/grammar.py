# SPDX-License-Identifier: MIT
"""A probe's line: ``p[:[GRP/]NAME] PLACE [FETCHARGS] [STACK] [HIST] [if FILTER]``,
``r[MAXACTIVE]...``.

The rules and the wording of the messages follow ``trace_kprobe_create`` in
kernel/trace/trace_kprobe.c and the table ERRORS in kernel/trace/trace_probe.h, with two exceptions:
an expression may be longer than 63 characters, since C++ names are, and what the kernel silently
ignores (the ``x`` of ``rx``, text after a closing parenthesis) is refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Literal

from ftpatch.core.stack_word import Stack, is_stack, read_stack
from ftpatch.core.token import Token, read_number, words_of
from ftpatch.errors import Refused, UsageError
from ftpatch.names.spelling import PLT
from ftpatch.probe.definition import Definition, Fetch, Filter
from ftpatch.probe.event_filter import parse_filter
from ftpatch.probe.event_names import (
    GROUP,
    KERNEL_GROUP,
    NAME_LIMIT,
    EventNames,
    Pattern,
    event_name,
    template,
)
from ftpatch.probe.fetches import NAME, Later, Named, Scope, parse_fetch
from ftpatch.probe.function_place import LIBRARY, LINE, WITHIN, is_wild, parse_place
from ftpatch.probe.hist_trigger import is_hist, parse_hist

__all__ = ["parse_event", "parse_probe", "parse_probes"]

MAXACTIVE = 4096
"""KRETPROBE_MAXACTIVE_MAX."""
FETCHES = 128
"""MAX_TRACE_ARGS."""
LINE_DIGITS = 9
RESERVED = frozenset(
    [f"common_{field}" for field in ("type", "flags", "preempt_count", "pid", "tgid")]
    + [f"__probe_{field}" for field in ("ip", "ret_ip", "func")]
)
"""Fields that every event has: reserved_field_names."""
COUNTS = re.compile(r"\b(every|first)\s*\(")
"""Tests that no kernel has."""
IMPORTS = "PLT"
"""In its place: a function that is imported."""
_FORM = "use p[:NAME] FUNC[+OFFSET] or r[:NAME] FUNC, followed by fetches"


def parse_probe(
    text: str,
    registers: Collection[str],
    *,
    arguments: int,
    vectors: Sequence[str] = (),
    kernel: bool = False,
    pattern: Pattern = Pattern.NONE,
    named: Named | None = None,
) -> Definition:
    """Parse a line of kprobe_events.

    ``registers`` are the machine's names for ``%REG``, and ``vectors`` those of vector registers;
    ``arguments`` is how many of a function's arguments are passed in registers, the last ``$argN``.
    What a ``kernel`` will be told may be in user memory, and its default group is the kernel's.
    With a ``pattern``, FUNC may be one, and NAME may have a ``*`` for the function's. What the
    source names is fetched as ``named`` says; while that is ``Later``, filter and histogram are not
    read. Raises UsageError, which names the offending token and its column.
    """
    words = words_of(text)
    if not words:
        raise UsageError(None, "empty probe", _FORM)
    usual, wild = KERNEL_GROUP if kernel else GROUP, pattern is not Pattern.NONE
    kind, maxactive, group, name = _head(words[0], usual, wild)
    if len(words) < 2:
        raise words[0].cut(len(words[0].text)).refuse("no function in the probe", _FORM)
    line = LINE.fullmatch(words[1].text)
    if line and kernel:
        raise words[1].refuse("a kernel's probes take no lines of the source", "use FUNC+OFFSET")
    library = LIBRARY.match(words[1].text) if line is None else line
    place = words[1].cut(library.end()) if library else words[1]
    file, number = _line(words[1], line, kind) if line else ("", 0)
    returns, symbol, offset, address = (
        parse_place(place, kind == "r", pattern) if line is None else (False, None, 0, None)
    )
    imported = wild and line is None and library is not None and library[1] == IMPORTS
    kind = "r" if returns else "p"
    names = ""
    if symbol is not None and (pattern is Pattern.REGEX or (wild and is_wild(symbol))):
        names = template(kind, group, name)
    if name is None:
        where = f"0x{address or 0:x}" if symbol is None else f"{symbol}_{offset}"
        if line:
            where = f"{PurePath(file).name}_{number}"
        name = event_name(f"{kind}_{where}")
    elif "*" in name:
        if symbol is None:
            raise words[0].refuse("`*` in a name stands for that of a function", _FORM)
        _, name = EventNames().of_function(f"{group}/{name}", symbol)
    if imported:
        if symbol is None:
            raise place.refuse("an address is not imported", "write `p 0xADDRESS`")
        symbol = symbol.removesuffix(PLT) + PLT
    words, condition = _split(words)
    hist = words.pop() if len(words) > 2 and is_hist(words[-1]) else None
    stacks = [word for word in words[2:] if is_stack(word)]
    words = [word for word in words if word not in stacks]
    if len(words) - 2 > FETCHES:
        raise words[2 + FETCHES].refuse("too many arguments are specified", f"at most {FETCHES}")
    entry = not returns and not offset and not line  # for an address, the image decides
    scope = Scope(registers, arguments, returns, entry, kernel, named, vectors=vectors)
    fetches = _fetches(words[2:], scope)
    if condition and kernel:
        if called := WITHIN.search(condition.text):
            hint = (
                "of a running one, set_graph_function in tracefs limits the function_graph tracer"
            )
            raise condition.cut(*called.span("word")).refuse("a kernel has no within()", hint)
        if test := COUNTS.search(condition.text):
            hint = f"of a running one, `filter` in tracefs has no {test[1]}() either: leave it out"
            which = f"a kernel's probes have no {test[1]}()"
            raise condition.cut(*test.span(1)).refuse(which, hint)
        hint = "of a running one, write it to the event's `filter` in tracefs: see --print-events"
        raise condition.refuse("a kernel's probes have no filter", hint)
    if hist and kernel:
        hint = "of a running one, write it to the event's `trigger` in tracefs: see --print-events"
        raise hist.refuse("a kernel's probes have no histogram", hint)
    stack = _stack(stacks, kernel=kernel, counted=hist is not None)
    known = {fetch.name: fetch for fetch in fetches}
    hoped = isinstance(named, Later) and named.hoped and not names
    filtered = _filter(condition, known, scope, hoped=hoped) if condition else None
    later = isinstance(named, Later) and named.asked
    counted = None
    if hist and not later:  # what values can be counted by depends on their types
        counted = parse_hist(hist, known, scope)
        hoped = isinstance(named, Later) and named.hoped and not names
    return Definition(
        kind=kind,
        group=group,
        name=name,
        symbol=symbol,
        offset=offset,
        address=address,
        maxactive=maxactive,
        fetches=fetches,
        hist=counted,
        filter=None if later else filtered,
        text=words[0].whole,
        library=(library[1] or "") if library and not imported else "",
        file=file,
        line=number,
        later=later,
        hoped=hoped,
        template=names,
        stack=stack,
    )


def parse_probes(
    texts: Iterable[str],
    registers: Collection[str],
    refused: Refused,
    *,
    arguments: int,
    vectors: Sequence[str] = (),
    kernel: bool = False,
    pattern: Pattern = Pattern.NONE,
) -> tuple[Definition, ...]:
    """Parse the probes of one command with ``parse_probe``, leaving out what is ``refused``. A name
    used twice is refused too, as the kernel does with EEXIST; those of patterns come later."""
    probes, names = list[Definition](), EventNames()
    for text in texts:
        with refused.told():
            probe = parse_probe(
                text,
                registers,
                arguments=arguments,
                vectors=vectors,
                kernel=kernel,
                pattern=pattern,
                named=None if kernel else Later(),
            )
            if not probe.template:
                names.require(probe.group, probe.name, text)
            probes.append(probe)
    return tuple(probes)


def parse_event(word: Token, usual: str) -> tuple[str, str]:
    """Parse the group (``usual`` if none is given) and the name of an event. Raises UsageError for
    no name."""
    group, name = _name(word, usual, wild=False)
    if name is None:
        raise word.refuse("event name is not specified", "use -:NAME or -:GROUP/NAME")
    return group, name


def _split(words: list[Token]) -> tuple[list[Token], Token | None]:
    """Split the words before ``if`` from what follows it."""
    for number, word in enumerate(words[2:], 2):
        if word.text == "if":
            return words[:number], Token(word.whole, word.stop, len(word.whole))
    return words, None


def _head(word: Token, usual: str, wild: bool) -> tuple[Literal["p", "r"], int, str, str | None]:
    """Parse kind, maxactive, group (``usual`` if none is given) and name; the name is None if one
    has to be generated."""
    front, colon, _ = word.text.partition(":")
    number = word.cut(1, len(front))
    if front[:1] not in ("p", "r") or (front[0] == "p" and number.text[:1] not in "0123456789"):
        if word.text.startswith("-:"):
            raise word.refuse("probes are taken away from files only", "use `ftpatch undo --pid`")
        alone = word.text.isidentifier() and word.text == word.whole.strip()
        raise word.refuse(
            "a probe starts with p or r", f"write 'p {word.text}'" if alone else _FORM
        )
    group, name = _name(word.cut(len(front) + 1), usual, wild) if colon else (usual, None)
    if front[0] == "p":
        if number.text:
            raise number.refuse("maxactive is only for function exit", "use p, or an r probe")
        return "p", 0, group, name
    maxactive = read_number(number.text) if number.text else 0
    if maxactive is None or (number.text and not maxactive):
        raise number.refuse("invalid maxactive number", f"1 to {MAXACTIVE}")
    if maxactive > MAXACTIVE:
        raise number.refuse("maxactive is too big", f"at most {MAXACTIVE}")
    return "r", maxactive, group, name


def _name(word: Token, usual: str, wild: bool) -> tuple[str, str | None]:
    """Split an event's group and name; ``GRP/`` alone gives the group of a generated name. With
    ``wild``, the name may have a ``*``."""
    mark = "/" if "/" in word.text else "."
    group, slash, name = word.text.partition(mark)
    if slash:
        _check_name(word.cut(0, len(group)), "group")
        word = word.cut(len(group) + 1)
        if not name:
            return group, None
        _check_name(word, "event", wild)
        return group, name
    _check_name(word, "event", wild)
    return usual, word.text


def _check_name(word: Token, what: str, wild: bool = False) -> None:
    if not word.text:
        raise word.refuse(f"{what} name is not specified", "use p:NAME or p:GROUP/NAME")
    if len(word.text) > NAME_LIMIT:
        raise word.refuse(f"{what} name is too long", f"at most {NAME_LIMIT} characters")
    if not NAME.fullmatch(word.text.replace("*", "_", wild)):
        raise word.refuse(
            f"{what} name must follow the same rules as C identifiers",
            "use letters, digits and `_`",
        )


def _stack(words: Sequence[Token], *, kernel: bool, counted: bool) -> Stack | None:
    """What asks for stacks; None if nothing does. ``counted``: hits are, instead of being
    recorded."""
    if not words:
        return None
    word = words[0]
    if len(words) > 1:
        raise words[1].refuse("stack is given twice", "leave one out")
    if kernel:
        hint = "of a running one, write `stacktrace` to the event's `trigger` in tracefs: "
        hint += "see --print-events"
        raise word.refuse("a kernel's probes record no stacks", hint)
    if counted:
        hint = "make it a key, as in hist:keys=stack(5):fp, or use one probe for each"
        raise word.refuse("a histogram records no stacks", hint)
    return read_stack(word)


def _filter(
    condition: Token, known: Mapping[str, Fetch], scope: Scope, *, hoped: bool
) -> Filter | None:
    """The filter; None if it cannot be told yet."""
    try:
        return parse_filter(condition, known, scope)
    except UsageError:
        if isinstance(scope.named, Later) and (scope.named.asked or hoped):
            return None
        raise


def _line(word: Token, found: re.Match[str], kind: str) -> tuple[str, int]:
    """The file and the number of a line."""
    if kind == "r":
        raise word.refuse("a function returns, not a line", "use p, or r FUNC")
    if len(found[3]) > LINE_DIGITS:
        raise word.refuse("invalid line", f"at most {LINE_DIGITS} digits")
    return found[2], int(found[3])


def _fetches(words: list[Token], scope: Scope) -> tuple[Fetch, ...]:
    """Parse all arguments. Raises UsageError, also for a duplicate name."""
    fetches: dict[str, Fetch] = {}
    for number, word in enumerate(words, 1):
        fetch = parse_fetch(word, number, scope)
        if fetch.name in fetches or fetch.name in RESERVED:
            raise word.refuse(
                f"argument name {fetch.name} is already used", "use another name, as in NAME=VALUE"
            )
        fetches[fetch.name] = fetch
    return tuple(fetches.values())
