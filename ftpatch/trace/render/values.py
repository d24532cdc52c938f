# SPDX-License-Identifier: MIT
"""Hits as parts of lines, and their values: for people, and in JSON."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from ftpatch.trace.address_names import Places
from ftpatch.trace.hits import FLOATS, Column, Group, Hits, Show, floats
from ftpatch.trace.render.cells import Cells, decimals, hexadecimals, lines, texts

__all__ = [
    "FAULT",
    "MARK",
    "Part",
    "by_file",
    "escaped",
    "hit_parts",
    "json_values",
    "lines_of_hits",
    "text_parts",
    "value_cells",
    "whole",
]

Part = bytes | Cells
STEP = 1 << 18
"""Hits rendered at a time."""
MARK = b"..."
"""Suffix of a string as long as an event holds, as in strace; ftrace adds none."""
FAULT = b"(fault)"
"""Stands for memory that could not be read: ``print_type_string`` of trace_probe.c."""
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
PLAIN = np.array([c == 0 or (32 <= c < 127 and c not in b'"\\') for c in range(256)], bool)
"""Bytes of strings that text and JSON print unescaped."""


def lines_of_hits(
    hits: Hits,
    make: Callable[[Group], Iterator[Part]],
    below: Callable[[Group], list[bytes]] | None = None,
) -> Iterator[bytes]:
    """Render a line for each hit, in order; ``make`` returns the parts for one point's, ``below``
    further lines with a line end before each."""
    for first in range(0, len(hits), STEP):
        number = hits.point[first : first + STEP]
        out = np.empty(len(number), object)
        for point in np.unique(number).tolist():
            mine = np.flatnonzero(number == point)
            group = hits.group(point, mine + first)
            out[mine] = lines(len(mine), make(group))
            if below is not None and group.stack is not None:
                out[mine] += np.array(below(group), object)
        yield b"\n".join(out.tolist()) + b"\n"


def value_cells(
    one: Column, event: Group, places: Places, *, for_json: bool, mark: bytes = b""
) -> list[Part]:
    """Render a value: as ftrace prints it, or ``for_json``, where unreadable values are null, and
    hexadecimal numbers, symbols, infinities and NaN are strings. ``mark`` follows cut strings:
    after the quote, in JSON before it."""
    fault = b"null" if for_json else FAULT
    show = one.field.show
    if show is Show.STRING:
        quote = Cells(np.full((len(one.lost), 1), ord('"'), np.uint8)).where(one.lost)
        behind = texts([b"", mark], one.cut.astype(np.intp))
        end = [behind, quote] if for_json else [quote, behind]
        return [quote, _string(one, for_json).where(one.lost, fault), *end]
    if one.field.names:
        return [_named(one, for_json=for_json).where(one.lost, fault)]
    if show in (Show.UNSIGNED, Show.SIGNED):
        return [decimals(one.number).where(one.lost, fault)]
    if show in FLOATS:
        return [_floating(one, for_json=for_json).where(one.lost, fault)]
    if show is Show.SYMBOL:
        cells = by_file(event, one.number.view(np.uint64), places.symbols, as_json=for_json)
        return [cells.where(one.lost, fault)]
    cells = hexadecimals(one.number)
    if not for_json:
        return [cells.where(one.lost, fault)]
    quote = Cells(np.full((len(one.lost), 1), ord('"'), np.uint8)).where(one.lost)
    return [quote, cells.where(one.lost, fault), quote]


def _floating(one: Column, *, for_json: bool) -> Cells:
    """Floats and doubles; JSON has no infinities and no NaN."""
    distinct, index = np.unique(one.number, return_inverse=True)
    values = floats(distinct, one.field.show)
    pairs = zip(map(str, values), np.isfinite(values).tolist(), strict=True)
    return texts([text if good or not for_json else f'"{text}"' for text, good in pairs], index)


def _named(one: Column, *, for_json: bool) -> Cells:
    """Values by their names, the others as numbers."""
    names = dict(one.field.names)
    distinct, index = np.unique(one.number, return_inverse=True)
    made = []
    for number in distinct.tolist():
        name = names.get(number, one.field.other)
        made.append((json.dumps(name) if for_json else name) if name else str(number))
    return texts(made, index)


def by_file(
    event: Group,
    addresses: NDArray[np.uint64],
    name: Callable[[int, NDArray[np.uint64]], list[str]],
    *,
    as_json: bool = False,
) -> Cells:
    """Texts of the addresses of events, each made once; ``as_json`` with quotes."""
    made: list[str] = []
    index = np.zeros(len(addresses), np.intp)
    for number in np.unique(event.owner).tolist():
        mine = np.flatnonzero(event.owner == number)
        distinct, found = np.unique(addresses[mine], return_inverse=True)
        index[mine] = found + len(made)
        made += name(number, distinct)
    return texts([json.dumps(text) for text in made] if as_json else made, index)


def hit_parts(event: Group, places: Places) -> Iterator[Part]:
    """Render hits as ftrace prints probe events, without task and time."""
    point = event.point
    yield f"{places.shown(point.name)}: (".encode()
    if point.returns:
        yield by_file(event, event.caller, places.callers)
        yield f" <- {places.function(event.header, point)[0]})".encode()
    else:
        yield f"{places.point(event.header, point)})".encode()
    yield from text_parts(event, places)


def text_parts(event: Group, places: Places) -> Iterator[Part]:
    """Values as ftrace prints them, with a blank before each."""
    for one in event.values:
        yield f" {one.field.name}=".encode()
        yield from value_cells(one, event, places, for_json=False, mark=MARK)


def json_values(event: Group, places: Places, *, mark: bytes = b"") -> Iterator[Part]:
    """Names and values of a JSON object."""
    for number, one in enumerate(event.values):
        yield f"{', ' * bool(number)}{json.dumps(one.field.name)}: ".encode()
        yield from value_cells(one, event, places, for_json=True, mark=mark)


def whole(raw: bytes, room: int) -> bytes:
    """Render a string; drop a partial character at the end of one that fills the ``room``."""
    if len(raw) < room:
        return raw
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    return decoder.decode(raw).encode("utf-8", "surrogateescape")


def _string(one: Column, for_json: bool) -> Cells:
    """Strings without their quotes."""
    odd = np.flatnonzero(~PLAIN[one.text].all(axis=1))
    if not len(odd):
        return Cells(one.text)
    known: dict[bytes, int] = {}
    raw = np.ascontiguousarray(one.text[odd]).view(f"S{one.text.shape[1]}").ravel().tolist()
    index = np.array([known.setdefault(string, len(known)) for string in raw])
    room = one.field.room
    made = texts([_escaped(whole(string, room), for_json) for string in known]).table
    out = np.zeros((len(one.text), max(one.text.shape[1], made.shape[1])), np.uint8)
    out[:, : one.text.shape[1]] = one.text
    out[odd] = 0
    out[odd, : made.shape[1]] = made[index]
    return Cells(out)


def escaped(string: bytes) -> str:
    """Escape a string up to its NUL: terminal control sequences, and what is not UTF-8."""
    text = string.partition(b"\0")[0].decode("utf-8", "surrogateescape")
    return "".join(_ESCAPES.get(c) or (c if c.isprintable() else _bytes_of(c)) for c in text)


def _escaped(raw: bytes, for_json: bool) -> str:
    if for_json:
        return json.dumps(raw.decode("utf-8", "backslashreplace"))[1:-1]
    return escaped(raw)


def _bytes_of(character: str) -> str:
    raw = character.encode("utf-8", "surrogateescape")
    return "".join(f"\\x{byte:02x}" for byte in raw)
