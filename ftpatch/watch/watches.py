# SPDX-License-Identifier: MIT
"""Watches, and requests that change them: ``ksym_trace_filter_write`` of trace_ksym.c.

The default length is the symbol's if that is 1, 2, 4 or 8 bytes. Otherwise, and with an offset, it
is 4 bytes, or the largest smaller one that is aligned and ends within the symbol: no byte of a
neighbour is watched unless an explicit length reaches it. Addresses must be multiples of the
length, as x86 requires (SDM vol. 3, section 18.2.5, "Breakpoint Field Recognition").
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from ftpatch.core.stack_word import Stack, stack_text
from ftpatch.core.token import Token
from ftpatch.errors import UsageError
from ftpatch.inject.runtime_steps import Row
from ftpatch.names.demangle import demangled
from ftpatch.watch.grammar import CLEAR, EVERY, LENGTHS, Request, parse_watch

if TYPE_CHECKING:
    from ftpatch.watch.homes import Home

__all__ = ["Watch", "apply_requests", "readable", "watch_line"]

USUAL = 4
"""Bytes: the ksym tracer's HW_BREAKPOINT_LEN_4."""
_PREFIXES = {"rw-": "rw", "-w-": "w", "r--": "r"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """``length`` bytes at ``address`` (virtual), which is ``symbol`` + ``offset`` (bytes), watched
    as ``type`` says: ``rw-``, ``-w-`` or ``r--``. ``usual``: the length is the default;
    ``library`` that has the symbol, empty for the program. ``filter``: which accesses are recorded,
    empty for all, and ``rows``, that as the runtime's steps, where they are known; ``stack``: how
    many of the calls that led there are recorded; ``home`` of the variable, if that is a library
    of a program's file."""

    symbol: str
    offset: int
    address: int
    length: int
    type: str
    usual: bool = True
    library: str = ""
    filter: str = ""
    rows: tuple[Row, ...] = ()
    stack: int = 0
    home: Home | None = None


Named = TypeVar("Named", Watch, Request)


def apply_requests(
    watched: Sequence[Watch],
    requests: Sequence[Request],
    *,
    slots: int,
    resolve: Callable[[str], tuple[int, int]],
    read_only: bool,
    longest: int = 8,
    filtered: Callable[[Token, Watch], tuple[Row, ...]] | None = None,
) -> tuple[tuple[Watch, ...], list[str]]:
    """Apply the requests of one command in order; return the resulting watches, and notes on them.

    ``slots``: the CPU's number of breakpoints. ``resolve`` returns address and size (bytes, 0:
    unknown) of a request's ``place``, and raises UsageError for one that does not exist.
    ``read_only``: the CPU can watch reads alone, as arm64's can; otherwise they are watched
    together with writes, and a note says so. ``longest``: the CPU's maximum length in bytes, 4 on
    32-bit x86. ``filtered`` translates a filter of a watch.

    Watches are identified by address, as in the kernel: another type, length or filter for a
    watched address replaces the old one. Either all requests take effect or none: raises UsageError
    for the first that cannot.
    """
    now = {watch.address: watch for watch in watched}
    notes: list[str] = []
    seen: set[int | None] = set()
    for request in requests:
        line = _line(readable(request))
        place = _address(request, line, resolve)
        address = place[0] if place else None
        if address in seen:
            hint = "combine the requests"
            raise UsageError(None, f"{line}: duplicate request", hint)
        seen.add(address)
        if place is None:
            now.clear()
        elif request.type == CLEAR:
            if now.pop(place[0], None) is None:
                raise UsageError(None, f"{line}: no such watch to clear", _told(now.values()))
        else:
            taken = request
            if request.type == "r--" and not read_only:
                notes.append(f"{line}: this CPU cannot watch reads alone; writes are watched too")
                taken = replace(request, type="rw-")
            watch = _watch(taken, line, *place, longest)
            if request.filter is not None and filtered is not None:
                watch = replace(watch, rows=filtered(request.filter, watch))
            _set(now, watch, line, slots)
    return tuple(now.values()), notes


def readable(one: Named) -> Named:
    """Replace a mangled C++ name by the source's, if a request can use it."""
    name = demangled(one.symbol)
    try:
        known = name == one.symbol or parse_watch(f"{name}:rw-").symbol == name
    except UsageError:
        known = False
    return replace(one, symbol=name) if known else one


def watch_line(watch: Watch) -> str:
    """Format a watch unambiguously: ``table+16:-w-``, or ``w@table+16:2`` if the length is not the
    default. ``parse_watch`` turns it back into the request."""
    return _line(
        Request(
            watch.symbol,
            watch.offset,
            None if watch.usual else watch.length,
            watch.type,
            library=watch.library,
            filter=Token.of(watch.filter) if watch.filter else None,
            stack=watch.stack,
        )
    )


def _line(request: Request) -> str:
    words = [_where(request)]
    if request.stack:
        words.append(stack_text(Stack(request.stack)))
    if request.filter is not None:
        words.append(f"if {request.filter.text}")
    return " ".join(words)


def _where(request: Request) -> str:
    place = f"{request.place}+{request.offset}" if request.offset else request.place
    # A symbol such as w@VERSION would be read as the second form.
    today = request.symbol.partition("@")[0].strip("rwx") == "" and "@" in request.symbol
    if request.type == CLEAR or (request.length is None and not today):
        return f"{place}:{request.type}"
    length = "" if request.length is None else f":{request.length}"
    return f"{_PREFIXES[request.type]}@{place}{length}"


def _address(
    request: Request, line: str, resolve: Callable[[str], tuple[int, int]]
) -> tuple[int, int] | None:
    """Address, and how many bytes of the symbol are left from there (0: unknown); None for all."""
    if request.symbol == EVERY:
        return None
    start, size = resolve(request.place)
    if size and request.offset >= size:
        hint = f"{request.symbol} has {size} bytes"
        raise UsageError(None, f"{line}: the offset is beyond the symbol", hint)
    address = start + request.offset
    if address >= 1 << 64:
        raise UsageError(None, f"{line}: no such address", "use a smaller offset")
    return address, size - request.offset if size else 0


def _watch(request: Request, line: str, address: int, left: int, longest: int) -> Watch:
    usual = _usual_length(address, left, longest, whole=not request.offset)
    length = request.length or usual
    if length > longest:
        hint = f"watch {longest} of them"
        raise UsageError(None, f"{line}: this CPU cannot watch {length} bytes", hint)
    if address % length:
        possible = max(n for n in LENGTHS if not address % n)
        raise UsageError(
            None,
            f"{line}: address {address:#x} is not aligned to {length} bytes",
            f"watch {possible} of them",
        )
    return Watch(
        symbol=request.symbol,
        offset=request.offset,
        address=address,
        length=length,
        type=request.type,
        usual=length == usual,
        library=request.library,
        filter=request.filter.text if request.filter else "",
        stack=request.stack,
    )


def _usual_length(address: int, left: int, longest: int, *, whole: bool) -> int:
    """The default length (bytes); ``left`` is what is left of the symbol."""
    limit = left if whole and left in LENGTHS else min(left or USUAL, USUAL)
    limit = min(limit, longest)
    return max(n for n in LENGTHS if n <= limit and not address % n)


def _set(now: dict[int, Watch], watch: Watch, line: str, slots: int) -> None:
    """Add a watch; raises UsageError for a duplicate, or one too many."""
    old = now.get(watch.address)
    if old is None and len(now) >= slots:
        raise UsageError(
            None,
            f"{line}: Maximum limit:({slots}) reached, no new requests can be accepted now",
            "remove one first, as with SYMBOL:---",
        )
    if old is not None and _what(old) == _what(watch):
        raise UsageError(None, f"{line}: already exists", "it is being watched")
    now[watch.address] = watch


def _what(watch: Watch) -> tuple[object, ...]:
    """What is watched of an address."""
    return watch.type, watch.length, watch.filter, watch.stack


def _told(watches: Collection[Watch]) -> str:
    said = ", ".join(watch_line(readable(watch)) for watch in watches)
    return f"watched: {said}" if watches else "nothing is watched"
