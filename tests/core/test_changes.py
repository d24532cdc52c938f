# SPDX-License-Identifier: MIT
"""Changes as columns: widths, joining, ordering, putting."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ftpatch.core.changes import NO_OWNER, Changes, Kind

Row = tuple[int, bytes, bytes, int]


def changes(rows: list[Row], kind: Kind = Kind.CODE) -> Changes:
    """Rows of (offset, old, new, owner) as columns."""
    k = max((len(old) for _, old, _, _ in rows), default=1)
    return Changes.of(
        kind,
        np.array([row[0] for row in rows], np.int64),
        np.array([list(row[1].ljust(k, b"\xaa")) for row in rows], np.uint8).reshape(-1, k),
        np.array([list(row[2].ljust(k, b"\xbb")) for row in rows], np.uint8).reshape(-1, k),
        np.array([row[3] for row in rows], np.uint64),
        np.array([len(row[1]) for row in rows], np.uint16),
    )


def rows_of(found: Changes) -> list[Row]:
    """The rows again, each as wide as it says."""
    return [
        (
            int(found.offset[i]),
            found.old[i, : found.width[i]].tobytes(),
            found.new[i, : found.width[i]].tobytes(),
            int(found.owner[i]),
        )
        for i in range(len(found))
    ]


@st.composite
def _apart(draw: st.DrawFn) -> list[Row]:
    """Rows that do not overlap, in any order."""
    at, out = 0, []
    for _ in range(draw(st.integers(0, 12))):
        at += draw(st.integers(0, 40))
        width = draw(st.integers(1, 24))
        old, new = (draw(st.binary(min_size=width, max_size=width)) for _ in range(2))
        out.append((at, old, new, draw(st.integers(0, NO_OWNER))))
        at += width
    return draw(st.permutations(out))


@given(_apart())
def test_rows_come_back(rows: list[Row]) -> None:
    found = changes(rows)
    assert rows_of(found) == rows and len(found) == len(rows)
    assert (found.kind == Kind.CODE).all()
    beyond = np.arange(found.old.shape[1]) >= found.width[:, None]
    assert not found.old[beyond].any() and not found.new[beyond].any()


@given(_apart(), _apart())
def test_joined_parts_keep_their_rows(first: list[Row], second: list[Row]) -> None:
    joined = Changes.concat([changes(first), changes(second, Kind.RECORD)])
    assert rows_of(joined) == first + second
    assert joined.kind.tolist() == [Kind.CODE] * len(first) + [Kind.RECORD] * len(second)


def test_joining_nothing_gives_nothing() -> None:
    empty = Changes.concat([])
    assert len(empty) == 0 and empty.old.shape == (0, 1)
    assert len(Changes.concat([empty, empty]).ordered().effective()) == 0


@given(_apart())
def test_ordered_is_by_offset(rows: list[Row]) -> None:
    assert rows_of(changes(rows).ordered()) == sorted(rows, key=lambda row: row[0])


@given(_apart())
def test_effective_rows_are_those_that_change_something(rows: list[Row]) -> None:
    same = [(at, old, old, owner) for at, old, _, owner in rows]
    assert len(changes(same).effective()) == 0
    wanted = [row for row in rows if row[1] != row[2]]
    assert rows_of(changes(rows).effective()) == wanted


@given(_apart())
def test_put_writes_the_width_and_nothing_else(rows: list[Row]) -> None:
    base = 7
    end = max((at + len(old) for at, old, _, _ in rows), default=0)
    before = bytearray(b"\x5a" * (base + end + 3))
    for at, old, _, _ in rows:
        before[base + at : base + at + len(old)] = old
    after = bytearray(before)
    for at, _, new, _ in rows:
        after[base + at : base + at + len(new)] = new
    data = np.frombuffer(bytes(before), np.uint8).copy()
    moved = [(at + base, old, new, owner) for at, old, new, owner in rows]
    changes(moved).put(data)
    assert data.tobytes() == bytes(after)
    changes(moved).put(data, old=True)
    assert data.tobytes() == bytes(before)


def test_put_counts_from_the_base() -> None:
    data = np.zeros(8, np.uint8)
    changes([(1000, b"\0\0", b"\1\2", 0)]).put(data, base=998)
    assert data.tolist() == [0, 0, 1, 2, 0, 0, 0, 0]


def test_kinds_are_the_journal_s_numbers() -> None:
    """They are in files that were written before: none may change."""
    assert {kind.name: kind.value for kind in Kind} == {
        "CODE": 0,
        "LITERAL": 1,
        "RECORD": 2,
        "RELOCATION": 3,
        "HEADER": 4,
        "PADDING": 5,
    }
