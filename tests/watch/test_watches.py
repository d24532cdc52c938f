# SPDX-License-Identifier: MIT
"""Watches: what the requests of a command do, and that all of them stand or none."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftpatch.errors import UsageError
from ftpatch.watch import Request, Watch, apply_requests, parse_watch, watch_line

ALIGNED = {
    "c": (0x4003, 1),
    "counter": (0x4010, 4),
    "wide": (0x4020, 8),
    "table": (0x4040, 64),
    "three": (0x4080, 3),
    "bare": (0x4090, 0),
    "same": (0x4010, 4),
    "packed": (0x40A2, 8),
    "r@V1": (0x40B0, 4),
    "environ@GLIBC_2.2.5": (0x40B8, 8),
    "top": ((1 << 64) - 8, 0),
}


def resolve(name: str) -> tuple[int, int]:
    if name not in ALIGNED:
        raise UsageError(None, f"no symbol {name}", "see nm")
    return ALIGNED[name]


def apply(
    *texts: str,
    watched: Sequence[Watch] = (),
    slots: int = 4,
    read_only: bool = False,
    longest: int = 8,
) -> tuple[tuple[Watch, ...], list[str]]:
    return apply_requests(
        watched,
        [parse_watch(text) for text in texts],
        slots=slots,
        resolve=resolve,
        read_only=read_only,
        longest=longest,
    )


def lines(*texts: str, watched: Sequence[Watch] = (), longest: int = 8) -> list[str]:
    return [watch_line(watch) for watch in apply(*texts, watched=watched, longest=longest)[0]]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["nobody:rw-"], "no symbol nobody; see nm"),
        (["nobody:---"], "no symbol nobody; see nm"),
        (["wide:---"], "wide:---: no such watch to clear; watched: counter:rw-, w@table+16:2"),
        (["*:---", "wide:---"], "wide:---: no such watch to clear; nothing is watched"),
        (["counter:rw-"], "counter:rw-: already exists; it is being watched"),
        (["same:r--"], "same:r--: already exists; it is being watched"),
        (["wide:rw-", "wide:-w-"],
         "wide:-w-: duplicate request; combine the requests"),
        (["*:---", "*:---"],
         "*:---: duplicate request; combine the requests"),
        (["c:rw-", "wide:rw-", "table:rw-"],
         "table:rw-: Maximum limit:(4) reached, no new requests can be accepted now; "
         "remove one first, as with SYMBOL:---"),
        (["counter+4:rw-"],
         "counter+4:rw-: the offset is beyond the symbol; counter has 4 bytes"),
        (["top+8:rw-"], "top+8:rw-: no such address; use a smaller offset"),
        (["w@table+2:8"],
         "w@table+2:8: address 0x4042 is not aligned to 8 bytes; watch 2 of them"),
        (["rw@packed:4"],
         "rw@packed:4: address 0x40a2 is not aligned to 4 bytes; watch 2 of them"),
    ],
)  # fmt: skip
def test_what_is_said_of_watches(texts: list[str], message: str) -> None:
    """All is as it was: what stood before an error is not done either."""
    watched = list(apply("counter:rw-", "w@table+16:2")[0])
    before = list(watched)
    with pytest.raises(UsageError) as error:
        apply(*texts, watched=watched)
    assert str(error.value) == message and watched == before


def test_the_longest_of_the_cpu() -> None:
    with pytest.raises(UsageError) as error:
        apply("w@wide:8", longest=4)
    assert str(error.value) == "w@wide:8: this CPU cannot watch 8 bytes; watch 4 of them"
    assert apply("wide:rw-", longest=4)[0] == (
        Watch(symbol="wide", offset=0, address=0x4020, length=4, type="rw-"),
    )


def test_reads_alone() -> None:
    watches, notes = apply("counter:r--", "r@wide")
    assert [watch.type for watch in watches] == ["rw-", "rw-"]
    assert notes == [
        "counter:r--: this CPU cannot watch reads alone; writes are watched too",
        "wide:r--: this CPU cannot watch reads alone; writes are watched too",
    ]
    watches, notes = apply("counter:r--", read_only=True)
    assert watches[0].type == "r--" and not notes


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("c:rw-", 1),
        ("counter:rw-", 4),
        ("wide:rw-", 8),
        ("table:rw-", 4),
        ("table+8:rw-", 4),
        ("table+2:rw-", 2),
        ("table+3:rw-", 1),
        ("table+62:rw-", 2),
        ("table+60:rw-", 4),
        ("wide+4:rw-", 4),
        ("counter+2:rw-", 2),
        ("three:rw-", 2),
        ("bare:rw-", 4),
        ("bare+2:rw-", 2),
        ("packed:rw-", 2),
        ("w@three:4", 4),
        ("w@table:8", 8),
    ],
)
def test_lengths(text: str, length: int) -> None:
    assert apply(text)[0][0].length == length


def test_what_requests_do() -> None:
    watched = apply("counter:rw-", "wide:-w-")[0]
    assert lines("counter:---", watched=watched) == ["wide:-w-"]
    assert lines("same:---", watched=watched) == ["wide:-w-"], "by its address"
    assert lines("counter:-w-", watched=watched) == ["counter:-w-", "wide:-w-"], "in its place"
    assert lines("w@wide:4", watched=watched) == ["counter:rw-", "w@wide:4"], "another length"
    assert lines("rw@counter:2", watched=watched) == ["rw@counter:2", "wide:-w-"]
    assert lines("*:---", watched=watched) == []
    assert lines("*:---", "c:-w-", watched=watched) == ["c:-w-"]
    assert lines("counter:---", "table:rw-", watched=watched) == ["wide:-w-", "table:rw-"]
    assert lines("w@counter:4", "r@r@V1") == ["counter:-w-", "rw@r@V1"]
    assert lines() == [] and lines(watched=watched) == ["counter:rw-", "wide:-w-"]


REQUESTS = st.one_of(
    st.just(Request("*", 0, None, "---")),
    st.builds(
        Request,
        st.sampled_from([*ALIGNED, "nobody"]),
        st.sampled_from([0, 0, 0, 1, 2, 4, 8]),
        st.sampled_from([None, None, 1, 2, 4, 8]),
        st.sampled_from(["rw-", "-w-", "r--", "---"]),
    ),
)
Result = tuple[tuple[Watch, ...], list[str]]


@given(st.lists(REQUESTS, max_size=8), st.lists(REQUESTS, max_size=6), st.booleans())
def test_all_requests_stand_or_none(
    before: list[Request], requests: list[Request], read_only: bool
) -> None:
    def run(watched: Sequence[Watch], some: Sequence[Request]) -> Result | None:
        kept = list(watched)
        try:
            return apply_requests(watched, some, slots=4, resolve=resolve, read_only=read_only)
        except UsageError as error:
            assert str(error).isprintable()
            return None
        finally:
            assert list(watched) == kept

    start: tuple[Watch, ...] = ()
    for request in before:  # some watches to begin with
        start = (run(start, [request]) or (start, []))[0]
    step: Result | None = start, []
    for request in requests:
        done = run(step[0], [request]) if step else None
        step = (done[0], step[1] + done[1]) if step and done else None
    found = run(start, requests)
    if found is None:
        places = [ALIGNED.get(one.symbol, (-1, 0))[0] + one.offset for one in requests]
        assert step is None or len(set(places)) < len(places)
        return
    assert found == step
    assert len(found[0]) <= 4 and all(not w.address % w.length for w in found[0])
    assert len({w.address for w in found[0]}) == len(found[0])
    again = [parse_watch(watch_line(watch)) for watch in found[0]]
    assert run((), again) == (found[0], [])
