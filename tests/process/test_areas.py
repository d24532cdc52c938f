# SPDX-License-Identifier: MIT
"""Places for areas: free, near enough in both directions, and away from where a stack grows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ftpatch.errors import InputError
from ftpatch.process.areas import STACK_GROWS, find_hole
from ftpatch.process.maps import Mapping
from ftpatch.process.process import Process

PAGE, SIZE, REACH = 4096, 0x9000, (1 << 31) - (1 << 20)
PROCESS = Process(pid=1, started=0, name="p", thread=1)


def _mapping(start: int, end: int, path: bytes = b"") -> Mapping:
    return Mapping(
        start=start,
        end=end,
        readable=True,
        writable=True,
        executable=False,
        shared=False,
        offset=0,
        device=b"00:00",
        inode=0,
        path=path,
        deleted=False,
    )


def _hole(mappings: list[Mapping], low: int, high: int) -> int:
    return find_hole(PROCESS, mappings, [], low=low, high=high, size=SIZE, reach=REACH, page=PAGE)


pages = st.integers(min_value=1, max_value=1 << 34)


@given(st.lists(st.tuples(pages, st.integers(1, 1 << 20)), max_size=30), pages)
def test_free_and_within_reach(taken: list[tuple[int, int]], code: int) -> None:
    mappings, end = [], 0
    for page, count in sorted(taken):
        if page >= end:
            mappings.append(_mapping(page * PAGE, (page + count) * PAGE))
            end = page + count
    low, high = code * PAGE, code * PAGE + 0x5000
    try:
        at = _hole(mappings, low, high)
    except InputError:
        return
    assert at % PAGE == 0
    assert all(at + SIZE <= one.start or at >= one.end for one in mappings)
    assert abs(at - high) <= REACH and abs(at + SIZE - low) <= REACH


def test_a_heap_can_grow_below_it() -> None:
    heap = _mapping(0x1000000, 0x1020000, b"[heap]")
    at = _hole([_mapping(0x400000, 0x500000), heap], 0x401000, 0x4F0000)
    assert at - heap.end > 1 << 30


def test_a_stack_can_grow_above_it() -> None:
    stack = _mapping(0x7FFF_0000_0000, 0x7FFF_0002_1000, b"[stack]")
    code = _mapping(0x7FFE_9000_0000, 0x7FFE_9010_0000)
    at = _hole([code, stack], code.start, code.end)
    assert not stack.start - STACK_GROWS < at + SIZE <= stack.start


def test_no_room() -> None:
    everything = [_mapping(PAGE, 1 << 47)]
    try:
        _hole(everything, 0x5555_0000_0000, 0x5555_0001_0000)
    except InputError as error:
        assert "no room of 36864 bytes near 0x555500000000" in str(error)
    else:
        raise AssertionError
