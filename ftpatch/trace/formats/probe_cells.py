"""Cells of probe events: for people, and in JSON."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from ftpatch.probe import format_value
from ftpatch.probe.address_names import Places
from ftpatch.probe.fetched import MOST, Fetched, Seen, seen
from ftpatch.probe.hits import Hits
from ftpatch.trace.formats.cells import Cells, decimals, hexadecimals, lines, texts

__all__ = ["MARK", "Part", "by_file", "rendered", "value_cells", "whole"]

Part = bytes | Cells
STEP = 1 << 18
"""Events to report at a time."""
MARK = b"..."
"""Behind a string that is as long as an event holds, as strace has it; ftrace says nothing."""
FAULT = b"(fault)"
PLAIN = np.array([c == 0 or (32 <= c < 127 and c not in b'"\\') for c in range(256)], bool)
"""Bytes of strings that are told as they are, by text and JSON."""


def rendered(hits: Hits, make: Callable[[Seen], Iterator[Part]]) -> Iterator[bytes]:
    """A line for each event, in their order; ``make`` gives the parts of one probe's."""
    for first in range(0, len(hits), STEP):
        number = hits.probe[first : first + STEP]
        out = np.empty(len(number), object)
        for probe in np.unique(number).tolist():
            mine = np.flatnonzero(number == probe)
            out[mine] = lines(len(mine), make(seen(hits, probe, mine + first)))
        yield b"\n".join(out.tolist()) + b"\n"


def value_cells(
    one: Fetched, event: Seen, places: Places, *, for_json: bool, mark: bytes = b""
) -> list[Part]:
    """A value: as ftrace prints it, or ``for_json``, where what could not be read is null, and
    hexadecimal numbers and symbols are strings. ``mark`` is put behind cut strings: behind the
    quote, in JSON before it."""
    fault = b"null" if for_json else FAULT
    kind = one.fetch.type
    if kind == "string":
        quote = Cells(np.full((len(one.lost), 1), ord('"'), np.uint8)).where(one.lost)
        behind = texts([b"", mark], one.cut.astype(np.intp))
        end = [behind, quote] if for_json else [quote, behind]
        return [quote, _string(one, for_json).where(one.lost, fault), *end]
    if kind[0] in "us" and kind != "symbol":
        return [decimals(one.number).where(one.lost, fault)]
    if kind == "symbol":
        cells = by_file(event, one.number.view(np.uint64), places.symbols, as_json=for_json)
        return [cells.where(one.lost, fault)]
    cells = hexadecimals(one.number)
    if not for_json:
        return [cells.where(one.lost, fault)]
    quote = Cells(np.full((len(one.lost), 1), ord('"'), np.uint8)).where(one.lost)
    return [quote, cells.where(one.lost, fault), quote]


def by_file(
    event: Seen,
    addresses: NDArray[np.uint64],
    name: Callable[[int, NDArray[np.uint64]], list[str]],
    *,
    as_json: bool = False,
) -> Cells:
    """Texts of the addresses of events, each made once; ``as_json`` with quotes."""
    file = event.hits.trace.chunks.owner[event.thread]
    made: list[str] = []
    index = np.zeros(len(addresses), np.intp)
    for number in np.unique(file).tolist():
        mine = np.flatnonzero(file == number)
        distinct, found = np.unique(addresses[mine], return_inverse=True)
        index[mine] = found + len(made)
        made += name(number, distinct)
    return texts([json.dumps(text) for text in made] if as_json else made, index)


def whole(raw: bytes) -> bytes:
    """A string; one that is cut without the bytes of a character that is not all there."""
    if len(raw) < MOST:
        return raw
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    return decoder.decode(raw).encode("utf-8", "surrogateescape")


def _string(one: Fetched, for_json: bool) -> Cells:
    """Strings without their quotes."""
    odd = np.flatnonzero(~PLAIN[one.text].all(axis=1))
    if not len(odd):
        return Cells(one.text)
    known: dict[bytes, int] = {}
    raw = np.ascontiguousarray(one.text[odd]).view(f"S{one.text.shape[1]}").ravel().tolist()
    index = np.array([known.setdefault(string, len(known)) for string in raw])
    made = texts([_escaped(string, for_json) for string in known]).table
    out = np.zeros((len(one.text), max(one.text.shape[1], made.shape[1])), np.uint8)
    out[:, : one.text.shape[1]] = one.text
    out[odd] = 0
    out[odd, : made.shape[1]] = made[index]
    return Cells(out)


def _escaped(raw: bytes, for_json: bool) -> str:
    if for_json:
        return json.dumps(whole(raw).decode("utf-8", "backslashreplace"))[1:-1]
    return format_value("string", 0, string=whole(raw))[1:-1]
