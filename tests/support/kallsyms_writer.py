# SPDX-License-Identifier: MIT
"""A writer of the tables that scripts/kallsyms.c makes, in all their orders and forms, for tests.

`TOKENS` stands in for the script's choice of tokens: it does not matter which are chosen.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

__all__ = ["LAYOUTS", "Layout", "Written", "write_kallsyms"]

TOKENS = {0x80: "sys_", 0x81: "__x64_sys_", 0x82: "Tv", 0xFF: "_end", 0xF0: "a" * 40}
PER_MARKER = 256


@dataclass(frozen=True)
class Layout:
    """How a version lays its tables. ``form``: relative, percpu, place or absolute; ``numbers``:
    bytes of num_syms and of a marker; ``seqs``: bytes for each symbol behind the markers, or, in
    the new order, behind everything; ``align``: bytes, 0 for the word."""

    name: str
    new: bool
    form: str
    numbers: int = 4
    seqs: int = 0
    align: int = 0


LAYOUTS = (
    Layout("v4.4", False, "absolute", numbers=8),
    Layout("v4.19", False, "relative", numbers=8),
    Layout("v5.10", False, "relative"),
    Layout("v5.10-percpu", False, "percpu"),
    Layout("v5.10-absolute", False, "absolute"),
    Layout("v6.2", False, "relative", seqs=3),
    Layout("v6.2-percpu", False, "percpu", seqs=4),
    Layout("v6.4", True, "relative", seqs=3),
    Layout("v6.4-percpu", True, "percpu", seqs=3),
    Layout("v6.4-absolute", True, "absolute", seqs=3),
    Layout("v7.2", True, "place", seqs=3, align=4),
)


@dataclass(frozen=True)
class Written:
    """The bytes, and where in them (offsets) each table begins."""

    data: bytes
    at: dict[str, int]


def write_kallsyms(
    symbols: list[tuple[int, str, str]], layout: Layout, word: int, start: int, base: int = 0
) -> Written:
    """Tables of (address, type, name), which must be sorted; they will stand at address ``start``.
    ``base`` stands in relative_base instead of the lowest address, where it is not 0."""
    align = layout.align or word
    number = min(layout.numbers, word)
    table, index = _token_tables()
    packed = [_pack(kind + name) for _, kind, name in symbols]
    names, markers = bytearray(), bytearray()
    for row, one in enumerate(packed):
        if row % PER_MARKER == 0:
            markers += len(names).to_bytes(number, "little")
        names += one
    own = base or min(address for address, kind, _ in symbols if kind not in "Aa")
    addressed = ["addresses"] if layout.form == "absolute" else ["offsets", "relative_base"]
    if layout.form == "place":
        addressed = ["offsets"]
    middle = ["num_syms", "names", "markers"]
    tokens = ["token_table", "token_index"]
    seqs = ["seqs_of_names"] if layout.seqs else []
    order = (
        [*middle, *tokens, *addressed, *seqs]
        if layout.new
        else [*addressed, *middle, *seqs, *tokens]
    )
    part = {
        "num_syms": len(symbols).to_bytes(number, "little"),
        "names": bytes(names),
        "markers": bytes(markers),
        "token_table": table,
        "token_index": index,
        "relative_base": own.to_bytes(word, "little"),
        "seqs_of_names": bytes(range(1, 1 + layout.seqs)) * len(symbols),
    }
    out, at = bytearray(), {}
    for name in order:
        out += bytes(-len(out) % align)
        at[name] = len(out)
        if name in ("offsets", "addresses"):
            part[name] = _addresses(symbols, layout.form, word, start + len(out), own)
        out += part[name]
    return Written(bytes(out), at)


def _token_tables() -> tuple[bytes, bytes]:
    table, index = bytearray(), bytearray()
    for code in range(256):
        index += struct.pack("<H", len(table))
        own = chr(code) if 0x21 <= code < 0x7F else ""
        table += TOKENS.get(code, own).encode() + b"\0"
    return bytes(table), bytes(index)


def _pack(text: str) -> bytes:
    codes = bytearray()
    while text:
        code = next((c for c, token in TOKENS.items() if text.startswith(token)), ord(text[0]))
        codes.append(code)
        text = text[len(TOKENS.get(code, " ")) :]
    if len(codes) < 0x80:
        return bytes([len(codes), *codes])
    return bytes([len(codes) & 0x7F | 0x80, len(codes) >> 7, *codes])


def _addresses(
    symbols: list[tuple[int, str, str]], form: str, word: int, place: int, base: int
) -> bytes:
    out = bytearray()
    for row, (address, kind, _) in enumerate(symbols):
        if form == "absolute":
            out += address.to_bytes(word, "little")
        elif form == "place":
            out += struct.pack("<i", address - place - 4 * row)
        elif form == "percpu":
            out += struct.pack("<i", address if kind in "Aa" else base - address - 1)
        else:
            out += struct.pack("<I", address - base)
    return bytes(out)
