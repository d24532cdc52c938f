# SPDX-License-Identifier: MIT
"""Pages of hops: as a loader maps them, each hop is a jump to its detour, in Capstone's reading."""

from __future__ import annotations

import capstone
from hypothesis import given, settings
from hypothesis import strategies as st

from ftpatch.arch.move import mover_of
from ftpatch.arch.puns import Pun, puns_of
from ftpatch.inject.hop_pages import MAX_SPAN, HopPages, spans
from ftpatch.inject.hops import Hops

MOVER, PUNS = mover_of("x86_64"), puns_of("x86_64")
PAGE, FLOOR, AT, DETOUR = 0x1000, 0x200_0000, 0x1000, 0x100_0000
READER = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
NEAR = st.integers(0, 40).map(lambda n: n * 0x777)
FAR = st.integers(0, 6).map(lambda n: n * 0x700_0000)
PLACES = st.lists(st.tuples(NEAR, FAR).map(lambda both: FLOOR + sum(both)), max_size=30)


def _one(at: int) -> Pun:
    """A form with one target."""
    return Pun(at=AT, head=b"\xe9", size=5, low=at, high=at + 1)


@settings(deadline=None)
@given(PLACES, st.integers(1, 8))
def test_they_are_what_was_taken(places: list[int], most: int) -> None:
    hops = Hops(PUNS, MOVER, floor=FLOOR, page=PAGE, most=most)
    taken = [hop.at for at in places if (hop := hops.take([_one(at)], 1))]
    assert sorted(set(taken)) == sorted(taken) and set(taken) <= set(places)
    # Only a lack of segments, another hop, or the end of a page is in the way.
    for at in set(places) - set(taken):
        near = any(abs(at - one) < MOVER.jump_size for one in taken)
        assert near or at % PAGE > PAGE - MOVER.jump_size or len(taken) >= most
    detours = {at: DETOUR + 32 * n for n, at in enumerate(taken)}
    pages = HopPages(hops=[*detours.items()], mover=MOVER, page=PAGE, most=most)
    contents, memory = pages.contents(16), dict[int, bytes]()
    assert len(pages.segments) <= most
    for address, size, offset in pages.segments:
        assert 0 <= offset <= offset + size <= len(contents) and size <= MAX_SPAN * PAGE
        assert not (address % PAGE or size % PAGE or offset % PAGE)
        for page in range(address, address + size, PAGE):
            assert page not in memory, "they do not overlap"
            memory[page] = contents[offset + page - address :][:PAGE]
    for at, detour in detours.items():
        (insn,) = READER.disasm(memory[at & -PAGE][at % PAGE :], at, 1)
        assert (insn.mnemonic, int(insn.op_str, 16)) == ("jmp", detour + 16)


@given(st.lists(st.integers(0, 300), unique=True).map(sorted), st.integers(1, 50))
def test_spans_are_the_fewest(pages: list[int], span: int) -> None:
    found = spans(pages, span)
    assert all(last - first < span for first, last in found)
    assert all(sum(a <= one <= b for a, b in found) == 1 for one in pages)
    # Pages that are a span apart need as many.
    apart = list[int]()
    for one in pages:
        if not apart or one - apart[-1] >= span:
            apart.append(one)
    assert len(found) == len(apart)


def test_the_file_holds_little_more_than_the_longest() -> None:
    clusters = [FLOOR + far * 0x100_0000 for far in range(20)]
    places = [cluster + near * 0x3333 for cluster in clusters for near in range(10)]
    pages = HopPages(hops=[(at, DETOUR) for at in places], mover=MOVER, page=PAGE, most=20)
    longest = max(size for _, size, _ in pages.segments)
    assert len(pages.segments) == 20 and len(pages.contents(0)) <= 3 * longest
