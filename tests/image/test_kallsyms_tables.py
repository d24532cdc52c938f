# SPDX-License-Identifier: MIT
"""A kernel's own symbols, in each of the forms that they have had, and damaged ones."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftpatch.core.byte_order import BIG, LITTLE
from ftpatch.elf.elf_file import Elf
from ftpatch.elf.headers import Segment, Skeleton
from ftpatch.elf.relocations import Form, Relocations
from ftpatch.elf.symbols import Symbols
from ftpatch.image.kallsyms.names import read_names
from ftpatch.image.kallsyms.own_symbols import OwnSymbols, read_own_symbols
from ftpatch.image.kallsyms.tables import find_tables
from tests.support.kallsyms_writer import LAYOUTS, TOKENS, Layout, Written, write_kallsyms

PATH = Path("kernel")
BASE = {8: 0xFFFF_FFFF_8100_0000, 4: 0xC100_0000}
BEFORE = 0x4000  # bytes of text before the tables
EXTRA = [
    ("T", "sys_read"),
    ("t", "__x64_sys_open"),
    ("W", "weak"),
    ("V", "vweak"),
    ("w", "w" * 200),  # 201 tokens: a length of two bytes
    ("D", "a" * 400),
    ("b", "with.dots.cold"),
]
every_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)


def _symbols(count: int, layout: Layout, word: int) -> list[tuple[int, str, str]]:
    """Sorted (address, type, name); some share an address."""
    made = random.Random(count)
    rows = [EXTRA[i] if i < len(EXTRA) else ("Tt"[i % 2], f"function_{i}") for i in range(count)]
    places = sorted(made.randrange(BEFORE) // 8 * 8 for _ in rows)
    places[0] = 0
    out = [(BASE[word] + at, *row) for at, row in zip(places, rows, strict=True)]
    if layout.form == "percpu":
        out[:0] = [(8 * i, "A", f"percpu_{i}") for i in range(20)]
    return out


def _written(symbols: list[tuple[int, str, str]], layout: Layout, word: int) -> Written:
    return write_kallsyms(symbols, layout, word, BASE[word] + BEFORE)


def _elf(data: bytes, word: int) -> Elf:
    image = np.frombuffer(data, np.uint8)
    segment = Segment(Segment.PT_LOAD, 7, 0, BASE[word], len(data), len(data))
    return Elf(PATH, image, Skeleton(8 * word, 0, Skeleton.ET_EXEC, (), (segment,)))


def _relocations(rows: list[tuple[int, int]]) -> Relocations:
    """RELA relocations (place, addend) of some relative type."""
    place, addend = np.array(rows, np.uint64).reshape(-1, 2).T
    count = len(place)
    return Relocations(
        place.copy(),
        np.full(count, 1027, np.uint32),
        np.zeros(count, np.uint32),
        addend.copy().view(np.int64),
        np.full(count, Form.RELA, np.uint8),
        np.zeros(count, np.int64),
        np.zeros(count, np.uint8),
    )


def _text(tail: bytes, word: int) -> bytes:
    """An image: text, the tables, and something behind them."""
    return bytes(random.Random(1).randbytes(BEFORE)) + tail + bytes(8 * word) + b"\x07" * 100


def _read(data: bytes, word: int, rows: list[tuple[int, int]] | None = None) -> OwnSymbols | None:
    return read_own_symbols(_elf(data, word), _relocations(rows or []))


def _names(own: OwnSymbols) -> list[str]:
    text = own.strings.tobytes()
    return [text[at : text.index(b"\0", at)].decode() for at in own.name.tolist()]


def _assert_is(own: OwnSymbols | None, symbols: list[tuple[int, str, str]]) -> None:
    assert own is not None
    assert own.address.tolist() == [address for address, _, _ in symbols]
    assert own.kind.tobytes().decode() == "".join(kind for _, kind, _ in symbols)
    assert _names(own) == [name for _, _, name in symbols]


@every_layout
@pytest.mark.parametrize("word", [8, 4])
@pytest.mark.parametrize("count", [257, 511, 512, 513, 1500])
def test_every_form_of_the_tables(layout: Layout, word: int, count: int) -> None:
    symbols = _symbols(count, layout, word)
    written = _written(symbols, layout, word)
    _assert_is(_read(_text(written.data, word), word), symbols)
    tables = find_tables(np.frombuffer(_text(written.data, word), np.uint8), word, LITTLE)
    assert tables is not None
    assert tables.names == BEFORE + written.at["names"]
    assert tables.before == BEFORE + written.at["num_syms"]
    assert tables.behind == BEFORE + written.at["token_index"] + 512


@pytest.mark.parametrize(
    "layout", [layout for layout in LAYOUTS if layout.form == "relative"], ids=str
)
def test_a_base_that_is_in_a_relocation(layout: Layout) -> None:
    """arm64 has 0 in the file, and the base in an addend."""
    symbols = _symbols(600, layout, 8)
    written = _written(symbols, layout, 8)
    data = bytearray(_text(written.data, 8))
    at = BEFORE + written.at["relative_base"]
    data[at : at + 8] = bytes(8)
    assert _read(bytes(data), 8) is None
    _assert_is(_read(bytes(data), 8, [(BASE[8], 1), (BASE[8] + at, BASE[8])]), symbols)


@pytest.mark.parametrize(
    "layout", [layout for layout in LAYOUTS if layout.form == "absolute"], ids=str
)
def test_addresses_that_are_in_relocations(layout: Layout) -> None:
    symbols = _symbols(600, layout, 8)
    written = _written(symbols, layout, 8)
    data = bytearray(_text(written.data, 8))
    at = BEFORE + written.at["addresses"]
    data[at : at + 8 * 600] = bytes(8 * 600)
    rows = [(BASE[8] + at + 8 * i, address) for i, (address, _, _) in enumerate(symbols)]
    _assert_is(_read(bytes(data), 8, rows), symbols)


def test_as_a_symbol_table() -> None:
    symbols = _symbols(300, LAYOUTS[2], 8)
    own = _read(_text(_written(symbols, LAYOUTS[2], 8).data, 8), 8)
    assert own is not None
    table = own.symbols(PATH)
    assert table.find("sys_read") == symbols[0][0]
    assert table.names(np.arange(7)) == [name for _, name in EXTRA]
    func, thing = Symbols.STT_FUNC, Symbols.STT_OBJECT
    assert table.type[:7].tolist() == [func, func, func, thing, func, thing, thing]
    assert table.bind[:7].tolist() == [1, 0, 2, 2, 2, 1, 0]
    assert not table.size.any()


def test_fewer_than_257_symbols_are_not_found() -> None:
    symbols = _symbols(256, LAYOUTS[2], 8)
    assert _read(_text(_written(symbols, LAYOUTS[2], 8).data, 8), 8) is None


def test_tables_of_something_else_before() -> None:
    """Digits alone, and tables whose index does not fit, are passed over."""
    symbols = _symbols(700, LAYOUTS[-1], 8)
    lure = b"".join(b"%d\0" % i for i in range(10)) + bytes(range(256)) * 4
    whole = _written(symbols, LAYOUTS[-1], 8)
    broken = bytearray(whole.data)
    broken[whole.at["token_index"] + 400] ^= 1
    before = (lure * 3 + bytes(broken)).ljust(0x9000, b"\0")
    written = write_kallsyms(symbols, LAYOUTS[-1], 8, BASE[8] + BEFORE + len(before))
    _assert_is(_read(_text(before + written.data, 8), 8), symbols)


@pytest.mark.parametrize("layout", LAYOUTS[1::3], ids=str)
def test_cut_short_anywhere(layout: Layout) -> None:
    symbols = _symbols(300, layout, 8)
    whole = _written(symbols, layout, 8).data
    for size in range(0, len(whole) - 3 * 300 - 16, 61):
        assert _read(_text(b"", 8)[:BEFORE] + whole[:size], 8) is None


@given(
    st.integers(0, len(LAYOUTS) - 1),
    st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_damage_is_never_more_than_no_table(which: int, changes: list[tuple[int, int]]) -> None:
    symbols = _symbols(300, LAYOUTS[which], 8)
    data = bytearray(_text(_written(symbols, LAYOUTS[which], 8).data, 8))
    for at, value in changes:
        data[BEFORE + at % (len(data) - BEFORE)] = value
    own = _read(bytes(data), 8)
    assert own is None or len(own) == len(symbols)


@given(st.binary(max_size=4096))
def test_anything(data: bytes) -> None:
    digits = b"".join(b"%d\0" % i for i in range(10))
    for word in (4, 8):
        for order in (LITTLE, BIG):
            for whole in (data, data + digits * 20 + data):
                assert find_tables(np.frombuffer(whole, np.uint8), word, order) is None


def test_names_that_unpack_to_too_much() -> None:
    """257 names of 400 tokens that are 300 bytes each have 31 MB; a kernel has 5."""
    saved = TOKENS[0xF0]
    TOKENS[0xF0] = "a" * 600
    try:
        symbols = [(BASE[8] + 8 * i, "T", "a" * 600 * 400) for i in range(257)]
        data = np.frombuffer(_text(_written(symbols, LAYOUTS[2], 8).data, 8), np.uint8)
        tables = find_tables(data, 8, LITTLE)
        assert tables is not None
        assert read_names(data, tables) is None
    finally:
        TOKENS[0xF0] = saved


def test_a_token_without_a_type() -> None:
    """A name whose first token is empty has no type."""
    symbols = _symbols(300, LAYOUTS[2], 8)
    written = _written(symbols, LAYOUTS[2], 8)
    data = bytearray(_text(written.data, 8))
    data[BEFORE + written.at["names"] + 1] = 0x05
    assert _read(bytes(data), 8) is None
