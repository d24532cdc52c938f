# SPDX-License-Identifier: MIT
"""Numbers of both byte orders, against struct."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftpatch.core.byte_order import BIG, LITTLE

CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
ORDERS = [(LITTLE, "<"), (BIG, ">")]


@given(st.lists(st.integers(0, (1 << 64) - 1)), st.sampled_from(sorted(CODES)), st.booleans())
def test_columns(values: list[int], size: int, big: bool) -> None:
    order, sign = ORDERS[big]
    kept = [value % (1 << 8 * size) for value in values]
    raw = struct.pack(f"{sign}{len(kept)}{CODES[size]}", *kept)
    assert order.rows(np.array(values, np.uint64), size).tobytes() == raw
    assert order.rows(np.array(values, np.uint64), size).shape == (len(values), size)
    assert order.unsigned(raw, size).tolist() == kept
    signed = struct.unpack(f"{sign}{len(kept)}{CODES[size].lower()}", raw)
    assert order.signed(np.frombuffer(raw, np.uint8), size).tolist() == [*signed]


@pytest.mark.parametrize(("order", "sign"), ORDERS, ids=["little", "big"])
def test_one_number(order: object, sign: str) -> None:
    assert order in (LITTLE, BIG)
    which = BIG if sign == ">" else LITTLE
    assert which.integer(b"\1\2\3\4") == struct.unpack(sign + "I", b"\1\2\3\4")[0]
    assert which.packed(0x01020304, 4) == struct.pack(sign + "I", 0x01020304)
    with pytest.raises(OverflowError):
        which.packed(1 << 32, 4)


def test_records() -> None:
    kind = np.dtype([("a", "<u2"), ("b", "u1"), ("c", "<i4"), ("d", "V3")])
    raw = struct.pack(">HBi3s", 0x0102, 3, -4, b"abc")
    row = np.frombuffer(raw, BIG.record(kind))[0]
    assert (int(row["a"]), int(row["b"]), int(row["c"])) == (0x0102, 3, -4)
    assert bytes(row["d"]) == b"abc" and LITTLE.record(kind) == kind
